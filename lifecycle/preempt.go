package lifecycle

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fsm"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/market"
	"github.com/soukhq/souk/placement"
)

// Operations of preemption. A machine that waits for room is made or started by an operation of its own, whose first step
// is the wait; who leaves for it is stopped by another, of which no user's command is told apart from a stop.
const (
	opCreateEvict = "create_evict"
	opStartEvict  = "start_evict"
	opPreempt     = "preempt"
)

// Keys of a machine's metadata that say what its eviction would cost.
const (
	MetaCheckpoint = "souk.checkpoint_at" // RFC 3339 or seconds since 1970: its work up to here is not lost
	MetaGang       = "souk.gang"          // machines of an app with the same value are worth nothing without each other
)

// Times of the way back of a machine that was evicted: it tries to start again when there is room, as its restart policy
// would have it, first after returnBase, then each time twice as long up to returnCap.
const (
	returnBase = 10 * time.Second
	returnCap  = 5 * time.Minute
)

// roomMargin is what a wait for room may take beyond the longest grace of those who leave: to thaw, to signal, to kill.
const roomMargin = 80 * time.Second

// EvictionBucket keeps the evictions of each app on this worker. key: app; value: []machine.Preemption, oldest first.
const EvictionBucket = "eviction"

func preemptDefinitions() []*def {
	return []*def{
		{Op: opCreateEvict, Steps: []step{roomStep(), createStep()}, Finish: finishCreate},
		{Op: opStartEvict, Steps: []step{roomStep(), launchStep()}, Finish: finish},
		{Op: opPreempt, Steps: stopSteps(), Finish: finishPreempt},
	}
}

// roomStep waits for the room of those who leave.
func roomStep() step {
	return step{Name: "room", Deadline: roomMargin,
		DeadlineOf: func(r *fsm.Run) time.Duration { return roomMargin + argsOf(r).Grace },
		Do: func(s *Supervisor, _ time.Time, r *fsm.Run) *fsm.Effect {
			if s.seller.Waiting(strings.TrimPrefix(r.Key, "m/")) {
				return &fsm.Effect{Kind: fsm.Await}
			}
			return nil
		}}
}

// tenant is what the ledger is to know of a machine.
func (s *Supervisor) tenant(r *row) market.Tenant {
	var sc machine.Scheduling
	if r.Machine.Scheduling != nil {
		sc = *r.Machine.Scheduling
	}
	t := market.Tenant{Rank: sc.Rank(), Budget: sc.Budget(), Lost: r.Evictions, Gang: r.Machine.Config.Metadata[MetaGang], Evicted: r.Machine.Preempted != nil}
	if g := r.Machine.Config.Guest; g != nil {
		t.GPUKind = g.GPUKind
	}
	if r.Life != nil {
		t.Since = r.Life.StartedAt
		if at := checkpoint(r.Machine.Config.Metadata[MetaCheckpoint]); at.After(t.Since) {
			t.Since = at
		}
	}
	return t
}

// checkpoint reads a time; zero for what is none.
func checkpoint(s string) time.Time {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil && n > 0 && n < 1<<40 {
		return time.Unix(n, 0)
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return time.Time{}
	}
	return t
}

// devicesOf gives the GPUs a machine may use. An update that shrinks gives back the others when it has ended.
func (s *Supervisor) devicesOf(r *row) []int {
	var out []int
	for _, d := range s.seller.Devices(r.Machine.ID) {
		if int64(len(out)) < max(1, r.Want.GPU/1000) {
			out = append(out, d.Device)
		}
	}
	return out
}

// occupied says whether something is being done to a machine, so that it cannot be evicted now.
func (s *Supervisor) occupied(id string) bool {
	return s.engine.Free(machineKey(id)) != nil
}

// claim makes room for a machine by eviction, where it does not fit and consent has been given. It answers whom it evicts;
// the ledger has the claim already, and none of it is undone.
func (s *Supervisor) claim(req placement.Request, hold string) ([]machine.Preemption, error) {
	list, err := s.seller.Claim(s.now, req, hold)
	if err != nil {
		return nil, err
	}
	apps := map[string]bool{}
	for _, p := range list {
		if apps[p.App] {
			continue
		}
		apps[p.App] = true
		b, err := json.Marshal(s.seller.Evictions(p.App))
		if err != nil {
			panic("lifecycle: evictions do not encode: " + err.Error()) // plain data: cannot happen
		}
		s.out.Records = append(s.out.Records, fsm.Record{Bucket: EvictionBucket, Key: p.App, Value: b})
		s.out.Sync = true // with the operations below, in one commit: a budget that is spent stays spent
	}
	return list, nil
}

