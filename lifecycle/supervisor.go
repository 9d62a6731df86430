package lifecycle

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fsm"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/market"
	"github.com/soukhq/souk/placement"
)

// Bounds of what a worker keeps.
const (
	MaxVersions   = 10             // configs kept for each machine
	MaxPending    = 8              // commands that wait for one machine's operation to end
	KeepDestroyed = 24 * time.Hour // destroyed machines stay readable this long
	MaxDestroyed  = 1000           // and at most this many
)

// Supervisor is one worker's truth. It is not safe for concurrent use.
type Supervisor struct {
	seller  *market.Seller
	engine  *fsm.Engine[*Supervisor]
	rand    *rand.Rand
	rows    map[string]*row
	names   map[fullName]string // to the id of the machine that has it
	volumes map[string]*volumeRow
	tasks   map[string]*Task // that have room, by name
	leases  map[string]machine.Lease
	pending map[string][]pendingCommand
	waiting map[string][]waiter // by key: who is answered when its run ends
	gone    []string            // destroyed machines, oldest first
	drift   uint64
	evicted uint64
	lastID  string

	purse     purse
	launching map[string]bool // keys of the operations on their way that start something
	timed     map[string]bool // machines with a restart or a schedule to come
	strays    map[string]bool // machines whose room is kept for a life that the journal does not have, until it is gone

	now   time.Time // of the input being taken
	out   Out
	dirty map[string]bool
}

// fullName is what is unique on a worker but for destroyed machines.
type fullName struct{ app, name string }

// waiter is a command whose operation is on its way.
type waiter struct {
	ticket   uint64
	run      string        // the operation's id
	previous machine.State // that the command found
}

type pendingCommand struct {
	ticket uint64
	c      Command
}

// Out is what one input asks of the owner. See the package comment for the order.
type Out struct {
	fsm.Out
	Replies []Reply
	Changed []string // machine ids
	Events  []machine.EventOf
	Evict   []machine.Preemption // tasks that are to go
}

// Reply answers the command that was given with Ticket.
type Reply struct {
	Ticket  uint64
	Outcome Outcome
	Lease   machine.Lease
	Volume  machine.Volume
	Err     error
}

// New makes the supervisor of a worker that has nothing yet. rec says who it is and its capacity.
func New(rec cluster.Record, rng *rand.Rand) *Supervisor {
	s := &Supervisor{
		seller: market.NewSeller(rec), rand: rng,
		rows: map[string]*row{}, names: map[fullName]string{}, volumes: map[string]*volumeRow{}, tasks: map[string]*Task{}, leases: map[string]machine.Lease{},
		pending: map[string][]pendingCommand{}, waiting: map[string][]waiter{}, dirty: map[string]bool{},
		timed: map[string]bool{}, strays: map[string]bool{}, launching: map[string]bool{}, purse: newPurse(),
	}
	s.engine = fsm.NewEngine(s, rng, definitions()...)
	s.seller.Busy(s.occupied)
	s.seller.Funding(s.funds)
	return s
}

// Restore takes back one record of the journal; call it for each before Recover. An error of kind Internal with code
// "replay" parks one machine and is otherwise harmless; any other means the journal cannot be trusted.
func (s *Supervisor) Restore(rec fsm.Record) error {
	switch rec.Bucket {
	case fsm.RunBucket, fsm.HistoryBucket:
		return s.engine.Restore(rec)
	case MachineBucket:
		r, err := decodeRow(rec)
		if err != nil {
			return err
		}
		if old := s.rows[rec.Key]; old != nil {
			r.versions = old.versions
		}
		s.rows[rec.Key] = r
	case VersionBucket:
		var v machine.Version
		id, _, _ := strings.Cut(rec.Key, "|")
		if err := json.Unmarshal(rec.Value, &v); err != nil {
			return fault.Wrap(err, fault.Internal, "journal_damaged", "the journal's record of version %s does not read; restore the journal from a backup", rec.Key)
		}
		if s.rows[id] == nil {
			s.rows[id] = &row{}
		}
		s.rows[id].versions = append(s.rows[id].versions, v)
	case LeaseBucket:
		var l machine.Lease
		if err := json.Unmarshal(rec.Value, &l); err != nil {
			return fault.Wrap(err, fault.Internal, "journal_damaged", "the journal's record of the lease of %s does not read; restore the journal from a backup", rec.Key)
		}
		s.leases[rec.Key] = l
	case VolumeBucket:
		return s.restoreVolume(rec)
	case EvictionBucket:
		return s.restoreEvictions(rec)
	case MeterBucket:
		return s.restoreMeter(rec)
	case CordonBucket:
		return s.restoreCordon(rec)
	default:
		return fault.New(fault.Internal, "journal_damaged", "the journal has a bucket %q that this souk does not know; it was written by a newer souk, so run that one", rec.Bucket)
	}
	return nil
}

