package batch_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/core/quota"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime/fake"
	"github.com/soukhq/souk/store/journal/mem"
)

// service asks a worker for a machine of one CPU that may evict.
func (h *host) service(n int, band machine.Band) (*machine.Machine, error) {
	launch := &machine.Launch{Name: fmt.Sprintf("web-%d", n), Scheduling: &machine.Scheduling{Band: band},
		Config: &machine.Config{Image: "souk/host", Init: machine.Init{Exec: []string{"sleep", "1000"}}}}
	req := placement.Request{App: "shop", Machine: fmt.Sprintf("%014x", n), Resources: cluster.Resources{CPU: 1000},
		Start: true, Scheduling: *launch.Scheduling}
	ctx, cancel := context.WithTimeout(h.t.Context(), time.Minute)
	defer cancel()
	return h.Grant(ctx, lifecycle.Grant{Request: req, Launch: launch, Region: "local", Evict: true, Source: "user"})
}

// TestServiceEvictsATaskThatReruns: a service that does not fit beside tasks makes one of them go. It is handed back to its
// queue with a stamp, counted, and run again; nothing is lost, no attempt is begun twice.
func TestServiceEvictsATaskThatReruns(t *testing.T) {
	h := openHost(t, "w1", fake.New(fake.Options{}), mem.New())
	s := openShop(t, mem.New(), t.TempDir(), "boot", h)
	h.run()
	if _, err := s.Submit(t.Context(), job1, spec(5, "sleep", "1000")); err != nil {
		t.Fatal(err)
	}
	s.until(job1, 2)
	if _, err := h.service(1, machine.BandBatch); !fault.Is(err, fault.Exhausted) {
		t.Fatalf("an equal evicts nobody: %v", err)
	}
	m, err := h.service(2, machine.BandService)
	if err != nil || m.State != machine.Started {
		t.Fatalf("%+v, %v", m, err)
	}
	j := s.evicted(job1, 1)
	if j.Running > 1 || j.Failed+j.Retried != 0 {
		t.Fatalf("%+v", j)
	}
	if told := h.evictions(m); len(told) != 1 || told[0].App != "app" || told[0].Rank != 1000 ||
		told[0].ByRank != 2000 || told[0].Rule != machine.RuleLowerRank || !jobs.IsLife(told[0].Machine) {
		t.Fatalf("%+v", told)
	}
	for ended := range 5 {
		s.until(job1, 1)
		endOne(t, h, m.ID)
		if _, err := s.Wait(t.Context(), job1, ended); err != nil {
			t.Fatal(err)
		}
	}
	if j := s.end(job1); j.State != jobs.Succeeded || j.Succeeded != 5 || j.Evicted != 1 {
		t.Fatalf("%+v", j)
	}
	for name, n := range started(h) {
		if n != 1 {
			t.Errorf("%s was begun %d times", name, n)
		}
	}
	if n := len(started(h)); n != 5+1+1 {
		t.Errorf("%d lives were begun for five tasks, one of them twice, and a machine", n)
	}
}

// evicted waits until so many attempts of a job have been evicted.
func (s *shop) evicted(id string, n int) jobs.Job {
	s.t.Helper()
	return s.job(id, fmt.Sprintf("%d are evicted", n), func(j jobs.Job) bool { return j.Evicted == n })
}

// evictions gives what was evicted for a machine, as its events tell.
func (h *host) evictions(m *machine.Machine) (out []machine.Preemption) {
	for _, e := range m.Events {
		if e.Type == "evict" {
			out = append(out, e.Request.Preemptions...)
		}
	}
	return out
}

