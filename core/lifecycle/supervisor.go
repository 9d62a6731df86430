package lifecycle

import (
	"math/rand/v2"
	"strings"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Buckets of a worker's journal besides the engine's. Other buckets are declared with their subjects.
const (
	MachineBucket = "machine" // key: machine id; value: row
	VersionBucket = "version" // key: machine id, "|", instance id; value: machine.Version
	LeaseBucket   = "lease"   // key: machine id; value: machine.Lease
	VolumeBucket  = "volume"  // key: volume id; value: volumeRow
)

// Supervisor is one worker's whole state, composed of its subjects. It is not safe for concurrent use.
//
// Each input goes to one subject, which may use the subjects it holds; none holds a subject that is listed above it:
//
//	commands   verbs and grants; waiters: who is answered when an operation ends
//	lives      exits, the restart policy, schedules, audits, parked operations
//	evictions  room made by ending machines and tasks of lower rank, and their way back
//	machines   the rows, and the one way to begin an operation on one
//	volumes, tasks, leases, terms, accounts, cordon
//	core       ledger, engine, and the input being taken
type Supervisor struct {
	*core
	accounts  *accounts
	cordon    *cordon
	leases    *leases
	terms     *terms
	volumes   *volumes
	tasks     *tasks
	machines  *machines
	evictions *evictions
	lives     *lives
	waiters   *waiters
	commands  *commands

	restorers map[string]restorer // by bucket
	steppers  []stepper
	recorders []recorder
}

// A restorer restores its subject from the records it has written to the journal.
type restorer interface {
	restoreRecords(d Decoded) error
}

// A stepper acts by itself at a due time.
type stepper interface {
	nextStep() time.Time // when stepDue is next due; zero if nothing waits
	stepDue()
}

// A recorder writes and publishes what an input has changed, at the end of the input.
type recorder interface {
	writeChanges()
}

// New makes the supervisor of a worker without machines. rec names the worker and its capacity.
func New(rec cluster.Record, rng *rand.Rand) *Supervisor {
	c := &core{seller: market.NewSeller(rec), rand: rng}
	s := &Supervisor{core: c, accounts: newAccounts(c), cordon: &cordon{core: c}, leases: newLeases(c)}
	s.volumes = newVolumes(c, s.accounts)
	s.tasks = newTasks(c, s.accounts)
	s.machines = newMachines(c, s.volumes, s.leases, s.accounts)
	s.terms = newTerms(c, s.machines.appsHere)
	s.evictions = &evictions{machines: s.machines, tasks: s.tasks}
	s.lives = &lives{machines: s.machines, evictions: s.evictions, strays: map[string]bool{}}
	s.waiters = &waiters{core: c, byKey: map[string][]waiter{}}
	s.commands = &commands{machines: s.machines, evictions: s.evictions, waiters: s.waiters,
		terms: s.terms, pending: map[string][]pendingCommand{}}

	s.accounts.payers = []payers{s.machines, s.tasks, s.volumes}
	s.restorers = map[string]restorer{
		MachineBucket: s.machines, VersionBucket: s.machines, LeaseBucket: s.leases, VolumeBucket: s.volumes,
		EvictionBucket: s.evictions, MeterBucket: s.accounts, CordonBucket: s.cordon, TermBucket: s.terms,
		TaskDevicesBucket: s.tasks,
	}
	s.steppers = []stepper{s.lives, s.machines, s.accounts, s.cordon}
	s.recorders = []recorder{s.machines, s.accounts}
	c.engine = fsm.NewEngine(s, rng, operationDefinitions()...)
	c.seller.Busy(s.machines.isBusy)
	c.seller.Funding(s.accounts.fundsFor)
	return s
}

// Decoded is a record of the journal that was decoded.
type Decoded struct {
	rec fsm.Record

	// the row or the version, if the record is one, or why it cannot be read; other records are decoded when they are
	// restored
	row     *row
	version machine.Version
	err     error
}

// Decode decodes a record of the journal for Restore. It is most of the work of a start and independent of other
// records, so several may be decoded at once.
func Decode(rec fsm.Record) Decoded {
	d := Decoded{rec: rec}
	switch rec.Bucket {
	case MachineBucket:
		d.row, d.err = decodeRow(rec)
	case VersionBucket:
		d.err = decodeRecord(rec, &d.version, "version "+rec.Key)
	}
	return d
}

// Key returns the key of the decoded record.
func (d Decoded) Key() string { return d.rec.Key }

// Restore takes back one record of the journal; call it for each before Recover. An error of kind Internal with code
// "replay" parks one machine and is otherwise harmless; any other means the journal cannot be trusted.
func (s *Supervisor) Restore(d Decoded) error {
	rec := d.rec
	if rec.Bucket == fsm.RunBucket || rec.Bucket == fsm.HistoryBucket {
		return s.engine.Restore(rec)
	}
	if r := s.restorers[rec.Bucket]; r != nil {
		return r.restoreRecords(d)
	}
	return fault.New(fault.Internal, fault.CodeJournalDamaged,
		"the journal has a bucket %q that this souk does not know; it was written by a newer souk, so run that one",
		rec.Bucket)
}

// Recover reconciles the restored state with the runtime's: runs continue, lives that still run are adopted, lives
// that ended unnoticed are ended, and anything that the journal lacks is removed.
//
// rebooted says that the host has booted since. The runtime's notes of a recent start may then be lost with the page
// cache, so an unfinished start that it does not know counts as a life that has ended. The journal's record of each
// machine's newest attempt may be lost, too (see fsm.Effect.Ahead), so one attempt number is skipped.
func (s *Supervisor) Recover(now time.Time, list []Life, rebooted bool) Out {
	s.openOut(now)
	seen := byMachine(list)
	s.machines.dropRowless()
	s.tasks.forgetUnknown()
	s.lives.parkMisfits()
	if rebooted {
		s.lives.giveUpStarts(seen)
	}
	s.machines.resumeAll(func(r *row) bool {
		s.lives.adoptLaunched(r, seen[r.Machine.ID])
		return s.machines.occupiesWhole(r) || s.lives.keepStray(r, seen[r.Machine.ID])
	})
	if rebooted {
		s.lives.passOver()
	}
	s.evictions.resumeClaims()
	s.accounts.Begin(now)
	s.machines.resumeMeter(seen)
	s.volumes.resumeVolumes()
	s.engine.Resume(now, &s.out.Out)
	s.lives.reconcileFacts(seen, now)
	s.lives.settleStates()
	return s.closeOut()
}

// Effected handles the result of an effect.
func (s *Supervisor) Effected(now time.Time, res fsm.Result) Out {
	s.openOut(now)
	s.engine.Result(now, res, &s.out.Out)
	return s.closeOut()
}

// Tick acts on everything that has come due.
func (s *Supervisor) Tick(now time.Time) Out {
	s.openOut(now)
	s.engine.Tick(now, &s.out.Out)
	for _, p := range s.steppers {
		p.stepDue()
	}
	return s.closeOut()
}

// Missed reports that no effect could be carried out for the last d, because souk did not run or its runtime did not
// answer. Deadlines move by d.
func (s *Supervisor) Missed(now time.Time, d time.Duration) Out {
	s.openOut(now)
	s.engine.Missed(now, d)
	return s.closeOut()
}

// Hasten makes the deadlines of operations shorter, for tests that cannot wait for them.
func (s *Supervisor) Hasten(by int) { s.engine.Hasten(by) }

// Next returns when Tick has something to do; zero when nothing waits.
func (s *Supervisor) Next() time.Time {
	first := earlierTime(s.engine.Next(), s.seller.NextExpiry())
	for _, p := range s.steppers {
		first = earlierTime(first, p.nextStep())
	}
	return first
}

// closeOut handles the runs that have ended, writes all changes, and returns the Out.
func (s *Supervisor) closeOut() Out {
	s.followUp()
	s.commands.noteRetries()
	for _, r := range s.recorders {
		r.writeChanges()
	}
	out := s.out
	s.out = Out{}
	return out
}

// followUp answers the waiters of runs that have ended, and continues operations whose room is now free, which may end
// more runs.
func (s *Supervisor) followUp() {
	// both lists may grow meanwhile
	for i, ready := 0, s.seller.Ready(); i < len(s.out.Finished) || len(ready) > 0; ready = s.seller.Ready() {
		for _, id := range ready {
			s.machines.dirty[id] = true
			s.out.Sync = true // the evicted are durably gone before others take their room
			s.notifyRun(machineKey(id))
		}
		for ; i < len(s.out.Finished); i++ {
			s.answerFinished(s.out.Finished[i])
		}
	}
}

// answerFinished answers the waiters of a run, and starts the machine's next queued command.
func (s *Supervisor) answerFinished(f fsm.Finished) {
	if id, isMachine := strings.CutPrefix(f.Key, "m/"); isMachine {
		row := s.machines.rows[id]
		if row != nil { // nil: it has been forgotten
			row.retry = nil
		}
		if next := s.runOf(id); next != nil && next.Op == opRevert && f.Op == opUpdate {
			s.waiters.carryOver(f, next)
			return
		}
		s.waiters.answerWaiters(f, func(r *Reply) {
			r.Outcome.Machine, r.Err = row.publicMachine(),
				row.errorWithOutcome(r.Err)
		})
		if row != nil {
			row.ending = ""
		}
		s.commands.doPending(id)
		return
	}
	v := s.volumes.rows[strings.TrimPrefix(f.Key, "v/")]
	s.waiters.answerWaiters(f, func(r *Reply) { r.Volume = v.publicVolume() })
	s.volumes.forgetVolume(v)
}