// Recover brings the restored state and the runtime's facts together: runs go on, lives that are still there are
// adopted, those that ended unseen are ended, and what the journal does not know is removed.
func (s *Supervisor) Recover(now time.Time, lives []Life) Out {
	s.open(now)
	maps.DeleteFunc(s.rows, func(_ string, r *row) bool { return r.Machine.ID == "" }) // versions without a machine
	s.parkOrphans()
	seen := byMachine(lives)
	for _, id := range slices.Sorted(maps.Keys(s.rows)) {
		r := s.rows[id]
		s.out.Changed = append(s.out.Changed, id) // so that the view has it
		if r.timed() {
			s.timed[id] = true
		}
		if r.destroyed() {
			s.gone = append(s.gone, id)
			continue
		}
		s.names[fullName{r.Machine.App, r.Machine.Name}] = id
		s.adopt(r, seen[id])
		up := s.occupies(r)
		if !up && seen[id].Running {
			up, s.strays[id] = true, true
		}
		s.seller.Restore(id, r.Machine.App, r.footprint(), up, r.Devices...)
		s.seller.Describe(id, s.tenant(r))
		for _, v := range r.mounts() {
			s.attach(v, id)
		}
	}
	slices.SortFunc(s.gone, func(a, b string) int { return s.rows[a].DestroyedAt.Compare(s.rows[b].DestroyedAt) })
	s.restoreClaims()
	s.engine.Each(func(r *fsm.Run) {
		if launches(r) {
			s.launching[r.Key] = true
		}
	})
	s.resumeMeter(lives)
	s.engine.Resume(now, &s.out.Out)
	s.reconcile(lives, now)
	for _, id := range slices.Sorted(maps.Keys(s.rows)) {
		if r := s.rows[id]; s.engine.Active(machineKey(id)) == nil && !r.destroyed() {
			r.Machine.State = r.settle()
			s.noteParked(r)
		}
	}
	return s.close()
}

func byMachine(lives []Life) map[string]Life {
	m := make(map[string]Life, len(lives))
	for _, l := range lives {
		m[l.Machine] = l
	}
	return m
}

// parkOrphans keeps runs whose subject the journal does not have, or that do not fit it, from going on.
func (s *Supervisor) parkOrphans() {
	s.engine.Each(func(r *fsm.Run) {
		kind, id, _ := strings.Cut(r.Key, "/")
		ok := kind == "v" && s.volumes[id] != nil && strings.HasPrefix(r.Op, "volume_")
		if row := s.rows[id]; kind == "m" && row != nil && !row.destroyed() && !strings.HasPrefix(r.Op, "volume_") {
			ok = json.Unmarshal(r.Args, &opArgs{}) == nil
		}
		if kind == "v" && ok {
			ok = json.Unmarshal(r.Args, &volumeArgs{}) == nil
		}
		if !ok {
			s.engine.Park(r.Key, "operation \""+r.Op+"\" of "+r.Key+" has no such machine or volume to work on; the journal is damaged, so restore it from a backup")
		}
	})
}

// occupies says whether a machine takes its whole room: while it runs, is about to, or waits for its restart.
func (s *Supervisor) occupies(r *row) bool {
	if r.Life != nil || !r.RestartAt.IsZero() {
		return true
	}
	switch run := s.engine.Active(machineKey(r.Machine.ID)); {
	case run == nil:
		return false
	default:
		return launches(run)
	}
}

// Audit holds the runtime's facts, as they were at asked, against what should be, as Recover does: nothing that drifted
// apart stays so. Machines that changed since are left for the next audit.
func (s *Supervisor) Audit(now, asked time.Time, lives []Life) Out {
	s.open(now)
	s.reconcile(lives, asked)
	return s.close()
}

