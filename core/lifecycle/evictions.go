package lifecycle

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/internal/backoff"
	"github.com/soukhq/souk/machine"
)

// MetaCheckpoint is the key of a machine's metadata that says until when its work is not lost by its eviction: RFC 3339
// or seconds since 1970. What its gang says of that: machine.MetadataGang.
const MetaCheckpoint = "souk.checkpoint_at"

// Times of the way back of a machine that was evicted: it tries to start again when there is room, as its restart
// policy would have it, first after returnBase, then each time twice as long up to returnCap.
const (
	returnBase = 10 * time.Second
	returnCap  = 5 * time.Minute
)

// EvictionBucket keeps the evictions of each app on this worker. key: app; value: []machine.Preemption, oldest first.
const EvictionBucket = "eviction"

// evictions make room for a machine by ending those that rank lower, and let these come back.
type evictions struct {
	*machines
	tasks *tasks
	count uint64 // since the worker started
}

func (s *evictions) restoreRecords(d Decoded) error {
	rec := d.rec
	var list []machine.Preemption
	if err := decodeRecord(rec, &list, "the evictions of app "+rec.Key); err != nil {
		return err
	}
	s.seller.RestoreEvictions(rec.Key, list)
	return nil
}

// claimByEviction makes room for a machine by eviction, where it does not fit and consent has been given. It returns
// whom it evicts; the ledger has the claim already, and none of it is undone.
func (s *evictions) claimByEviction(req placement.Request, hold string) ([]machine.Preemption, error) {
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
		s.putRecord(EvictionBucket, p.App, s.seller.Evictions(p.App))
		s.out.Sync = true // with the operations below, in one commit: a budget that is spent stays spent
	}
	return list, nil
}

// evictAll ends those who leave for a machine, whose own operation waits already.
func (s *evictions) evictAll(list []machine.Preemption) {
	for _, p := range list {
		if s.tasks.evictTask(p) {
			s.count++
			continue
		}
		if s.isBusy(p.Machine) {
			continue // the seller was told who is busy; whoever waits for it gives up in time
		}
		s.count++
		s.evictOne(p)
	}
}

func (s *evictions) evictOne(p machine.Preemption) {
	v := s.rows[p.Machine]
	a := evictionArgs(v)
	a.For = p.By
	v.Machine.Preempted = &p
	v.Evictions++
	v.RestartAt, v.ReturnAt, v.Returns = time.Time{}, time.Time{}, 0
	v.Machine.State = machine.Stopping
	s.noteEvent(v, machine.Event{Type: "preempt", Status: string(machine.Stopping), Source: machine.SourceFlyd,
		Message: p.String(),
		Request: &machine.EventRequest{Preemptions: []machine.Preemption{p}}})
	if err := s.beginOperation(v, opPreempt, a); err != nil {
		s.noteRefused(v, "it does not make room", err)
	}
}

// evictionArgs returns the arguments of an eviction: the machine's own signal, else SIGTERM, and its own time to end.
func evictionArgs(r *row) opArgs {
	c := Command{Verb: Stop, Source: machine.SourceFlyd}
	if sc := r.Machine.Config.StopConfig; sc == nil || sc.Signal == nil {
		c.Signal = "SIGTERM"
	}
	a, _ := argsFor(r, c) // of a command that names nothing wrong: it cannot fail
	return a
}

// graceOf returns the longest time that those who leave may take to end by themselves.
func (s *evictions) graceOf(list []machine.Preemption) (grace time.Duration) {
	for _, p := range list {
		if r := s.rows[p.Machine]; r != nil {
			a := evictionArgs(r)
			grace = max(grace, a.Drain+a.Grace)
		} else {
			grace = max(grace, TaskGrace)
		}
	}
	return grace
}

// noteEvict says in the beneficiary's events for whose room it waits.
func (s *evictions) noteEvict(r *row, list []machine.Preemption) {
	names := make([]string, 0, 4)
	for _, p := range list[:min(len(list), 4)] {
		names = append(names, fmt.Sprintf("%s of app %s (rank %d < %d)", p.Machine, p.App, p.Rank, p.ByRank))
	}
	if n := len(list) - len(names); n > 0 {
		names = append(names, fmt.Sprintf("%d more", n))
	}
	s.noteEvent(r, machine.Event{Type: "evict", Status: string(r.Machine.State), Source: machine.SourceFlyd,
		Message: "evicts " + strings.Join(names, ", ") + ", rule " + machine.RuleLowerRank,
		Request: &machine.EventRequest{Preemptions: list}})
}

// launchEvicting begins an operation that launches when those have gone who leave for the machine.
func (s *evictions) launchEvicting(r *row, op string, a opArgs, state machine.State, list []machine.Preemption) error {
	a.Grace = s.graceOf(list)
	s.noteEvict(r, list)
	if err := s.beginLaunch(r, op, a, state); err != nil {
		return err
	}
	s.evictAll(list)
	return nil
}

