package lifecycle

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/core/quota"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Bounds of what a worker keeps.
const (
	MaxVersions   = 10             // configs kept for each machine
	KeepDestroyed = 24 * time.Hour // destroyed machines stay readable this long
	MaxDestroyed  = 1000           // the most destroyed machines that are kept
)

// machines are the worker's machines, including destroyed ones that are still kept. This is their state, and the one
// way to begin an operation; lives, evictions and commands decide what to do with them.
type machines struct {
	*core
	volumes  *volumes
	leases   *leases
	accounts *accounts

	rows      map[string]*row
	names     map[fullName]string // to the ID of the machine with that name
	destroyed []string            // IDs, oldest first
	launching map[string]bool     // IDs of machines that an operation is starting
	timed     map[string]bool     // IDs of machines with a restart, a return or a schedule due later
	dirty     map[string]bool     // IDs of machines to be written with this input
}

// fullName is unique on a worker, except for destroyed machines.
type fullName struct{ app, name string }

func newMachines(c *core, v *volumes, l *leases, a *accounts) *machines {
	return &machines{core: c, volumes: v, leases: l, accounts: a, rows: map[string]*row{}, names: map[fullName]string{},
		launching: map[string]bool{}, timed: map[string]bool{}, dirty: map[string]bool{}}
}

func (s *machines) restoreRecords(d Decoded) error {
	if d.err != nil {
		return d.err
	}
	if d.row != nil {
		if old := s.rows[d.rec.Key]; old != nil {
			d.row.versions = old.versions
		}
		s.rows[d.rec.Key] = d.row
		return nil
	}
	id, _, _ := strings.Cut(d.rec.Key, "|")
	switch known := s.rows[id]; known {
	case nil:
		s.rows[id] = &row{versions: []machine.Version{d.version}}
	default:
		known.versions = append(known.versions, d.version)
	}
	return nil
}

// dropRowless drops versions whose machine is missing from the journal.
func (s *machines) dropRowless() {
	maps.DeleteFunc(s.rows, func(_ string, r *row) bool { return r.Machine.ID == "" })
}

// resumeAll adds the restored machines to the indices. up reports whether a machine has its room now.
func (s *machines) resumeAll(up func(*row) bool) {
	for _, id := range sortedKeys(s.rows) {
		r := s.rows[id]
		s.out.Changed = append(s.out.Changed, id) // so that the view gets it
		if r.hasTimers() {
			s.timed[id] = true
		}
		if r.isDestroyed() {
			s.destroyed = append(s.destroyed, id)
			continue
		}
		s.names[fullName{r.Machine.App, r.Machine.Name}] = id
		s.seller.Restore(id, r.Machine.App, r.ledgerFootprint(), up(r), r.Devices...)
		s.seller.Describe(id, r.ledgerTenant())
		for _, v := range r.mountedVolumes() {
			s.volumes.attachTo(v, id)
		}
	}
	slices.SortFunc(s.destroyed, func(a, b string) int { return s.rows[a].DestroyedAt.Compare(s.rows[b].DestroyedAt) })
	s.engine.Each(func(run *fsm.Run) {
		if r := s.rows[strings.TrimPrefix(run.Key, "m/")]; r != nil && run.Reason != "" {
			s.showRetries(r, run)
		}
		if startsAttempt(run) {
			s.launching[strings.TrimPrefix(run.Key, "m/")] = true
		}
	})
}

// resumeMeter resumes metering. A machine that ran on while souk was down is charged for that time; any other is not.
func (s *machines) resumeMeter(seen map[string]Life) {
	for _, id := range sortedKeys(s.rows) {
		r := s.rows[id]
		c := s.machineCharge(r)
		switch {
		case c.Namespace == "":
		case r.Life == nil || !seen[id].Running || seen[id].Attempt != r.Life.Attempt:
			s.accounts.Put(s.now, id, c)
		default:
			s.accounts.Resume(s.now, id, c, r.Life.StartedAt)
		}
	}
}