func (s *Supervisor) reconcile(lives []Life, asked time.Time) {
	seen := byMachine(lives)
	for _, l := range lives {
		r := s.rows[l.Machine]
		switch {
		case r != nil && r.changed.After(asked):
		case r == nil || r.destroyed():
			s.drift++
			s.effect(machineKey(l.Machine), EffRemove, Target{ID: l.Machine})
		case s.engine.Active(machineKey(l.Machine)) != nil || !l.Running:
			// its run asks the runtime itself; an exit comes by Exited
		case r.Life == nil || r.Life.Attempt != l.Attempt:
			s.drift++
			s.effect(machineKey(l.Machine), EffKill, Target{ID: l.Machine, Attempt: l.Attempt})
		default:
			r.Life.Paused, r.Life.PID = l.Paused, l.PID
		}
	}
	for _, id := range slices.Sorted(maps.Keys(s.rows)) {
		r := s.rows[id]
		if s.strays[id] && !seen[id].Running {
			s.strayEnded(r)
		}
		if r.Life == nil || r.destroyed() || r.changed.After(asked) {
			continue
		}
		if l, ok := seen[id]; !ok || l.Attempt != r.Life.Attempt || (!l.Running && !l.HasExit) {
			s.drift++
			s.exited(r, Exit{Machine: id, Attempt: r.Life.Attempt, Code: -1, Lost: true, At: s.now})
		}
	}
}

// Effected takes the result of an effect.
func (s *Supervisor) Effected(now time.Time, res fsm.Result) Out {
	s.open(now)
	s.engine.Result(now, res, &s.out.Out)
	return s.close()
}

// Exited takes an exit from the runtime. It is acknowledged by an effect once it is durable; hearing it twice is harmless.
func (s *Supervisor) Exited(now time.Time, ex Exit) Out {
	s.open(now)
	if r := s.rows[ex.Machine]; r != nil && !r.destroyed() {
		s.exited(r, ex)
	} else {
		s.ack(ex)
	}
	return s.close()
}

// Tick acts on everything that has come due.
func (s *Supervisor) Tick(now time.Time) Out {
	s.open(now)
	s.engine.Tick(now, &s.out.Out)
	for _, id := range slices.Sorted(maps.Keys(s.timed)) {
		s.timers(s.rows[id])
	}
	s.purge()
	s.meterDue()
	s.endCordon()
	return s.close()
}

