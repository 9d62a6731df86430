package jobs_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/core/jobs"
)

// TestEstimateNeedsFiveFinishedTasks: the time per task and the time left are shown once five tasks have ended, as a
// range. Cancelled tasks count in no rate.
func TestEstimateNeedsFiveFinishedTasks(t *testing.T) {
	scene(t, 1, 1, func(t *rapid.T, w *world) {
		id := w.submit(1, settled(t, jobs.Spec{Last: 99}))
		for ended := range 8 {
			j, _ := w.dispatcher.Status(w.now, id)
			if known := ended >= 5; (j.Took != nil) != known || (j.Left != nil) != known {
				t.Fatalf("after %d tasks: took %v, left %v", ended, j.Took, j.Left)
			}
			w.lives()[0](0) // it took 1 ms
			w.obey()
		}
		j, _ := w.dispatcher.Status(w.now, id)
		if *j.Took != (jobs.Span{LowMS: 1, HighMS: 1}) || *j.Left != (jobs.Span{LowMS: 91, HighMS: 92}) {
			t.Fatalf("took %+v, left %+v, %+v", *j.Took, *j.Left, j)
		}
		if err := w.dispatcher.Cancel(w.now, id, "enough"); err != nil {
			t.Fatal(err)
		}
		j, _ = w.dispatcher.Status(w.now, id)
		if most := 1000 * 8 / j.Elapsed; j.Cancelled < 90 || j.PerSecond > most {
			t.Fatalf("%d were cancelled, and %.0f/s is told of 8 in %.0f ms", j.Cancelled, j.PerSecond, j.Elapsed)
		}
	})
}
