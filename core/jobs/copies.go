package jobs

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/auction"
	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/fault"
)

// Bounds of what one member keeps for others.
const (
	MaxCopies      = 10_000
	MaxCopiedTasks = MaxAllTasks
)

// The journal of copies.
const (
	copyBucket  = "copy"   // key: the job's ID; a copyRecord
	groupsCopy  = "copied" // key: ID/number; a copiedGroup
	maxStaged   = 64       // whole copies that are arriving
	askPause    = time.Minute
	askPatience = 10 * time.Second
)

// Copies are the jobs that other members keep, as this member, their heir, has them. It is for one goroutine.
type Copies struct {
	jobs  *Dispatcher // holds the jobs; it is never opened
	of    map[string]*CopiedJob
	batch []fsm.Record // to be committed
	gone  []string     // IDs of jobs that were dropped

	heads  map[string]copyRecord
	groups map[string][]numberedGroup
}

// CopiedJob is the copy of a job.
type CopiedJob struct {
	job     *job
	keeper  cluster.WorkerID
	sum     uint32 // of the head, as the keeper says
	version int
	records int       // groups in the journal
	staged  *staged   // a whole copy that is arriving; nil: none
	asked   time.Time // when its keeper was last asked whether it is up to date
	due     time.Time // since when its keeper is gone; zero: it is not
	orphan  bool      // its keeper does not know it
}

// staged is a whole copy that is arriving.
type staged struct {
	keeper cluster.WorkerID
	epoch  int
	pieces int
	groups [][]Result
}

// copyRecord is the head of a copy in the journal.
type copyRecord struct {
	Keeper  cluster.WorkerID `json:"keeper"`
	Version int              `json:"version"`
	Sum     uint32           `json:"sum"`
	Head    json.RawMessage  `json:"head"`
}

// copiedGroup is a group of results of a copy, and the version of the copy with it.
type copiedGroup struct {
	Version int      `json:"v"`
	Results []Result `json:"r"`
}

type numberedGroup struct {
	number int
	copiedGroup
}

// NewCopies makes an empty set of copies.
func NewCopies() *Copies {
	return &Copies{jobs: NewDispatcher(auction.DefaultRules(1)), of: map[string]*CopiedJob{},
		heads: map[string]copyRecord{}, groups: map[string][]numberedGroup{}}
}

// Take takes a part of a job from the member that keeps it. What it changes is in the next Flush; the answer may be given
// once that is durable.
func (c *Copies) Take(now time.Time, keeper cluster.WorkerID, x *Copy) CopyAnswer {
	a := CopyAnswer{Job: x.Job, State: CopyKept}
	old := c.of[x.Job]
	if old != nil && old.job != nil {
		mine, theirs := old.claim(), Claim{Job: x.Job, Epoch: x.Epoch, By: keeper}
		if mine.By != keeper && mine.Outranks(&theirs) {
			a.State, a.Rival = CopyRivaled, &mine
			return a
		}
	}
	if x.Piece > 0 {
		a.State = c.takePiece(keeper, x)
		return a
	}
	switch {
	case old == nil || old.job == nil || old.keeper != keeper:
		a.State = CopyMissing
	case x.Probe:
		if old.version < x.Version || old.sum != x.Sum {
			a.State = CopyMissing
		}
	case x.Version-len(x.Groups) > old.version || old.sum != x.Sum && x.Head == nil:
		a.State = CopyMissing
	default:
		if err := c.addGroups(old, x); err != nil {
			a.State = CopyMissing
		}
	}
	if a.State == CopyKept {
		old.asked, old.due, old.orphan = now, time.Time{}, false
	}
	return a
}

