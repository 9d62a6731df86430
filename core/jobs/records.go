package jobs

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/accounts"
	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/fault"
)

// The journal of a dispatcher: a job's head, written at its submission, its cancelling and its end; and groups of
// results: all that arrived while the journal was busy.
const (
	headBucket  = "job"     // key: id
	groupBucket = "results" // key: id/number
)

type head struct {
	Spec      Spec      `json:"spec"`
	Submitted time.Time `json:"submitted"`
	Cancelled string    `json:"cancelled,omitempty"` // why
	Dropped   Indices   `json:"dropped,omitempty"`   // tasks that were cancelled one by one
	Ended     time.Time `json:"ended,omitzero"`

	Epoch int              `json:"epoch,omitempty"`
	Heir  cluster.WorkerID `json:"heir,omitempty"`
	Past  []Past           `json:"past,omitempty"`
	Spent *account         `json:"spent,omitempty"` // by attempts whose results are not kept; nil: nothing

	Held bool  `json:"held,omitempty"` // it is on hold
	Met  []int `json:"met,omitempty"`  // which of Spec.After are met
	// Requeued are the attempts that are being ended so that their tasks run anew.
	Requeued []Requeued `json:"requeued,omitempty"`
	DropWhy  string     `json:"drop_why,omitempty"` // why tasks of Dropped were cancelled; "": a user wanted it
}

// Past counts attempts of one task whose results are not kept: the job was taken over.
type Past struct {
	Index int    `json:"i"`
	Fails uint16 `json:"f,omitempty"`
	Lost  uint8  `json:"l,omitempty"`
}

// encodeHead returns a job's head and its checksum, which is never 0.
func (j *job) encodeHead(past []Past, spent *account) (raw []byte, sum uint32, err error) {
	h := head{Spec: j.spec, Submitted: j.submitted, Cancelled: j.why, Dropped: j.dropped, Ended: j.ended,
		Epoch: j.epoch, Heir: j.heir, Past: past, Spent: spent, Held: j.onHold, Met: j.metDependencies(),
		Requeued: j.requeuedAttempts(), DropWhy: j.dropWhy}
	if raw, err = json.Marshal(h); err != nil {
		return nil, 0, fault.Wrap(err, fault.Internal, fault.CodeJournal, "job %s cannot be written as JSON", j.id)
	}
	return raw, max(1, crc32.ChecksumIEEE(raw)), nil
}

type restored struct {
	id string
	head
}

type group struct {
	number  int
	results []Result
}

// Flush returns the records of all that is not in the journal yet, as one batch. It is empty if there is nothing, or
// while a batch is being committed; otherwise the owner must call Saved next.
func (d *Dispatcher) Flush() ([]fsm.Record, error) {
	if len(d.saving) > 0 {
		return nil, nil
	}
	out := d.purgeFinished()
	account, err := d.ledgerRecords()
	if err != nil {
		return nil, err
	}
	out = append(out, account...)
	for _, j := range slices.SortedFunc(maps.Keys(d.dirty),
		func(a, b *job) int { return cmp.Compare(a.number, b.number) }) {
		for _, g := range splitGroups(j.unsaved) {
			b, err := json.Marshal(g)
			if err != nil {
				return nil, fault.Wrap(err, fault.Internal, fault.CodeJournal,
					"the results of job %s cannot be written as JSON", j.id)
			}
			out = append(out, fsm.Record{Bucket: groupBucket, Key: groupKey(j.id, j.records), Value: b})
			j.records++
		}
		j.saving, j.unsaved = j.unsaved, nil
		if j.headDirty {
			b, sum, err := j.encodeHead(j.past, j.spent)
			if err != nil {
				return nil, err
			}
			out = append(out, fsm.Record{Bucket: headBucket, Key: j.id, Value: b})
			j.headDirty, j.newHead, j.ending = false, sum, !j.ended.IsZero()
		}
		d.saving = append(d.saving, j)
	}
	clear(d.dirty)
	if len(out) == 0 {
		d.saving = nil
	}
	return out, nil
}

// IsUrgent reports whether a flush has more than results of tasks: a job was submitted or cancelled, or has ended.
func (d *Dispatcher) IsUrgent() bool {
	for j := range d.dirty {
		if j.headDirty {
			return true
		}
	}
	return false
}

