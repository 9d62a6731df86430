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

// MetaCheckpoint is the metadata key under which a machine says until when an eviction does not lose its work: RFC
// 3339 or seconds since 1970. For machines that are worth nothing without each other see machine.MetadataGang.
const MetaCheckpoint = "souk.checkpoint_at"

// Pauses before an evicted machine tries to start again, if its restart policy restarts it: first returnBase, then
// twice as long each time, up to returnCap.
const (
	returnBase = 10 * time.Second
	returnCap  = 5 * time.Minute
)

// EvictionBucket keeps the evictions of each app on this worker. key: app; value: []machine.Preemption, oldest first.
const EvictionBucket = "eviction"

// evictions make room for a machine by ending machines and tasks of lower rank, and start those again later.
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

// claimByEviction makes room for a machine by eviction if it does not fit and has consent. It returns the machines and
// tasks to evict; the ledger already holds the claim, which is not undone.
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
		s.out.Sync = true // in one commit with the operations below, so that a spent budget stays spent
	}
	return list, nil
}

// evictAll evicts the listed machines and tasks for a machine whose own operation already waits.
func (s *evictions) evictAll(list []machine.Preemption) {
	for _, p := range list {
		if s.tasks.evictTask(p) {
			s.count++
			continue
		}
		if s.isBusy(p.Machine) {
			continue // the seller skips busy machines; the waiting operation gives up in time
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

// evictionArgs returns the arguments of an eviction: the machine's own stop signal, else SIGTERM, and its own grace.
func evictionArgs(r *row) opArgs {
	c := Command{Verb: Stop, Source: machine.SourceFlyd}
	if sc := r.Machine.Config.StopConfig; sc == nil || sc.Signal == nil {
		c.Signal = "SIGTERM"
	}
	a, _ := argsFor(r, c) // cannot fail: the command names nothing invalid
	return a
}

// graceOf returns the longest grace among the machines and tasks to evict.
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

// noteEvict adds an event to the beneficiary about the evictions it waits for.
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

// launchEvicting begins an operation that launches the machine once the listed machines and tasks have ended.
func (s *evictions) launchEvicting(r *row, op string, a opArgs, state machine.State, list []machine.Preemption) error {
	a.Grace = s.graceOf(list)
	s.noteEvict(r, list)
	if err := s.beginLaunch(r, op, a, state); err != nil {
		return err
	}
	s.evictAll(list)
	return nil
}

// occupyOrEvict takes the room of a machine that is to start. If there is none and the machine may evict, it begins an
// operation that waits for the room and then starts the machine.
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

// afterEviction follows the end of a machine's eviction. The machine is stopped, and its restart policy does not
// apply: to start again, it needs room like a new machine. If the policy would restart it, it tries later by itself,
// or at once if the eviction was cancelled too late to spare it.
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

// killAgain kills a machine that has survived its eviction while another still waits for its room; it repeats until
// the waiting machine gives up. Meanwhile an eviction is always in progress, so that a crash finds the claim
// unchanged.
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

// comeBack starts an evicted machine again if there is room; otherwise it tries again later. It evicts nothing.
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

// cancelClaim spares the machines that were to be evicted for a machine that no longer needs their room, unless they
// have been signalled already. Those still end, and afterEviction handles them.
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

// resumeClaims restores the claims of machines that still wait, at start-up: on the machines that were being evicted
// for them and are still up.
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