// evict stops those who leave for a machine, whose own operation waits already.
func (s *Supervisor) evict(list []machine.Preemption) {
	for _, p := range list {
		if s.evictTask(p) {
			continue
		}
		v := s.rows[p.Machine]
		if s.engine.Free(machineKey(p.Machine)) != nil {
			continue // the seller was told who is busy; whoever waits for it gives up in time
		}
		a := s.graceful(v)
		a.For = p.By
		v.Machine.Preempted = &p
		v.Evictions++
		s.evicted++
		v.RestartAt, v.ReturnAt, v.Returns = time.Time{}, time.Time{}, 0
		v.Machine.State = machine.Stopping
		s.noteEvent(v, machine.Event{Type: "preempt", Status: string(machine.Stopping), Source: "flyd", Message: p.String(),
			Request: &machine.EventRequest{Preemptions: []machine.Preemption{p}}})
		if err := s.begin(v, opPreempt, a); err != nil {
			s.noteRefused(v, "it does not make room", err)
		}
	}
}

// graceful are the arguments of an eviction: the machine's own signal, else SIGTERM, and its own time to end.
func (s *Supervisor) graceful(r *row) opArgs {
	c := Command{Verb: Stop, Source: "flyd"}
	if sc := r.Machine.Config.StopConfig; sc == nil || sc.Signal == nil {
		c.Signal = "SIGTERM"
	}
	a, _ := s.args(r, c) // of a command that names nothing wrong: it cannot fail
	return a
}

// noteEvict says in the beneficiary's events for whose room it waits.
func (s *Supervisor) noteEvict(r *row, list []machine.Preemption) {
	names := make([]string, 0, 4)
	for _, p := range list[:min(len(list), 4)] {
		names = append(names, fmt.Sprintf("%s of app %s (rank %d < %d)", p.Machine, p.App, p.Rank, p.ByRank))
	}
	if n := len(list) - len(names); n > 0 {
		names = append(names, fmt.Sprintf("%d more", n))
	}
	s.noteEvent(r, machine.Event{Type: "evict", Status: string(r.Machine.State), Source: "flyd",
		Message: "evicts " + strings.Join(names, ", ") + ", rule " + machine.RuleLowerRank,
		Request: &machine.EventRequest{Preemptions: list}})
}

// graceOf gives the longest time that those who leave may take to end by themselves.
func (s *Supervisor) graceOf(list []machine.Preemption) (grace time.Duration) {
	for _, p := range list {
		if r := s.rows[p.Machine]; r != nil {
			grace = max(grace, s.graceful(r).Grace)
		} else {
			grace = max(grace, TaskGrace)
		}
	}
	return grace
}

// startEvicting is a start that may evict, where the worker has no room for it.
func (s *Supervisor) startEvicting(r *row, a opArgs) error {
	if r.Machine.Scheduling == nil || !r.Machine.Scheduling.MayPreempt() {
		return s.seller.SetUp(s.now, r.Machine.ID, true)
	}
	list, err := s.claim(placement.Request{App: r.Machine.App, Machine: r.Machine.ID, Resources: r.Want, Start: true,
		GPUKind: s.tenant(r).GPUKind, Scheduling: *r.Machine.Scheduling}, "")
	if err != nil || len(list) == 0 {
		return err
	}
	a.Grace = s.graceOf(list)
	s.noteEvict(r, list)
	if err := s.launch(r, opStartEvict, a, machine.Starting); err != nil {
		return err
	}
	s.evict(list)
	return nil
}