// writeChanges writes the records of the machines that this input has changed.
func (s *machines) writeChanges() {
	for _, id := range sortedKeys(s.dirty) {
		c := quota.Charge{}
		if r := s.rows[id]; r != nil {
			s.seller.Describe(id, r.ledgerTenant())
			r.setDevices(s.seller.Devices(id))
			r.changed = s.now
			s.putRecord(MachineBucket, id, r)
			if s.timed[id] = r.hasTimers(); !s.timed[id] {
				delete(s.timed, id)
			}
			c = s.machineCharge(r)
		}
		s.accounts.Put(s.now, id, c)
		s.out.Changed = append(s.out.Changed, id)
	}
	clear(s.dirty)
	for _, f := range s.out.Finished {
		if run := s.engine.Active(f.Key); run == nil || !startsAttempt(run) {
			delete(s.launching, strings.TrimPrefix(f.Key, "m/"))
		}
	}
	s.seller.SetStarting(len(s.launching))
}

// findMachine returns an app's machine unless it is destroyed.
func (s *machines) findMachine(app, id string) (*row, error) {
	r := s.rows[id]
	if r == nil || r.Machine.App != app || r.isDestroyed() {
		return nil, fault.New(fault.NotFound, fault.CodeMachineNotFound, "machine not found")
	}
	return r, nil
}

// appsHere returns the apps that have machines here, including destroyed ones that are still kept.
func (s *machines) appsHere() map[string]bool {
	out := map[string]bool{}
	for _, r := range s.rows {
		out[r.Machine.App] = true
	}
	return out
}

// machineOf returns the machine of a run.
func (s *machines) machineOf(r *fsm.Run) *row { return s.rows[strings.TrimPrefix(r.Key, "m/")] }

func (s *machines) machineNamed(app, name string) *row { return s.rows[s.names[fullName{app, name}]] }

func (s *machines) checkName(app, name string) error {
	if name == "" {
		return nil
	}
	if r := s.machineNamed(app, name); r != nil {
		e := fault.New(fault.Conflict, fault.CodeNameInUse,
			"unique machine name violation, machine ID %s already exists with name %q", r.Machine.ID,
			name)
		e.Detail = r.Machine.ID
		return e
	}
	return nil
}

func (s *machines) freeName(app string) string {
	for {
		if n := machine.NewName(s.rand); s.machineNamed(app, n) == nil {
			// terminates: there are millions of names, and machines are bounded
			return n
		}
	}
}

// isBusy reports whether a machine has an operation in progress or parked, so that it cannot be evicted now.
func (s *machines) isBusy(id string) bool { return s.engine.Free(machineKey(id)) != nil }

// beginLaunch begins an operation that starts a new attempt. The attempt's number is durable before the runtime gets
// it.
func (s *machines) beginLaunch(r *row, op string, a opArgs, state machine.State) error {
	if err := s.engine.Free(machineKey(r.Machine.ID)); err != nil {
		return err
	}
	r.Attempt++
	a.Attempt, r.DestroyAt = r.Attempt, time.Time{}
	r.Machine.State, r.Machine.Preempted, r.WantUp, r.Apart = state, nil, true, false
	r.Machine.Rests = false
	return s.beginOperation(r, op, a)
}

// beginOperation begins an operation on a machine; every operation begins here. It refuses if one is in progress or
// parked.
func (s *machines) beginOperation(r *row, op string, a opArgs) error {
	id := r.Machine.ID
	s.dirty[id] = true
	err := s.engine.Start(s.now, op, machineKey(id), s.newULID(), a, &s.out.Out)
	if run := s.runOf(id); run != nil && startsAttempt(run) {
		s.launching[id] = true
	}
	return err
}

// occupiesWhole reports whether a machine occupies its whole footprint: while it runs, is about to run, or waits for
// its restart.
func (s *machines) occupiesWhole(r *row) bool {
	if r.hasProcesses() || !r.RestartAt.IsZero() {
		return true
	}
	run := s.runOf(r.Machine.ID)
	return run != nil && startsAttempt(run)
}

// settleLedger makes the ledger say what a machine occupies now that no operation is on its way. It cannot fail:
// freeing always works, and an operation that grew had its room granted before.
func (s *machines) settleLedger(r *row) {
	id := r.Machine.ID
	if err := s.seller.SetUp(s.now, id, r.hasProcesses() || !r.RestartAt.IsZero()); err != nil {
		panic("lifecycle: a running machine has no room: " + err.Error())
	}
	if err := s.seller.Resize(s.now, id, r.ledgerFootprint()); err != nil {
		panic("lifecycle: a machine's room does not shrink: " + err.Error())
	}
}