// TestTasksAreChargedAndEvictableAfterRestart: after a restart of the worker the buyer names the owners of running
// tasks; from then on they are charged and may be evicted.
func TestTasksAreChargedAndEvictableAfterRestart(t *testing.T) {
	h := openHost(t, "w1", fake.New(fake.Options{}), mem.New())
	s := openShop(t, mem.New(), t.TempDir(), "boot", h)
	h.run()
	sp := spec(2, "sleep", "1000")
	sp.Namespace = "ml"
	if _, err := s.Submit(t.Context(), job1, sp); err != nil {
		t.Fatal(err)
	}
	s.until(job1, 2)
	ml := func(h *host) cluster.Spending {
		rec, err := h.Record(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return rec.Spending["ml"]
	}
	want := quota.DefaultPrice().Rate(cluster.Resources{CPU: 2000, Memory: 512},
		machine.Scheduling{Band: machine.BandBatch})
	if got := ml(h); got.Rate != want || got.Machines != 0 || got.Used.CPU != 2000 {
		t.Fatalf("%+v, not %v an hour", got, want)
	}
	h.stop()
	s.Detach(h.conn)
	h2 := openHost(t, "w1", h.rt.Reopen(), h.j.Reopen())
	if got := ml(h2); got.Rate != 0 {
		t.Fatalf("%+v, and nobody has said whose the tasks are", got)
	}
	s.attach(h2.local())
	h2.run()
	waittest.Until(t, "they are charged again", func() bool { return ml(h2).Rate == want })
	m, err := h2.service(1, machine.BandService)
	if err != nil || m.State != machine.Started {
		t.Fatalf("%+v, %v", m, err)
	}
	s.evicted(job1, 1)
}

// TestTaskThatCannotBePaidForWaits: its worker refuses it, its job says why, and it runs once the budget allows.
func TestTaskThatCannotBePaidForWaits(t *testing.T) {
	h := openHost(t, "w1", fake.New(fake.Options{}), mem.New())
	s := openShop(t, mem.New(), t.TempDir(), "boot", h)
	h.run()
	h.Budgets(quota.Limits{Price: quota.DefaultPrice(), Budgets: map[string]quota.Budget{"ml": {}}})
	sp := spec(3, "true")
	sp.Namespace = "ml"
	if _, err := s.Submit(t.Context(), job1, sp); err != nil {
		t.Fatal(err)
	}
	s.job(job1, "it waits for money", func(j jobs.Job) bool {
		return j.Waiting == 3 && strings.Contains(j.Why, "namespace ml cannot pay for another task of it now")
	})
	h.Budgets(quota.Limits{Price: quota.DefaultPrice(),
		Budgets: map[string]quota.Budget{"ml": {PerHour: 100, Burst: 100}}})
	if j := s.end(job1); j.State != jobs.Succeeded {
		t.Fatalf("%+v", j)
	}
}

// TestDrainRequeuesRunningTasks: a drain that ends tasks has those that run go back to their queue, where they count as evicted and
// not as failed. None begins while the worker is cordoned, and all of them are done afterwards.
func TestDrainRequeuesRunningTasks(t *testing.T) {
	h := openHost(t, "w1", fake.New(fake.Options{}), mem.New())
	s := openShop(t, mem.New(), t.TempDir(), "boot", h)
	h.run()
	if _, err := s.Submit(t.Context(), job1, spec(3, "sleep", "1000")); err != nil {
		t.Fatal(err)
	}
	s.until(job1, 2)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	drain := lifecycle.CordonCommand{Owner: "ann", Reason: "disks", Drain: true}
	if _, err := h.Cordon(ctx, drain); err != nil {
		t.Fatal(err)
	}
	running, err := h.RunningTasks(ctx)
	if err != nil || len(running) < 2 || running[0].App != "app" || !jobs.IsLife(running[0].Name) {
		t.Fatalf("%+v, %v", running, err)
	}
	drain.EndTasks = true
	if _, err := h.Cordon(ctx, drain); err != nil {
		t.Fatal(err)
	}
	j := s.evicted(job1, len(running))
	if j.Failed+j.Retried+j.Running != 0 || j.Waiting != 3 {
		t.Fatalf("%+v", j)
	}
	if left, err := h.RunningTasks(ctx); err != nil || len(left) != 0 {
		t.Fatalf("%+v, %v", left, err)
	}
	tasks, _, err := s.Tasks(ctx, job1, jobs.TaskQuery{Limit: 10})
	if err != nil || tasks[0].State != "waiting" {
		t.Fatalf("%+v, %v", tasks, err)
	}
	if _, err := h.Cordon(ctx, lifecycle.CordonCommand{End: true}); err != nil {
		t.Fatal(err)
	}
	for ended := range 3 {
		endOne(t, h)
		if _, err := s.Wait(ctx, job1, ended); err != nil {
			t.Fatal(err)
		}
	}
	if j := s.end(job1); j.State != jobs.Succeeded || j.Succeeded != 3 || j.Evicted != len(running) {
		t.Fatalf("%+v", j)
	}
}