// takePiece takes a piece of a whole copy. With the last one it replaces the copy of before.
func (c *Copies) takePiece(keeper cluster.WorkerID, x *Copy) CopyState {
	old := c.of[x.Job]
	if old == nil {
		if len(c.of) >= MaxCopies {
			return CopyRefused
		}
		old = &CopiedJob{}
		c.of[x.Job] = old
	}
	if x.Piece == 1 {
		if c.countStaged() >= maxStaged {
			return CopyRefused
		}
		old.staged = &staged{keeper: keeper, epoch: x.Epoch}
	}
	s := old.staged
	if s == nil || s.keeper != keeper || s.epoch != x.Epoch || s.pieces != x.Piece-1 {
		old.staged = nil
		c.dropEmpty(x.Job)
		return CopyMissing
	}
	s.pieces++
	s.groups = append(s.groups, x.Groups...)
	if x.More {
		return CopyKept
	}
	old.staged = nil
	h, err := decodeHead(x.Job, x.Head)
	tasks := c.jobs.tasks
	if old.job != nil {
		tasks -= len(old.job.tasks)
	}
	if err != nil || h.Epoch != x.Epoch || tasks+h.Spec.Tasks() > MaxCopiedTasks {
		c.dropEmpty(x.Job)
		return CopyRefused
	}
	c.Drop(x.Job)
	fresh := &CopiedJob{keeper: keeper, sum: x.Sum, version: x.Version}
	c.of[x.Job] = fresh
	c.enterCopy(fresh, x.Job, h, s.groups)
	c.putRecord(copyBucket, x.Job, copyRecord{keeper, x.Version, x.Sum, x.Head})
	for _, g := range s.groups {
		c.putGroup(fresh, x.Version, g)
	}
	return CopyKept
}

func (c *Copies) countStaged() (n int) {
	for _, x := range c.of {
		if x.staged != nil {
			n++
		}
	}
	return n
}

// dropEmpty drops an entry that has neither a job nor pieces of one.
func (c *Copies) dropEmpty(id string) {
	if x := c.of[id]; x != nil && x.job == nil && x.staged == nil {
		delete(c.of, id)
	}
}

// enterCopy makes the job of a copy.
func (c *Copies) enterCopy(x *CopiedJob, id string, h *head, groups [][]Result) {
	x.job = c.jobs.enterJob(id, h.Spec, h.Submitted)
	x.job.applyHead(h)
	for _, g := range groups {
		for _, r := range g {
			x.job.replayResult(r)
		}
	}
	x.job.addPast()
	x.settleEnd()
}

// settleEnd shows the end of a copied job.
func (x *CopiedJob) settleEnd() {
	j := x.job
	j.updateEstimate()
	if j.sealed = !j.ended.IsZero(); !j.sealed {
		return
	}
	for i := range j.tasks {
		if j.tasks[i].state == waiting {
			j.setState(i, cancelled)
		}
	}
}

// addGroups adds groups of results, and a newer head, to a copy.
func (c *Copies) addGroups(old *CopiedJob, x *Copy) error {
	if x.Head != nil {
		h, err := decodeHead(x.Job, x.Head)
		if err != nil {
			return err
		}
		h.Past, h.Spent = old.job.past, old.job.spent // of this copy
		old.job.applyHead(h)
		raw, _, err := old.job.encodeHead(old.job.past, old.job.spent)
		if err != nil {
			return err
		}
		old.sum = x.Sum
		c.putRecord(copyBucket, x.Job, copyRecord{old.keeper, old.version, x.Sum, raw})
	}
	for i, g := range x.Groups {
		if v := x.Version - len(x.Groups) + i + 1; v > old.version {
			for _, r := range g {
				old.job.replayResult(r)
			}
			old.version = v
			c.putGroup(old, v, g)
		}
	}
	old.settleEnd()
	return nil
}

func (c *Copies) putGroup(x *CopiedJob, version int, g []Result) {
	c.putRecord(groupsCopy, groupKey(x.job.id, x.records), copiedGroup{version, g})
	x.records++
}

func (c *Copies) putRecord(bucket, key string, v any) {
	raw, _ := json.Marshal(v) // these types always encode: all texts and numbers were decoded from JSON
	c.batch = append(c.batch, fsm.Record{Bucket: bucket, Key: key, Value: raw})
}

// Drop forgets a copy.
func (c *Copies) Drop(id string) {
	x := c.of[id]
	if x == nil {
		return
	}
	delete(c.of, id)
	if x.job == nil {
		return
	}
	c.jobs.removeJob(x.job)
	c.jobs.Take()
	c.gone = append(c.gone, id)
	c.batch = append(c.batch, fsm.Record{Bucket: copyBucket, Key: id})
	for n := range x.records {
		c.batch = append(c.batch, fsm.Record{Bucket: groupsCopy, Key: groupKey(id, n)})
	}
}

