package batch_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/core/scheduler/registry"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/runtime/fake"
	"github.com/soukhq/souk/store/journal/mem"
)

// openThree opens a buyer with three workers of its process.
func openThree(t *testing.T) (s *shop, hosts []*host) {
	t.Helper()
	for i := range 3 {
		id := cluster.WorkerID(fmt.Sprintf("w%d", i+1))
		hosts = append(hosts, openHost(t, id, fake.New(fake.Options{}), mem.New()))
	}
	s = openShop(t, mem.New(), t.TempDir(), "boot", hosts...)
	for _, h := range hosts {
		h.run()
	}
	return s, hosts
}

func specBy(scheduler string, tasks int, argv ...string) jobs.Spec {
	s := spec(tasks, argv...)
	s.Scheduler = scheduler
	return s
}

// TestEverySchedulerRunsEachTaskOnce: the jobs of all architectures run side by side on three workers, and each task runs
// once.
func TestEverySchedulerRunsEachTaskOnce(t *testing.T) {
	s, hosts := openThree(t)
	ids := map[string]string{}
	for i, name := range liveNames() {
		ids[name] = jobs.ID(uint64(i + 1))
		if _, err := s.Submit(t.Context(), ids[name], specBy(name, 30, "sleep", "0.01")); err != nil {
			t.Fatal(err)
		}
	}
	used := map[cluster.WorkerID]bool{}
	for name, id := range ids {
		if j := s.end(id); j.Succeeded != 30 || j.Lost+j.Retried+j.Evicted > 0 {
			t.Errorf("%s: %+v", name, j)
		}
		tasks, _, err := s.Tasks(t.Context(), id, jobs.TaskQuery{Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range tasks {
			used[x.Worker] = true
		}
	}
	if len(used) != len(hosts) {
		t.Errorf("of %d workers only %v ran tasks", len(hosts), used)
	}
	for _, h := range hosts {
		for life, n := range started(h) {
			if n != 1 {
				t.Errorf("%s was begun %d times", life, n)
			}
		}
	}
}

// TestCancelEndsTasksThatSchedulersHave: tasks that run are killed, and those in the queues of workers and of central places
// are dropped at once.
func TestCancelEndsTasksThatSchedulersHave(t *testing.T) {
	for _, name := range []string{"sparrow", "random", "monolithic", "yarn"} {
		t.Run(name, func(t *testing.T) {
			s, _ := openThree(t)
			if _, err := s.Submit(t.Context(), job1, specBy(name, 50, "sleep", "1000")); err != nil {
				t.Fatal(err)
			}
			s.until(job1, 6)
			if _, err := s.Cancel(t.Context(), job1); err != nil {
				t.Fatal(err)
			}
			if j := s.end(job1); j.State != jobs.Cancelled || j.Cancelled != 50 {
				t.Fatalf("%+v", j)
			}
			if j := s.submit("j0000000002", specBy(name, 20, "true")); j.Succeeded != 20 { // its slots are free again
				t.Fatalf("%+v", j)
			}
		})
	}
}

// TestSchedulersTasksWaitForRoom: the ledger decides, whatever a scheduler thinks. Tasks of the auction have all the room; those
// of a scheduler wait at the workers, and run once there is some.
func TestSchedulersTasksWaitForRoom(t *testing.T) {
	s, hosts := openThree(t)
	if _, err := s.Submit(t.Context(), job1, spec(6, "sleep", "1000")); err != nil {
		t.Fatal(err)
	}
	s.until(job1, 6)
	const second = "j0000000002"
	if _, err := s.Submit(t.Context(), second, specBy("random", 9, "true")); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "tasks wait at workers", func() bool {
		n := 0
		for _, h := range hosts {
			n += h.runner.NumWaiting()
		}
		return n == 6
	})
	for _, h := range hosts {
		endOne(t, h)
		endOne(t, h)
	}
	if j := s.end(second); j.Succeeded != 9 {
		t.Fatalf("%+v", j)
	}
	if j := s.end(job1); j.Succeeded != 6 {
		t.Fatalf("%+v", j)
	}
}

// liveNames are the names of all architectures, with short rounds where these are long.
func liveNames() []string {
	return append(slices.DeleteFunc(registry.Names(), func(s string) bool { return s == "condor" }), "condor:1")
}

// TestJobOfARemovedSchedulerSaysSo: an old journal has a job of a scheduler that this souk does not know.
func TestJobOfARemovedSchedulerSaysSo(t *testing.T) {
	head, err := json.Marshal(map[string]any{"spec": specBy("gone", 2, "true"), "submitted": time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	j := mem.New()
	if err := j.Commit([]fsm.Record{{Bucket: "job", Key: job1, Value: head}}); err != nil {
		t.Fatal(err)
	}
	h := openHost(t, "w1", fake.New(fake.Options{}), mem.New())
	s := openShop(t, j, t.TempDir(), "boot", h)
	h.run()
	waittest.Until(t, "the job says why it waits", func() bool {
		x, err := s.Status(t.Context(), job1)
		return err == nil && x.State == jobs.Waiting && strings.Contains(x.Why, `no scheduler is named "gone"`)
	})
	if _, err := s.Cancel(t.Context(), job1); err != nil {
		t.Fatal(err)
	}
	if x := s.end(job1); x.State != jobs.Cancelled {
		t.Errorf("%+v", x)
	}
}