// Saved reports that the records of the last Flush are durable.
func (d *Dispatcher) Saved(now time.Time) {
	for _, j := range d.saving {
		results := j.saving
		j.saving, j.endSaved, j.ending = nil, j.endSaved || j.ending, false
		if j.newHead != 0 {
			j.head, j.newHead = j.newHead, 0
		}
		if j.rival != nil {
			continue
		}
		results, j.adopted = results[j.adopted:], 0
		if j.heir == "" {
			d.recordResults(results)
		} else {
			j.copying.addGroups(splitGroups(results))
		}
		d.queueCopy(j)
		d.settleSaved(j)
		d.noteChanged(j)
	}
	d.saving = nil
	d.announceWork(now)
}

// recordResults has the workers forget results that are durable.
func (d *Dispatcher) recordResults(results []Result) {
	for _, r := range results {
		o := d.ordersTo(r.Worker)
		o.Recorded = append(o.Recorded, r.Life())
	}
}

// settleSaved does what waits until a job's head is durable: its end is shown, or its first tasks are given out.
func (d *Dispatcher) settleSaved(j *job) {
	if !j.isHeadSafe() {
		return
	}
	if j.endSaved && !j.sealed {
		j.sealed, d.gatesDue = true, true
		d.out.Ended = append(d.out.Ended, j.id)
		d.noteChanged(j)
	}
	if j.fresh {
		j.fresh, d.gatesDue = false, true
		d.enqueueJob(j)
		d.etas.due = append(d.etas.due, j)
	}
}

// Bounds of one group of results, in results and in bytes.
const (
	groupResults = 2048
	groupBytes   = 512 << 10
)

// splitGroups splits results into groups, one for each journal record.
func splitGroups(all []Result) (out [][]Result) {
	first, size := 0, 0
	for i := range all {
		n := sizeOf(all[i : i+1])
		if i > first && (i-first >= groupResults || size+n > groupBytes) {
			out, first, size = append(out, all[first:i]), i, 0
		}
		size += n
	}
	if len(all) > 0 {
		out = append(out, all[first:])
	}
	return out
}

// purgeFinished removes the oldest finished jobs beyond MaxKept and MaxKeptTasks.
func (d *Dispatcher) purgeFinished() []fsm.Record {
	var out []fsm.Record
	for len(d.done) > d.maxKept || d.countKeptTasks() > MaxKeptTasks {
		n := slices.IndexFunc(d.done, func(j *job) bool { return j.sealed && !d.isAwaited(j.id) })
		if n < 0 {
			break
		}
		j := d.done[n]
		d.done = slices.Delete(d.done, n, n+1)
		d.closeAccount(j)
		out = append(out, d.removeJob(j)...)
		d.dropAtHeir(j)
	}
	for _, j := range d.forgotten {
		d.done = slices.DeleteFunc(d.done, func(o *job) bool { return o == j })
		out = append(out, d.removeJob(j)...)
	}
	d.forgotten = nil
	return out
}

// dropAtHeir has the heir of a job that is removed forget its copy. If that does not arrive, the heir takes the job
// over, and drops it once it hears of that.
func (d *Dispatcher) dropAtHeir(j *job) {
	if j.heir != "" && j.rival == nil {
		d.leaveHeir(j)
		h := d.heirOf(j.heir)
		h.drops = append(h.drops, Copy{Job: j.id, Epoch: j.epoch, Drop: true})
	}
}

// countKeptTasks counts the tasks of finished jobs.
func (d *Dispatcher) countKeptTasks() (n int) {
	for _, j := range d.done {
		n += len(j.tasks)
	}
	return n
}

// removeJob removes a job that is not in done, and returns the records that remove it from the journal.
func (d *Dispatcher) removeJob(j *job) []fsm.Record {
	d.order = slices.DeleteFunc(d.order, func(o *job) bool { return o == j })
	delete(d.jobs, j.id)
	delete(d.numbers, j.number)
	delete(d.dirty, j)
	delete(d.requeue, j)
	d.forgetHanded(j)
	d.tasks -= len(j.tasks)
	out := []fsm.Record{{Bucket: headBucket, Key: j.id}}
	for n := range j.records {
		out = append(out, fsm.Record{Bucket: groupBucket, Key: groupKey(j.id, n)})
	}
	d.out.Purged = append(d.out.Purged, j.id)
	return out
}

func groupKey(id string, n int) string { return fmt.Sprintf("%s/%08d", id, n) }

