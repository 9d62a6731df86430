package lifecycle

import (
	"maps"
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/core/quota"
	"github.com/soukhq/souk/machine"
)

// Task is one life of a short task (package jobs), as its runner describes it. A task is no machine: it has no row, no
// operations and no journal records. The worker knows what each task with room occupies, so that machines and tasks
// together never exceed the capacity, and which namespace pays: a task is metered, and may be evicted for a machine of
// a higher band.
type Task struct {
	Name       string             `json:"name"`                // its name at the runtime: jobs.Life
	App        string             `json:"app"`                 // "": unknown yet, as its worker has just started
	Namespace  string             `json:"namespace,omitempty"` // "" is quota.Default
	Scheduling machine.Scheduling `json:"scheduling,omitzero"`
	Want       cluster.Resources  `json:"want"`
	GPUKind    string             `json:"gpu_kind,omitempty"` // of the GPUs in Want; "": any
	Since      time.Time          `json:"since,omitzero"`     // when it started; zero: it is about to start
}

// TaskGrace is the longest time between the signal and the kill of an evicted task.
const TaskGrace = 5 * time.Second

func (t *Task) ledgerTenant() market.Tenant {
	return market.Tenant{Rank: t.Scheduling.Rank(), Since: t.Since, Budget: t.Scheduling.Budget()}
}

func (t *Task) payingNamespace() string {
	if t.Namespace == "" {
		return quota.Default
	}
	return t.Namespace
}

// tasks are the tasks that have room, by name.
type tasks struct {
	*core
	accounts *accounts
	all      map[string]*Task
	noted    map[string][]market.Share // devices of tasks from before a restart, by task name
}

// TaskDevicesBucket holds the GPU devices of each task that has some, by its name: the runtime's list does not include
// them.
const TaskDevicesBucket = "task_devices"

func newTasks(c *core, a *accounts) *tasks {
	return &tasks{core: c, accounts: a, all: map[string]*Task{}, noted: map[string][]market.Share{}}
}

func (s *tasks) restoreRecords(d Decoded) error {
	var has []market.Share
	if err := decodeRecord(d.rec, &has, "the devices of task "+d.rec.Key); err != nil {
		return err
	}
	s.noted[d.rec.Key] = has
	return nil
}

// forgetUnknown deletes the device records of tasks that the runtime does not know.
func (s *tasks) forgetUnknown() {
	for _, name := range slices.Sorted(maps.Keys(s.noted)) {
		if s.all[name] == nil {
			s.removeRecord(TaskDevicesBucket, name)
		}
	}
	clear(s.noted)
}

// beginTask gives a task its room. A task that cannot be paid for runs unpaid if its namespace's budget allows that.
func (s *tasks) beginTask(t Task) error {
	if s.all[t.Name] != nil {
		return nil
	}
	r := placement.Request{App: t.App, Machine: t.Name, Resources: t.Want, GPUKind: t.GPUKind,
		Namespace: t.payingNamespace(), Scheduling: t.Scheduling}
	if f := s.accounts.fundsFor(s.now, "", &r); !f.Enough() && f.Beyond() == nil &&
		s.accounts.MayRunUnpaid(f.Namespace) {
		r.Scheduling.Lent, t.Scheduling.Lent = true, true
	}
	t.Since = s.now
	if err := s.seller.GrantTask(s.now, r, t.ledgerTenant()); err != nil {
		return err
	}
	s.all[t.Name] = &t
	if has := s.seller.Devices(t.Name); len(has) > 0 {
		s.putRecord(TaskDevicesBucket, t.Name, has)
		s.out.Sync = true // durable before the task begins: the runtime cannot say which devices it has
	}
	s.accounts.Put(s.now, t.Name, s.taskCharge(&t))
	return nil
}

// describeTask adds the description of a task that has run since before a restart, and charges the time until now.
func (s *tasks) describeTask(t Task) {
	old := s.all[t.Name]
	if old == nil || old.App != "" {
		return // it has ended, or is described already
	}
	named := t.Want.Named // a task's name at the runtime has none
	t.Want = old.Want
	t.Want.Named = named
	*old = t
	s.seller.DescribeTask(t.Name, t.App, t.ledgerTenant())
	c := s.taskCharge(old)
	s.accounts.Resume(s.now, t.Name, c, t.Since)
	s.accounts.Put(s.now, t.Name, c)
}

// endTask frees a task's room.
func (s *tasks) endTask(name string) {
	if s.all[name] != nil {
		if len(s.seller.Devices(name)) > 0 {
			s.removeRecord(TaskDevicesBucket, name)
		}
		s.seller.Free(name)
		s.accounts.Put(s.now, name, quota.Charge{})
		delete(s.all, name)
	}
}

