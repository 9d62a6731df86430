package jobs_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/jobs"
)

func drawSpec(t *rapid.T) jobs.Spec {
	s := jobs.Spec{App: "app", Command: []string{"true"}, Last: rapid.IntRange(0, 12).Draw(t, "last"),
		CPUKind: "performance", CPUs: rapid.SampledFrom([]int{1, 1, 2, 4}).Draw(t, "cpus"), MemoryMB: 64,
		Retries: rapid.IntRange(0, 2).Draw(t, "retries"), EstimateMS: rapid.Int64Range(0, 30_000).Draw(t, "estimate"),
		Priority: rapid.SampledFrom([]jobs.Priority{"", jobs.High, jobs.Low}).Draw(t, "priority")}
	if rapid.Bool().Draw(t, "bounded") {
		n := rapid.IntRange(0, 3).Draw(t, "max fails")
		s.MaxFails = &n
	}
	if err := s.Settle(); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestEachTaskIsRecordedOnce: whatever ends, fails, is cancelled, is cut off, or crashes in whatever order, no worker is
// overdrawn, no attempt is begun twice, every job comes to its end, and each task has one final record in the journal.
func TestEachTaskIsRecordedOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, rapid.IntRange(1, 3).Draw(t, "workers"), rapid.IntRange(1, 5).Draw(t, "slots"))
		var commit func()
		t.Repeat(map[string]func(*rapid.T){
			"submit": func(t *rapid.T) {
				id := jobs.ID(uint64(len(w.ids) + 1))
				w.ids = append(w.ids, id)
				if err := w.desk.Submit(w.now, id, drawSpec(t)); err != nil {
					t.Fatal(err)
				}
				w.flush()()
			},
			"cancel": func(t *rapid.T) {
				if len(w.ids) > 0 {
					_ = w.desk.Cancel(w.now, rapid.SampledFrom(w.ids).Draw(t, "job"), "the user wanted it")
				}
			},
			"end": func(t *rapid.T) {
				if all := w.lives(); len(all) > 0 {
					rapid.SampledFrom(all).Draw(t, "life")(rapid.SampledFrom([]int{0, 0, 0, 1, -1}).Draw(t, "code"))
				}
			},
			"begin a commit": func(*rapid.T) {
				if commit == nil {
					commit = w.flush()
				}
			},
			"end a commit": func(*rapid.T) {
				if commit != nil {
					commit()
					commit = nil
				}
			},
			"crash": func(t *rapid.T) {
				if commit != nil && rapid.Bool().Draw(t, "written") {
					commit()
				}
				commit = nil
				w.crash(rapid.IntRange(0, 7).Draw(t, "back"))
			},
			"cut off": func(t *rapid.T) {
				p := rapid.SampledFrom(w.workers).Draw(t, "worker")
				p.connected = false
				w.desk.Silent(w.now, p.id)
				if rapid.Bool().Draw(t, "for long") {
					w.desk.Gone(w.now, p.id)
				}
			},
			"connect": func(t *rapid.T) {
				if p := rapid.SampledFrom(w.workers).Draw(t, "worker"); !p.connected {
					p.connect()
				}
			},
			"time": func(t *rapid.T) {
				w.now = w.now.Add(time.Duration(rapid.IntRange(0, 20_000).Draw(t, "ms")) * time.Millisecond)
			},
			"": func(*rapid.T) {
				w.obey()
				w.check()
			},
		})
		if commit != nil {
			commit()
		}
		w.drain(rapid.IntRange(0, 1).Draw(t, "codes"))
		w.checkJournal()
	})
}

// drain lets everything that runs end, in order, until nothing is left.
func (w *world) drain(code int) {
	for _, p := range w.workers {
		if !p.connected {
			p.connect()
		}
	}
	w.flush()()
	w.obey()
	for steps := 0; ; steps++ {
		all := w.lives()
		if len(all) == 0 && !w.unfinished() {
			break
		}
		if steps > 10_000 {
			w.t.Fatalf("it does not come to an end: %+v", w.desk.List(w.now, ""))
		}
		w.now = w.now.Add(time.Second)
		if len(all) > 0 {
			all[0](code)
		} else {
			w.desk.Open(w.now) // as the owner's tick does
		}
		w.obey()
		w.flush()()
		w.obey()
		w.check()
	}
	w.flush()() // results that came behind their jobs' ends
	w.obey()
	for _, p := range w.workers {
		if len(p.results) > 0 {
			w.t.Fatalf("%s keeps %d results that are recorded", p.id, len(p.results))
		}
	}
}

func (w *world) unfinished() bool {
	for _, s := range w.desk.List(w.now, "") {
		if !s.State.Final() {
			return true
		}
	}
	return false
}

// checkJournal: one final record for each task that was not cancelled before it ran, and the same counts after a restart.
func (w *world) checkJournal() {
	final := map[string]int{}
	for _, rec := range w.journal {
		id, _, _ := strings.Cut(rec.Key, "/")
		var results []jobs.Result
		if rec.Bucket != "results" {
			continue
		}
		if err := json.Unmarshal(rec.Value, &results); err != nil {
			w.t.Fatal(err)
		}
		for _, r := range results {
			if !r.Retry {
				final[fmt.Sprint(id, " ", r.Index)]++
			}
		}
	}
	for task, n := range final {
		if n != 1 {
			for _, rec := range w.journal {
				w.t.Logf("%s/%s %s", rec.Bucket, rec.Key, rec.Value)
			}
			w.t.Fatalf("task %s has %d final results", task, n)
		}
	}
	before := w.desk.List(w.now, "")
	w.crash(7)
	for i, a := range w.desk.List(w.now, "") {
		b := before[i]
		if a.State != b.State || a.Succeeded != b.Succeeded || a.Failed != b.Failed || a.Cancelled != b.Cancelled || a.Retried != b.Retried {
			w.t.Fatalf("before a restart %+v, after it %+v", b, a)
		}
		if a.Cancelled == 0 {
			n := 0
			for task := range final {
				if strings.HasPrefix(task, a.ID) {
					n++
				}
			}
			if n != a.Tasks {
				w.t.Fatalf("job %s has %d results for %d tasks", a.ID, n, a.Tasks)
			}
		}
	}
}