// Next gives when Tick has something to do; zero when nothing waits.
func (s *Supervisor) Next() time.Time {
	first := s.engine.Next()
	sooner := func(t time.Time) {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	sooner(s.seller.NextExpiry())
	sooner(s.purse.next)
	sooner(s.cordonEnds())
	for id := range s.timed {
		if r := s.rows[id]; s.engine.Active(machineKey(id)) == nil {
			sooner(r.RestartAt)
			sooner(r.ReturnAt)
			sooner(r.ScheduleAt)
		}
	}
	if len(s.gone) > 0 {
		sooner(s.rows[s.gone[0]].DestroyedAt.Add(KeepDestroyed))
	}
	return first
}

// Machine gives a machine as it stands, or nil. App must match.
func (s *Supervisor) Machine(app, id string) *machine.Machine {
	if r := s.rows[id]; r != nil && r.Machine.App == app {
		return r.public()
	}
	return nil
}

// Versions gives the configs a machine has had, newest first, the present one among them.
func (s *Supervisor) Versions(id string) []machine.Version {
	r := s.rows[id]
	if r == nil {
		return nil
	}
	out := []machine.Version{{Version: r.Machine.InstanceID, CreatedAt: r.Machine.UpdatedAt, Config: *r.Machine.Config}}
	for i := len(r.versions) - 1; i >= 0; i-- {
		out = append(out, r.versions[i])
	}
	return out
}

// Ask, Hold and Release are the seller's; see market.Seller.
func (s *Supervisor) Ask(now time.Time, r placement.Request) market.Quote {
	return s.seller.Ask(now, r)
}

// Hold reserves room until it expires; see market.Seller.
func (s *Supervisor) Hold(now time.Time, r placement.Request, token string, ttl time.Duration) (time.Time, error) {
	return s.seller.Hold(now, r, token, ttl)
}

// Release ends a hold; see market.Seller.
func (s *Supervisor) Release(now time.Time, token string) { s.seller.Release(now, token) }

// Record gives the worker's record at now.
func (s *Supervisor) Record(now time.Time) cluster.Record { return s.seller.Record(now) }

// Check panics when an invariant of the worker's state is broken.
func (s *Supervisor) Check() {
	s.seller.Check()
	for id, r := range s.rows {
		if r.destroyed() && r.Life != nil {
			panic("lifecycle: machine " + id + " is destroyed and lives")
		}
	}
}

// open begins the Out of one input.
func (s *Supervisor) open(now time.Time) {
	s.now, s.out = now, Out{}
}

// close follows up on the runs that ended, and returns the Out.
func (s *Supervisor) close() Out {
	s.followUp()
	for _, id := range slices.Sorted(maps.Keys(s.dirty)) {
		if r := s.rows[id]; r != nil {
			s.seller.Describe(id, s.tenant(r))
			r.devices(s.seller.Devices(id))
			r.changed = s.now
			s.out.Records = append(s.out.Records, r.record())
			if s.timed[id] = r.timed(); !s.timed[id] {
				delete(s.timed, id)
			}
		}
		s.count(id)
		s.out.Changed = append(s.out.Changed, id)
	}
	s.settleMeter()
	for _, f := range s.out.Finished {
		if run := s.engine.Active(f.Key); run == nil || !launches(run) {
			delete(s.launching, f.Key)
		}
	}
	s.seller.SetStarting(len(s.launching))
	clear(s.dirty)
	out := s.out
	s.out = Out{}
	return out
}

// followUp answers for the runs that ended, and lets those go on whose room is there, which may end others.
func (s *Supervisor) followUp() {
	for i, ready := 0, s.seller.Ready(); i < len(s.out.Finished) || len(ready) > 0; ready = s.seller.Ready() { // grows while it is read
		for _, id := range ready {
			s.dirty[id] = true
			s.out.Sync = true // who has left has left for good before anybody takes the place
			s.engine.Notify(s.now, machineKey(id), &s.out.Out)
		}
		for ; i < len(s.out.Finished); i++ {
			s.finished(s.out.Finished[i])
		}
	}
}

// finished answers those who waited for a run, and lets the next command have its turn.
func (s *Supervisor) finished(f fsm.Finished) {
	id, isMachine := strings.CutPrefix(f.Key, "m/")
	var others []waiter // of the operation that follows on one that was aborted
	for _, w := range s.waiting[f.Key] {
		if w.run != f.ID {
			others = append(others, w)
			continue
		}
		rep := Reply{Ticket: w.ticket, Err: f.Err}
		if isMachine {
			rep.Outcome = Outcome{Machine: s.rows[id].public(), Previous: w.previous}
		} else {
			rep.Volume = s.volumes[strings.TrimPrefix(f.Key, "v/")].public()
		}
		s.out.Replies = append(s.out.Replies, rep)
	}
	if s.waiting[f.Key] = others; others == nil {
		delete(s.waiting, f.Key)
	}
	for s.engine.Active(f.Key) == nil && len(s.pending[f.Key]) > 0 {
		p := s.pending[f.Key][0]
		s.pending[f.Key] = s.pending[f.Key][1:]
		s.do(p.ticket, p.c)
	}
	if len(s.pending[f.Key]) == 0 {
		delete(s.pending, f.Key)
	}
}

func (s *Supervisor) reply(ticket uint64, r *row, previous machine.State, err error) {
	rep := Reply{Ticket: ticket, Err: err}
	if r != nil {
		rep.Outcome = Outcome{Machine: r.public(), Previous: previous}
	}
	s.out.Replies = append(s.out.Replies, rep)
}

// effect asks for something that belongs to no run and whose result nobody waits for.
func (s *Supervisor) effect(key, kind string, args any) {
	s.out.Effects = append(s.out.Effects, fsm.Effect{Key: key, Kind: kind, Args: args, Timeout: 30 * time.Second})
}

// ack lets the runtime forget an exit once it is durable here. Until then a crash only means that it is told again, so
// an exit that nobody asked for needs no commit of its own.
func (s *Supervisor) ack(ex Exit) {
	s.out.Effects = append(s.out.Effects, fsm.Effect{Key: machineKey(ex.Machine), Kind: EffAck, Durable: true,
		Args: Target{ID: ex.Machine, Attempt: ex.Attempt}, Timeout: 30 * time.Second})
}

func machineKey(id string) string { return "m/" + id }

// MachineOf gives a machine by its id alone, or nil: for the owner's own view, never for a caller who names an app.
func (s *Supervisor) MachineOf(id string) *machine.Machine {
	if r := s.rows[id]; r != nil {
		return r.public()
	}
	return nil
}