func (s *tasks) taskCharge(t *Task) quota.Charge {
	if t.App == "" {
		return quota.Charge{}
	}
	return quota.Charge{Namespace: t.payingNamespace(), Rate: s.accounts.Price().Rate(t.Want, t.Scheduling),
		Lent: t.Scheduling.Lent,
		Used: t.Want, Kind: quota.Task}
}

func (s *tasks) eachCharge(f func(id string, c quota.Charge)) {
	for name, t := range s.all {
		f(name, s.taskCharge(t))
	}
}

func (s *tasks) standingOf(id string) (standing, bool) {
	t := s.all[id]
	if t == nil {
		return standing{}, false
	}
	return standing{t.payingNamespace(), t.Scheduling, t.Since}, true
}

func (s *tasks) setUnpaid(id string, unpaid bool, _ string) {
	t := s.all[id]
	t.Scheduling.Lent = unpaid
	s.seller.DescribeTask(t.Name, t.App, t.ledgerTenant())
	s.accounts.Put(s.now, t.Name, s.taskCharge(t))
}

// evictTask asks for the end of a task; false: there is no such task. Its runner ends it, returns it to its queue and
// calls ReleaseTask.
func (s *tasks) evictTask(p machine.Preemption) bool {
	if s.all[p.Machine] == nil {
		return false
	}
	s.out.Evict = append(s.out.Evict, p)
	return true
}

// evictAllTasks asks for the end of all tasks, as the worker is being drained: each goes back to its queue. why says
// who drains the worker and why.
func (s *tasks) evictAllTasks(why string) {
	for _, t := range s.listByName() {
		s.out.Evict = append(s.out.Evict, machine.Preemption{Rule: machine.RuleDrain, Machine: t.Name, App: t.App,
			Rank: t.Scheduling.Rank(), Why: why, At: s.now.UTC()})
	}
}

// listByName returns the tasks by name.
func (s *tasks) listByName() []Task {
	out := make([]Task, 0, len(s.all))
	for _, name := range slices.Sorted(maps.Keys(s.all)) {
		out = append(out, *s.all[name])
	}
	return out
}

// leavingTasks returns, at start-up, the tasks that were being evicted, by the machine they make room for; and their
// evictions, which are to be asked for again.
func (s *tasks) leavingTasks() (by map[string][]string, again []machine.Preemption) {
	by = map[string][]string{}
	seen := map[string]bool{}
	for _, app := range s.seller.EvictedApps() {
		for _, p := range slices.Backward(s.seller.Evictions(app)) {
			if t := s.all[p.Machine]; t != nil && !seen[p.Machine] {
				seen[p.Machine] = true
				s.seller.DescribeTask(p.Machine, app, market.Tenant{Rank: p.Rank})
				by[p.By] = append(by[p.By], p.Machine)
				again = append(again, p)
			}
		}
	}
	return by, again
}

// AdmitTask gives a task its room until ReleaseTask. It is judged like a grant; a task that already has its room keeps
// it.
func (s *Supervisor) AdmitTask(now time.Time, t Task) (Out, error) {
	s.openOut(now)
	err := s.tasks.beginTask(t)
	return s.closeOut(), err
}

// TaskKnown restores, at start-up, the room of a task that already runs; it is not judged. AdoptTask describes the
// task later; until then it is neither charged nor evicted, unless its eviction had begun.
func (s *Supervisor) TaskKnown(name string, want cluster.Resources) {
	s.seller.RestoreTask(name, want, s.tasks.noted[name]...)
	s.tasks.all[name] = &Task{Name: name, Want: want}
}

// TaskDevices returns a task's GPU devices, by number and by the host's IDs.
func (s *Supervisor) TaskDevices(name string) (numbers []int, ids []string) {
	for _, d := range s.seller.Devices(name) {
		numbers = append(numbers, d.Device)
	}
	return numbers, s.seller.DeviceIDs(numbers)
}

// AdoptTask describes a task that has run since before a restart, and charges the time until now.
func (s *Supervisor) AdoptTask(now time.Time, t Task) Out {
	s.openOut(now)
	s.tasks.describeTask(t)
	return s.closeOut()
}

// ReleaseTask frees a task's room, for a machine that waits for it, if any. It does nothing if there is no such task.
func (s *Supervisor) ReleaseTask(now time.Time, name string) Out {
	s.openOut(now)
	s.tasks.endTask(name)
	return s.closeOut()
}

// Tasks returns the tasks that have room, by name: running ones, and those about to run.
func (s *Supervisor) Tasks() []Task { return s.tasks.listByName() }

// Leaving returns the machine that a task or a machine is being evicted for; "" if it is not being evicted.
func (s *Supervisor) Leaving(name string) string { return s.seller.Leaving(name) }