// Restore takes back one record of the journal; call it for each record before Resume.
func (d *Dispatcher) Restore(r fsm.Record) error {
	damaged := func(err error) error {
		return fault.Wrap(err, fault.Internal, fault.CodeJournalDamaged,
			"the record %s of job %s cannot be read; restore the journal from a backup", r.Bucket, r.Key)
	}
	switch r.Bucket {
	case headBucket:
		h, err := decodeHead(r.Key, r.Value)
		if err != nil {
			return damaged(err)
		}
		d.heads = append(d.heads, restored{r.Key, *h})
	case groupBucket:
		id, n, _ := strings.Cut(r.Key, "/")
		number, err := strconv.Atoi(n)
		g := group{number: number}
		if err == nil {
			err = json.Unmarshal(r.Value, &g.results)
		}
		if err != nil {
			return damaged(err)
		}
		if d.groups == nil {
			d.groups = map[string][]group{}
		}
		d.groups[id] = append(d.groups[id], g)
	case accountBucket:
		var e accounts.Entry
		if err := json.Unmarshal(r.Value, &e); err != nil {
			return fault.Wrap(err, fault.Internal, fault.CodeJournalDamaged,
				"the account %.80q cannot be read; restore the journal from a backup", r.Key)
		}
		d.ledger.Restore(&e)
	default:
		return fault.New(fault.Internal, fault.CodeJournalDamaged,
			"the journal of jobs has a bucket %q that this souk does not know; it was written by a newer souk, so "+
				"run that one", r.Bucket)
	}
	return nil
}

// Resume rebuilds the jobs from the restored records.
func (d *Dispatcher) Resume() {
	slices.SortFunc(d.heads, func(a, b restored) int {
		return cmp.Or(a.Submitted.Compare(b.Submitted), cmp.Compare(a.id, b.id))
	})
	for _, h := range d.heads {
		j := d.enterJob(h.id, h.Spec, h.Submitted)
		j.applyHead(&h.head)
		groups := d.groups[h.id]
		slices.SortFunc(groups, func(a, b group) int { return cmp.Compare(a.number, b.number) })
		for _, g := range groups {
			j.records = max(j.records, g.number+1)
			for _, r := range g.results {
				j.replayResult(r)
			}
		}
		j.addPast()
		d.askHeir(j)
		d.queueRestored(j)
	}
	slices.SortFunc(d.done, func(a, b *job) int { return a.ended.Compare(b.ended) })
	d.heads, d.groups = nil, nil
}

// decodeHead reads the head of a job.
func decodeHead(id string, raw []byte) (*head, error) {
	h := &head{}
	err := json.Unmarshal(raw, h)
	switch {
	case err != nil:
	case !ValidID(id):
		err = errors.New("its id is none")
	case h.Epoch < 0 || h.Epoch > MaxEpoch:
		err = errors.New("its epoch is out of range")
	default:
		err = h.Spec.Settle()
	}
	if err != nil {
		return nil, fault.Wrap(err, fault.Invalid, fault.CodeJob, "the head of job %.80q cannot be read", id)
	}
	return h, nil
}

// applyHead takes over a head, but for the spec and the time of submission.
func (j *job) applyHead(h *head) {
	j.why, j.dropped, j.ended = h.Cancelled, h.Dropped, h.Ended
	j.epoch, j.heir, j.past, j.spent = h.Epoch, h.Heir, h.Past, h.Spent
	j.onHold, j.dropWhy = h.Held, h.DropWhy
	j.setMet(h.Met)
	j.setRequeued(h.Requeued)
}

// addPast counts the attempts whose results are not kept.
func (j *job) addPast() {
	j.account.addSpent(j.spent)
	for _, p := range j.past {
		if i, ok := j.placeOf(p.Index); ok {
			t := &j.tasks[i]
			t.fails, t.lost = t.fails+p.Fails, t.lost+p.Lost
			j.retried, j.lost = j.retried+int(p.Fails), j.lost+int(p.Lost)
		}
	}
}

// replayResult applies one result of the journal.
func (j *job) replayResult(r Result) {
	i, ok := j.placeOf(r.Index)
	if ok {
		j.addUsed(&r)
	}
	if !ok || j.tasks[i].state != waiting {
		return
	}
	t := &j.tasks[i]
	r.Job, r.CPU, r.Memory, r.GPUs = j.id, j.terms.Shape.CPU, j.terms.Shape.Memory, j.spec.GPUs
	t.attempt, t.result, t.began = int32(r.Attempt), &r, r.Began
	switch {
	case r.Retry && r.Evicted != "":
		j.evicted++
	case r.Retry && r.Lost:
		t.lost++
		j.lost++
	case r.Retry:
		t.fails++
		j.retried++
	case r.Dropped:
		j.setState(i, cancelled)
	default:
		j.setState(i, finished)
		if r.isSuccess() {
			j.ok++
			j.addRuntime(max(0, r.Ended-r.Began))
		} else if j.firstFail < 0 {
			j.firstFail = i
		}
	}
}