// dropFor forgets a copy of a job that its keeper has forgotten.
func (c *Copies) dropFor(keeper cluster.WorkerID, x *Copy) {
	if old := c.of[x.Job]; old != nil && old.keeper == keeper && old.job != nil && old.job.epoch <= x.Epoch {
		c.Drop(x.Job)
	}
}

// Flush returns the records of all that has changed, as one batch.
func (c *Copies) Flush() []fsm.Record {
	out := c.batch
	c.batch = nil
	return out
}

// Dropped returns the IDs of the jobs whose copies were dropped since the last call. Some have a new copy, or were taken
// over.
func (c *Copies) Dropped() []string {
	out := c.gone
	c.gone = nil
	return out
}

// Has reports whether there is a copy of a job, or a part of one, and whether the job has ended.
func (c *Copies) Has(id string) (has, ended bool) {
	x := c.of[id]
	return x != nil, x != nil && x.job != nil && x.job.sealed
}

// All returns the status of all copied jobs.
func (c *Copies) All(now time.Time) (out []Job) {
	for _, j := range c.jobs.order {
		out = append(out, c.jobs.statusOf(now, j, false))
	}
	return out
}

// Restore takes back one record of the journal; call it for each record before Resume.
func (c *Copies) Restore(r fsm.Record) (err error) {
	switch r.Bucket {
	case copyBucket:
		var x copyRecord
		if err = json.Unmarshal(r.Value, &x); err == nil {
			c.heads[r.Key] = x
		}
	case groupsCopy:
		id, n, _ := strings.Cut(r.Key, "/")
		var g numberedGroup
		if g.number, err = strconv.Atoi(n); err == nil {
			err = json.Unmarshal(r.Value, &g.copiedGroup)
		}
		c.groups[id] = append(c.groups[id], g)
	default:
		err = fmt.Errorf("unknown bucket %q", r.Bucket)
	}
	if err != nil {
		return fault.Wrap(err, fault.Internal, fault.CodeJournalDamaged,
			"the copy %s of a job cannot be read; it is a second copy, so the file can be given up if the member that "+
				"keeps the job is well", r.Key)
	}
	return nil
}

// Resume rebuilds the copies from the restored records.
func (c *Copies) Resume() error {
	for _, id := range slices.Sorted(maps.Keys(c.heads)) {
		rec := c.heads[id]
		h, err := decodeHead(id, rec.Head)
		if err != nil {
			return err
		}
		x := &CopiedJob{keeper: rec.Keeper, sum: rec.Sum, version: rec.Version}
		list := c.groups[id]
		slices.SortFunc(list, func(a, b numberedGroup) int { return cmp.Compare(a.number, b.number) })
		var groups [][]Result
		for _, g := range list {
			groups = append(groups, g.Results)
			x.version, x.records = max(x.version, g.Version), g.number+1
		}
		c.of[id] = x
		c.enterCopy(x, id, h, groups)
	}
	c.heads, c.groups = nil, nil
	return nil
}

// claim returns what the keeper of a copied job claims, as far as the heir knows.
func (x *CopiedJob) claim() Claim {
	return Claim{Job: x.job.id, Epoch: x.job.epoch, By: x.keeper, Heir: x.job.heir, Copy: true}
}

// Claims returns, for each of these jobs that has a copy here, the claim of its keeper.
func (c *Copies) Claims(ids []string) (out []Claim) {
	for _, id := range ids {
		if x := c.of[id]; x != nil && x.job != nil {
			out = append(out, x.claim())
		}
	}
	return out
}

// Due lists the copies whose keeper is gone or does not know the job, and, by keeper, those whose keeper has to be asked
// whether they are up to date.
func (c *Copies) Due(now time.Time, gone func(cluster.WorkerID) bool) (lost []string,
	ask map[cluster.WorkerID][]string) {
	ask = map[cluster.WorkerID][]string{}
	for _, id := range slices.Sorted(maps.Keys(c.of)) {
		x := c.of[id]
		switch {
		case x.job == nil:
		case x.orphan || gone(x.keeper):
			if x.due.IsZero() {
				x.due = now
			}
			lost = append(lost, id)
		case now.Sub(x.asked) >= askPause:
			x.asked, x.due = now, time.Time{}
			ask[x.keeper] = append(ask[x.keeper], id)
		default:
			x.due = time.Time{}
		}
	}
	return lost, ask
}

