package jobs_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
)

// TestRequeuedTaskRunsAnewOverACrash: that a running attempt is to be ended is remembered; it counts as no failure and
// as no lost attempt.
func TestRequeuedTaskRunsAnewOverACrash(t *testing.T) {
	scene(t, 1, 2, func(t *rapid.T, w *world) {
		id := w.submit(1, settled(t, jobs.Spec{Last: 1}))
		w.ids = []string{id}
		w.workers[0].connected = false // it hears of nothing
		w.dispatcher.Silent(w.now, w.workers[0].id)
		if n, err := w.dispatcher.Requeue(w.now, id, jobs.Indices{{First: 1, Last: 1}}); n != 1 || err != nil {
			t.Fatalf("%d tasks are requeued: %v", n, err)
		}
		w.flush()()
		w.crash(1)
		w.obey()
		w.obey()
		tasks := w.tasks(id)
		if tasks[0].Attempt != 1 || tasks[1].Attempt != 2 || tasks[1].State != "running" {
			t.Fatalf("%+v", tasks)
		}
		if s, _ := w.dispatcher.Status(w.now, id); s.Evicted != 1 || s.Lost != 0 || s.Retried != 0 {
			t.Fatalf("%+v", s)
		}
		w.drain(0)
		w.checkJournal()
		if _, err := w.dispatcher.Requeue(w.now, id, nil); !fault.Is(err, fault.Precondition) {
			t.Fatalf("a job that has ended was requeued: %v", err)
		}
	})
}
