package lifecycle

import (
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/market"
	"github.com/soukhq/souk/placement"
	"github.com/soukhq/souk/quota"
)

// Short tasks (package jobs) are no machines: they have no row, no operations and no journal records here. What a
// Supervisor knows of one is the room that it occupies, so that machines and tasks together never have more than there is,
// and whose it is: so it is metered, and may have to make room for a machine of a higher band.

// Task is one life of a short task, as its worker is told of it.
type Task struct {
	Name       string // its name at the runtime
	App        string
	Namespace  string // "" is quota.Default
	Scheduling machine.Scheduling
	Want       cluster.Resources
	Since      time.Time // it has run since then; zero: it is about to begin
}

// TaskGrace is how long a task has between the signal and the kill when it is evicted, at the most.
const TaskGrace = 5 * time.Second

func (t *Task) tenant() market.Tenant {
	return market.Tenant{Rank: t.Scheduling.Rank(), Since: t.Since, Budget: t.Scheduling.Budget()}
}

func (t *Task) namespace() string {
	if t.Namespace == "" {
		return quota.Default
	}
	return t.Namespace
}

// TaskRoom gives a task its room until TaskGone. It is judged like a grant; a task that has its room already keeps it. One
// that cannot be paid for is lent to, where its namespace's budget says so.
func (s *Supervisor) TaskRoom(now time.Time, t Task) (Out, error) {
	s.open(now)
	if s.tasks[t.Name] != nil {
		return s.close(), nil
	}
	r := placement.Request{App: t.App, Machine: t.Name, Resources: t.Want, Namespace: t.namespace(), Scheduling: t.Scheduling}
	if f := s.funds(now, "", &r); !f.Enough() && s.purse.book.Budgets[f.Namespace].Lend {
		r.Scheduling.Lent, t.Scheduling.Lent = true, true
	}
	t.Since = now
	if err := s.seller.GrantTask(now, r, t.tenant()); err != nil {
		return s.close(), err
	}
	s.tasks[t.Name] = &t
	s.meterTask(&t)
	return s.close(), nil
}

// TaskKnown enters the room of a task that runs since before, at start-up: it is a fact and is not judged. Whose it is
// TaskTold will say; until then it is neither charged nor evicted, unless it was about to be.
func (s *Supervisor) TaskKnown(name string, want cluster.Resources) {
	s.seller.RestoreVolume(name, want)
	s.tasks[name] = &Task{Name: name, Want: want}
}

// TaskTold tells whose a task is that runs since before. The time that it ran unseen is charged.
func (s *Supervisor) TaskTold(now time.Time, t Task) Out {
	s.open(now)
	old := s.tasks[t.Name]
	if old == nil || old.App != "" {
		return s.close() // it is over, or known
	}
	t.Want = old.Want
	*old = t
	s.seller.DescribeTask(t.Name, t.App, t.tenant())
	s.purse.meter.Resume(now, t.Name, s.chargeTask(old), t.Since)
	s.purse.limit(now, t.namespace())
	return s.close()
}

// TaskGone gives the room back: to a machine that waits for it, if there is one. Nothing happens when there is none.
func (s *Supervisor) TaskGone(now time.Time, name string) Out {
	s.open(now)
	if s.tasks[name] != nil {
		s.seller.Free(name)
		s.purse.meter.Put(now, name, quota.Charge{})
		delete(s.tasks, name)
	}
	return s.close()
}

func (s *Supervisor) chargeTask(t *Task) quota.Charge {
	if t.App == "" {
		return quota.Charge{}
	}
	return quota.Charge{Namespace: t.namespace(), Rate: s.purse.price.Rate(t.Want, t.Scheduling), Lent: t.Scheduling.Lent, Used: t.Want, Kind: quota.Task}
}

func (s *Supervisor) meterTask(t *Task) {
	s.purse.meter.Put(s.now, t.Name, s.chargeTask(t))
	s.purse.limit(s.now, t.namespace())
}

// lendTask changes whether a task is paid for.
func (s *Supervisor) lendTask(t *Task, lent bool) {
	t.Scheduling.Lent = lent
	s.seller.DescribeTask(t.Name, t.App, t.tenant())
	s.meterTask(t)
}

// evictTask has a task make room; false: it is none. Who runs it ends it, hands it back to its queue and says TaskGone.
func (s *Supervisor) evictTask(p machine.Preemption) bool {
	if s.tasks[p.Machine] == nil {
		return false
	}
	s.evicted++
	s.out.Evict = append(s.out.Evict, p)
	return true
}

// Leaving gives the machine that a task or a machine is being evicted for; "" when it is not.
func (s *Supervisor) Leaving(name string) string { return s.seller.Leaving(name) }

// leavingTasks gives the tasks that were about to go for a machine when the worker's process ended, by that machine; and
// the evictions that are to be asked for again.
func (s *Supervisor) leavingTasks() (by map[string][]string, again []machine.Preemption) {
	by = map[string][]string{}
	seen := map[string]bool{}
	for _, app := range s.seller.EvictedApps() {
		for _, p := range slices.Backward(s.seller.Evictions(app)) {
			if t := s.tasks[p.Machine]; t != nil && !seen[p.Machine] {
				seen[p.Machine] = true
				s.seller.DescribeTask(p.Machine, app, market.Tenant{Rank: p.Rank})
				by[p.By] = append(by[p.By], p.Machine)
				again = append(again, p)
			}
		}
	}
	return by, again
}