// queueRestored queues the waiting tasks of a restored job. A job without any is finished.
func (d *Dispatcher) queueRestored(j *job) {
	j.updateEstimate()
	for i := range j.tasks {
		if j.tasks[i].state == waiting && j.isUnwanted(i) {
			j.setState(i, cancelled)
		}
	}
	if j.counts[waiting] > 0 {
		d.enqueueJob(j)
		return
	}
	d.done = append(d.done, j)
	if j.sealed = !j.ended.IsZero(); !j.sealed {
		j.ended = j.lastEnd()
		j.headDirty = true
		d.dirty[j] = true
	}
}

// lastEnd returns when the last of the job's tasks with a result ended.
func (j *job) lastEnd() time.Time {
	last := j.submitted
	for i := range j.tasks {
		if r := j.tasks[i].result; r != nil && time.UnixMicro(r.Ended).After(last) {
			last = time.UnixMicro(r.Ended)
		}
	}
	return last
}

// NoteAttempt reports, after Resume, that an attempt was given to a worker before. Its number is not used again, even
// if the attempt never reached the worker. The task is given out again only after the worker has reported that it does
// not run, or after Gone.
func (d *Dispatcher) NoteAttempt(id string, index, attempt int, worker cluster.WorkerID) {
	j := d.jobs[id]
	if j == nil {
		return
	}
	i, ok := j.placeOf(index)
	if !ok || j.tasks[i].isPastAttempt(attempt) || EpochOf(attempt) > MaxEpoch || j.sealed {
		return
	}
	t := &j.tasks[i]
	switch {
	case t.state == cancelled && t.result == nil: // it was cancelled, and may not have ended
		d.reopenJob(j)
	case t.state >= finished:
		return
	}
	if t.state == running { // an older attempt, which was noted first
		delete(d.workers[t.worker].running, j.lifeOf(i))
	}
	j.setState(i, running)
	d.requeue[j] = true
	t.attempt, t.worker, t.unconfirmed = int32(attempt), worker, true
	d.workerOf(worker).running[j.lifeOf(i)] = j
}

// reopenJob takes back that a restored job has ended, which is not durable yet.
func (d *Dispatcher) reopenJob(j *job) {
	if !j.ended.IsZero() {
		j.ended = time.Time{}
		d.done = slices.DeleteFunc(d.done, func(o *job) bool { return o == j })
	}
}

// Unconfirmed lists the workers that may run tasks which they have not reported since Resume.
func (d *Dispatcher) Unconfirmed() (out []cluster.WorkerID) {
	for _, s := range d.inOrder {
		if !s.here && len(s.running) > 0 {
			out = append(out, s.id)
		}
	}
	return out
}

// SkipAttempts reports, after NoteAttempt, that the host went down: it lost what ran on its own workers, and attempts
// that were not on disk yet. The next attempt of each task skips one number, except for tasks that may run elsewhere.
// Each worker is connected once, so that it ends tasks that are not wanted any more.
func (d *Dispatcher) SkipAttempts(own func(cluster.WorkerID) bool) {
	d.rebooted = true
	for _, j := range d.order {
		for i := range j.tasks {
			t := &j.tasks[i]
			if t.state == running && own(t.worker) {
				delete(d.workers[t.worker].running, j.lifeOf(i))
				d.requeueUnconfirmed(j.lastEnd(), j, i)
			}
			if t.state == waiting && TryOf(int(t.attempt)) < MaxTry {
				t.attempt++
			}
		}
	}
}

// EachAttempt calls f with the newest attempt of each task that was given out and has not ended.
func (d *Dispatcher) EachAttempt(f func(id string, index, attempt int, worker cluster.WorkerID)) {
	for _, j := range d.order {
		for i := range j.tasks {
			if t := &j.tasks[i]; t.state < finished && t.attempt > 0 {
				f(j.id, j.array.At(i), int(t.attempt), t.worker)
			}
		}
	}
}