// occupyOrEvict gives a machine that is to start its room. Where there is none and it may evict, an operation has begun
// when this returns, which waits and then starts it.
func (s *evictions) occupyOrEvict(r *row, op string, a opArgs) error {
	if !r.schedulingTerms().MayPreempt() {
		return s.seller.SetUp(s.now, r.Machine.ID, true)
	}
	list, err := s.claimByEviction(placement.Request{App: r.Machine.App, Machine: r.Machine.ID, Resources: r.Want,
		Start:   true,
		GPUKind: r.ledgerTenant().GPUKind, Scheduling: r.schedulingTerms()}, "")
	if err != nil || len(list) == 0 {
		return err
	}
	return s.launchEvicting(r, op, a, machine.Starting, list)
}

// afterEviction follows on the end of a machine's eviction. The machine is stopped and its restart policy holds its
// peace: to start again is a new bid. Where its policy would restart it, it bids by itself, later. One whose eviction
// was cancelled, too late for it to live on, bids at once: its room is its own again.
func (s *evictions) afterEviction(r *row, cancelled bool) {
	s.seller.Stay(r.Machine.ID)
	if r.Life != nil {
		s.killAgain(r)
		return
	}
	r.Restarts = 0
	if policy, _ := r.restartPolicy(); policy != "no" {
		r.ReturnAt = s.now.Add(returnBase)
		if cancelled {
			r.ReturnAt = s.now
		}
	}
}

// killAgain kills a machine whose room another still waits for, and that would not end: it goes on until the one that
// waits gives up. While one waits, each that leaves for it is on its way out, so that a crash finds the claim as it
// was.
func (s *evictions) killAgain(r *row) {
	if s.seller.Leaving(r.Machine.ID) == "" || r.Machine.Preempted == nil {
		r.Machine.Preempted = nil // it was not evicted after all
		return
	}
	r.Machine.State = machine.Stopping
	if err := s.beginOperation(r, opPreempt, opArgs{Source: machine.SourceFlyd, Kill: true,
		For: r.Machine.Preempted.By}); err != nil {
		s.noteRefused(r, "it does not make room", err)
	}
}

// comeBack starts a machine again that was evicted, if there is room; else it tries again later. It evicts nobody.
func (s *evictions) comeBack(r *row) {
	r.ReturnAt = time.Time{}
	s.dirty[r.Machine.ID] = true
	if r.Life != nil {
		return
	}
	s.runUnpaid(r)
	if s.seller.SetUp(s.now, r.Machine.ID, true) != nil {
		r.ReturnAt = s.now.Add(backoff.Doubling{Base: returnBase, Most: returnCap}.After(r.Returns))
		r.Returns++
		return
	}
	if err := s.beginLaunch(r, opRelaunch, opArgs{Source: machine.SourceFlyd}, machine.Restarting); err != nil {
		s.noteRefused(r, "it does not start again", err)
	}
}

// cancelWait ends the wait of a machine whose operation has ended before there was room.
func (s *evictions) cancelWait(r *row) {
	id := r.Machine.ID
	if !s.seller.Waiting(id) {
		return
	}
	if err := s.seller.SetUp(s.now, id, false); err != nil {
		panic("lifecycle: a machine cannot stop waiting: " + err.Error())
	}
	s.cancelClaim(id)
}

// cancelClaim lets those go on living who leave for a machine that no longer wants their room and have not been told to
// end. Who has been told ends, and ended sees to the rest.
func (s *evictions) cancelClaim(by string) {
	var keys []string
	s.engine.Each(func(r *fsm.Run) {
		if r.Op == opPreempt && argsOf(r).For == by && r.Step() == "thaw" {
			keys = append(keys, r.Key)
		}
	})
	slices.Sort(keys)
	for _, key := range keys {
		r := s.rows[strings.TrimPrefix(key, "m/")]
		s.abortRun(key, "machine "+by+" no longer wants its room")
		r.Machine.Preempted, r.Machine.State = nil, r.settledState()
		s.settleLedger(r)
		s.writeEvent(r, "spared", r.Machine.State, machine.SourceFlyd, "machine "+by+" no longer wants its room")
	}
}

// resumeClaims brings the claims back whose machines still wait: those leave for one that were evicted for it and are
// still up.
func (s *evictions) resumeClaims() {
	leaving, again := s.tasks.leavingTasks()
	for id, r := range s.rows {
		if p := r.Machine.Preempted; p != nil {
			leaving[p.By] = append(leaving[p.By], id)
		}
	}
	var waits []string
	s.engine.Each(func(r *fsm.Run) {
		evicting := []string{opCreateEvict, opCreateImageEvict, opStartEvict, opWakeEvict}
		if slices.Contains(evicting, r.Op) && r.Step() == "room" && !r.Undoing {
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