// usableGPUs returns the devices that a machine may use. An update that shrinks frees the others when it has ended.
func (s *machines) usableGPUs(r *row) []int {
	var out []int
	for _, d := range s.seller.Devices(r.Machine.ID) {
		if int64(len(out)) < max(1, r.Want.GPU/1000) {
			out = append(out, d.Device)
		}
	}
	return out
}

// markDestroyed frees all that a machine has; its record stays readable for a while.
func (s *machines) markDestroyed(r *row) {
	id := r.Machine.ID
	r.Machine.State, r.DestroyedAt = machine.Destroyed, s.now
	r.Life, r.RestartAt, r.ScheduleAt, r.ReturnAt = nil, time.Time{}, time.Time{}, time.Time{}
	r.DestroyAt = time.Time{}
	r.Machine.Checks = nil
	for _, v := range r.mountedVolumes() {
		s.volumes.detachFrom(v, id)
	}
	delete(s.names, fullName{r.Machine.App, r.Machine.Name})
	s.seller.Free(id)
	s.leases.dropLease(id)
	s.destroyed = append(s.destroyed, id)
	s.dirty[id] = true
	s.stepDue()
}

// nextStep returns when a destroyed machine is next forgotten.
func (s *machines) nextStep() time.Time {
	if len(s.destroyed) == 0 {
		return time.Time{}
	}
	return s.rows[s.destroyed[0]].DestroyedAt.Add(KeepDestroyed)
}

// stepDue forgets destroyed machines that have been readable long enough.
func (s *machines) stepDue() {
	for len(s.destroyed) > 0 && (len(s.destroyed) > MaxDestroyed || !s.now.Before(s.nextStep())) {
		s.forgetMachine(s.rows[s.destroyed[0]])
		s.destroyed = s.destroyed[1:]
	}
}

// forgetMachine deletes all records of a machine. An audit asked before this may still see its directory: that was
// removed when the machine was destroyed.
func (s *machines) forgetMachine(r *row) {
	id := r.Machine.ID
	s.removeRecord(MachineBucket, id)
	for _, v := range r.versions {
		s.removeRecord(VersionBucket, versionKey(id, v.Version))
	}
	s.engine.Forget(machineKey(id), &s.out.Out)
	delete(s.rows, id)
	delete(s.timed, id)
	delete(s.dirty, id)
	s.out.Changed = append(s.out.Changed, id)
}

// machineCharge returns what a machine costs at present.
func (s *machines) machineCharge(r *row) quota.Charge {
	if r.isDestroyed() || r.Machine.ID == "" {
		return quota.Charge{}
	}
	has, sc := s.seller.Occupied(r.Machine.ID), r.schedulingTerms()
	if has.IsZero() {
		return quota.Charge{}
	}
	return quota.Charge{Namespace: r.payingNamespace(), Rate: s.accounts.Price().Rate(has, sc), Lent: sc.Lent,
		Used: has}
}

func (s *machines) eachCharge(f func(id string, c quota.Charge)) {
	for id, r := range s.rows {
		f(id, s.machineCharge(r))
	}
}

func (s *machines) standingOf(id string) (standing, bool) {
	r := s.rows[id]
	if r == nil {
		return standing{}, false
	}
	st := standing{namespace: r.payingNamespace(), scheduling: r.schedulingTerms()}
	if r.Life != nil {
		st.since = r.Life.StartedAt
	}
	return st, true
}

// setUnpaid sets whether a machine runs unpaid.
func (s *machines) setUnpaid(id string, unpaid bool, why string) {
	r := s.rows[id]
	sc := r.schedulingTerms()
	sc.Lent = unpaid
	r.Machine.Scheduling = &sc
	s.seller.Describe(id, r.ledgerTenant())
	typ, text := "paid", "namespace "+r.payingNamespace()+" pays for it again: "
	if unpaid {
		typ, text = "lent", "it is lent to, and is the first to be evicted: "
	}
	s.writeEvent(r, typ, r.Machine.State, machine.SourceFlyd, text+why)
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// runUnpaid lets a machine that is about to start and cannot be paid for run unpaid, if its budget allows that.
func (s *machines) runUnpaid(r *row) {
	f := s.accounts.fundsFor(s.now, r.Machine.ID, &placement.Request{Resources: r.Want})
	if f.Enough() || !s.accounts.MayRunUnpaid(f.Namespace) {
		return
	}
	wanted, had := f.Clause()
	s.setUnpaid(r.Machine.ID, true, "it wants "+wanted+", had "+had)
}