// AskAgain has a keeper that has just started asked at once whether the copies of its jobs are up to date.
func (c *Copies) AskAgain(keeper cluster.WorkerID) {
	for _, x := range c.of {
		if x.keeper == keeper {
			x.asked = time.Time{}
		}
	}
}

// Waits reports whether a member that has not said who keeps a lost job is still waited for.
func (c *Copies) Waits(now time.Time, id string) bool {
	x := c.of[id]
	return x != nil && now.Sub(x.due) < askPatience
}

// isNewerThan reports whether a copy has what its keeper does not have any more, by the part of the job that it sends:
// its disk is an old one.
func (c *Copies) isNewerThan(keeper cluster.WorkerID, x *Copy) bool {
	old := c.of[x.Job]
	return old != nil && old.job != nil && old.keeper == keeper &&
		(old.job.epoch > x.Epoch || x.Restarted && old.job.epoch == x.Epoch && old.version > x.Version)
}

// confirm drops the copies that are out of date by what their keeper claims about the jobs with these ids. It returns
// the jobs of which the keeper has less than their copy: its disk is an old one. A job that the keeper does not know may
// have been handed over, so its copy becomes an orphan, about which Due has all members asked.
func (c *Copies) confirm(self, keeper cluster.WorkerID, ids []string, claims []Claim) (newer []string) {
	for _, id := range ids {
		x := c.of[id]
		if x == nil || x.job == nil || x.keeper != keeper {
			continue
		}
		i := slices.IndexFunc(claims, func(k Claim) bool { return k.Job == id && !k.Copy && k.By == keeper })
		switch {
		case i >= 0 && claims[i].Epoch < x.job.epoch:
			newer = append(newer, id)
		case i < 0:
			x.orphan = true
		case claims[i].Heir != self:
			c.Drop(id)
		}
	}
	return newer
}

// IsSuperseded reports whether, by the claims of others, a copy is out of date: another member keeps the job, or has a
// newer copy.
func (c *Copies) IsSuperseded(id string, claims []Claim) bool {
	x := c.of[id]
	return x == nil || x.job == nil || slices.ContainsFunc(claims, func(k Claim) bool {
		return k.Job == id && (k.Copy && k.Epoch > x.job.epoch || !k.Copy && k.By != x.keeper && k.Epoch >= x.job.epoch)
	})
}

// Release removes and returns a copy, for Adopt; nil if there is none.
func (c *Copies) Release(id string) *CopiedJob {
	x := c.of[id]
	if x == nil || x.job == nil {
		return nil
	}
	c.Drop(id)
	return x
}

// Status returns the status of a copied job, by its ID or its name, as its keeper last copied it.
func (c *Copies) Status(now time.Time, self cluster.WorkerID, ref string) (Job, error) {
	j := c.jobs.jobNamed(ref)
	if j == nil {
		return Job{}, noJob(ref)
	}
	return c.statusOf(now, self, j), nil
}

func (c *Copies) statusOf(now time.Time, self cluster.WorkerID, j *job) Job {
	s := c.jobs.statusOf(now, j, false)
	s.Member, s.Heir = c.of[j.id].keeper, self
	return s
}

// List returns the copied jobs of an app, of all for "", that these members keep, oldest first.
func (c *Copies) List(now time.Time, self cluster.WorkerID, app string, keepers []cluster.WorkerID) []Job {
	out := []Job{}
	for _, j := range c.jobs.order {
		if (app == "" || j.spec.App == app) && slices.Contains(keepers, c.of[j.id].keeper) {
			out = append(out, c.statusOf(now, self, j))
		}
	}
	return out
}

// JobReport returns the report of a copied job, by its ID or its name, as its keeper last copied it.
func (c *Copies) JobReport(now time.Time, self cluster.WorkerID, ref string) (JobReport, error) {
	j := c.jobs.jobNamed(ref)
	if j == nil {
		return JobReport{}, noJob(ref)
	}
	return j.report(c.statusOf(now, self, j)), nil
}

// Tasks returns a copied job's tasks. See Dispatcher.Tasks.
func (c *Copies) Tasks(now time.Time, ref string, q TaskQuery) ([]Task, int, error) {
	return c.jobs.Tasks(now, ref, q)
}
