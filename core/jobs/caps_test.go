package jobs_test

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/core/quota"
)

// TestTasksOfANamespaceStayBelowItsCaps: whichever workers have room, the tasks of all jobs of a namespace together
// stay within its caps, and other namespaces take the rest. Its next tasks start as some end, and when caps are raised.
func TestTasksOfANamespaceStayBelowItsCaps(t *testing.T) {
	scene(t, 3, 8, func(t *rapid.T, w *world) {
		most := rapid.IntRange(1, 5).Draw(t, "cores")
		w.dispatcher.SetCaps(map[string]quota.Caps{"ml": {"cpu": float64(most), "gpu": 0}})
		one := jobs.Spec{CPUKind: "performance", CPUs: 1, MemoryMB: 64, Last: 9, Namespace: "ml"}
		first := w.submit(1, settled(t, one))
		w.submit(2, settled(t, one))
		other := one
		other.Namespace = ""
		w.submit(3, settled(t, other))
		tick := func() (running, others int) {
			w.now = w.now.Add(500 * time.Millisecond)
			w.dispatcher.Open(w.now)
			w.obey()
			for _, j := range w.dispatcher.List(w.now, "") {
				if j.Spec.Namespace == "ml" {
					running += j.Running
				} else {
					others += j.Running
				}
			}
			return running, others
		}
		if n, others := tick(); n != most || others != min(10, 12-most) {
			t.Fatalf("%d tasks run of %d that may, and %d others", n, most, others)
		}
		if j, _ := w.dispatcher.Status(w.now, jobs.ID(2)); !strings.Contains(j.Why,
			"namespace ml has as many tasks as it may have at once: its limit is cpu=") ||
			!strings.Contains(j.Helps, "a larger limit of cpu for namespace ml ") || j.ETA != nil || j.Queue != nil {
			t.Errorf("%+v", j)
		}
		for range 3 {
			for _, p := range w.workers {
				for _, l := range inOrder(p.running) {
					if l.Job == first {
						p.end(l, 0)
						p.report()
						w.obey()
						w.flush()()
						w.obey()
					}
				}
			}
			if n, others := tick(); n > most || n+others != min(12, 10+most) {
				t.Fatalf("%d tasks run of %d that may, and %d others", n, most, others)
			}
		}
		w.dispatcher.SetCaps(nil)
		if n, others := tick(); n+others != 12 {
			t.Fatalf("%d tasks and %d others run on 12 cores when all may", n, others)
		}
		w.drain(0)
	})
}