// finishPreempt ends an eviction. The machine is stopped and its restart policy holds its peace: to start again is a new
// bid. Where its policy would restart it, it bids by itself, later. One whose beneficiary has given up meanwhile bids at
// once: its room is its own again.
func finishPreempt(s *Supervisor, now time.Time, r *fsm.Run, err error) {
	row := s.rowOf(r)
	spared := s.seller.Leaving(row.Machine.ID) == ""
	finish(s, now, r, err)
	if fault.CodeOf(err) == "aborted" {
		return
	}
	s.seller.Stay(row.Machine.ID)
	if row.Life != nil {
		s.insist(row)
		return
	}
	row.Restarts = 0
	if policy, _ := row.policy(); policy != "no" {
		row.ReturnAt = now.Add(returnBase)
		if spared {
			row.ReturnAt = now
		}
	}
}

// insist kills a machine whose room another still waits for, and that would not end: it goes on until the one that waits
// gives up. While one waits, each that leaves for it is on its way out, so that a crash finds the claim as it was.
func (s *Supervisor) insist(r *row) {
	if s.seller.Leaving(r.Machine.ID) == "" || r.Machine.Preempted == nil {
		r.Machine.Preempted = nil // it was not evicted after all
		return
	}
	r.Machine.State = machine.Stopping
	if err := s.begin(r, opPreempt, opArgs{Source: "flyd", Kill: true, For: r.Machine.Preempted.By}); err != nil {
		s.noteRefused(r, "it does not make room", err)
	}
}

// comeBack starts a machine again that was evicted, if there is room; else it tries again later. It evicts nobody.
func (s *Supervisor) comeBack(r *row) {
	r.ReturnAt = time.Time{}
	s.dirty[r.Machine.ID] = true
	if r.Life != nil {
		return
	}
	s.borrow(r)
	if s.seller.SetUp(s.now, r.Machine.ID, true) != nil {
		r.ReturnAt = s.now.Add(min(returnCap, returnBase<<min(r.Returns, 8)))
		r.Returns++
		return
	}
	if err := s.launch(r, opRelaunch, opArgs{Source: "flyd"}, machine.Restarting); err != nil {
		s.noteRefused(r, "it does not start again", err)
	}
}

// spare lets those go on living who leave for a machine that no longer wants their room and have not been told to end.
// Who has been told ends, and finishPreempt sees to the rest.
func (s *Supervisor) spare(by string) {
	var keys []string
	s.engine.Each(func(r *fsm.Run) {
		if r.Op == opPreempt && argsOf(r).For == by && r.Step() == "thaw" {
			keys = append(keys, r.Key)
		}
	})
	slices.Sort(keys)
	for _, key := range keys {
		row := s.rows[strings.TrimPrefix(key, "m/")]
		s.engine.Abort(s.now, key, "machine "+by+" no longer wants its room", &s.out.Out)
		row.Machine.Preempted, row.Machine.State = nil, row.settle()
		s.room(row)
		s.note(row, "spared", row.Machine.State, "flyd", "machine "+by+" no longer wants its room")
	}
}

// restoreClaims brings the claims back whose machines still wait: those leave for one that were evicted for it and are
// still up.
func (s *Supervisor) restoreClaims() {
	leaving, again := s.leavingTasks()
	for id, r := range s.rows {
		if p := r.Machine.Preempted; p != nil {
			leaving[p.By] = append(leaving[p.By], id)
		}
	}
	var waits []string
	s.engine.Each(func(r *fsm.Run) {
		if (r.Op == opCreateEvict || r.Op == opStartEvict) && r.Step() == "room" && !r.Undoing {
			waits = append(waits, strings.TrimPrefix(r.Key, "m/"))
		}
	})
	slices.Sort(waits)
	for _, id := range waits {
		slices.Sort(leaving[id])
		s.seller.RestoreClaim(id, leaving[id])
	}
	for _, p := range again {
		if s.seller.Leaving(p.Machine) != "" {
			s.out.Evict = append(s.out.Evict, p)
		}
	}
}

func (s *Supervisor) restoreEvictions(rec fsm.Record) error {
	var list []machine.Preemption
	if err := json.Unmarshal(rec.Value, &list); err != nil {
		return fault.Wrap(err, fault.Internal, "journal_damaged", "the journal's record of the evictions of app %s does not read; restore the journal from a backup", rec.Key)
	}
	s.seller.RestoreEvictions(rec.Key, list)
	return nil
}
