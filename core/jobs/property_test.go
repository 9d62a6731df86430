package jobs_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/soukhq/souk/core/jobs"
)

// drawSpec draws a job that may wait for some of earlier.
func drawSpec(t *rapid.T, now time.Time, earlier []string) jobs.Spec {
	s := jobs.Spec{App: "app", Command: []string{"true"}, Last: rapid.IntRange(0, 12).Draw(t, "last"),
		CPUKind: "performance", CPUs: rapid.SampledFrom([]int{1, 1, 2, 4}).Draw(t, "cpus"), MemoryMB: 64,
		Retries: rapid.IntRange(0, 2).Draw(t, "retries"), EstimateMS: rapid.Int64Range(0, 30_000).Draw(t, "estimate"),
		Priority:  rapid.SampledFrom([]jobs.Priority{"", jobs.High, jobs.Low}).Draw(t, "priority"),
		Namespace: rapid.SampledFrom([]string{"", "", "ml", "web"}).Draw(t, "namespace")}
	if rapid.IntRange(0, 2).Draw(t, "whose scheduler") == 0 {
		s.Scheduler, s.Priority = "sparrow", ""
	}
	s.TimeoutMS = rapid.SampledFrom([]int64{0, 0, 5_000, 20_000}).Draw(t, "limit")
	if rapid.Bool().Draw(t, "bounded") {
		n := rapid.IntRange(0, 3).Draw(t, "max fails")
		s.MaxFails = &n
	}
	if rapid.IntRange(0, 3).Draw(t, "ordered") == 0 {
		drawOrdering(t, &s, now, earlier)
	}
	if err := s.Settle(); err != nil {
		t.Fatal(err)
	}
	return s
}

func drawOrdering(t *rapid.T, s *jobs.Spec, now time.Time, earlier []string) {
	s.Array, s.AtOnce, _ = jobs.ParseArray(rapid.SampledFrom([]string{"3", "0-8", "1-11:2", "0-8:4,9-12%2",
		"0-12%1", "4,2,9%3"}).Draw(t, "array"))
	s.Hold = rapid.IntRange(0, 3).Draw(t, "hold") == 0
	if rapid.IntRange(0, 3).Draw(t, "later") == 0 {
		s.Begin = now.Add(time.Duration(rapid.IntRange(0, 40).Draw(t, "begin")) * time.Second)
	}
	if rapid.IntRange(0, 3).Draw(t, "has deadline") == 0 {
		s.Deadline = s.Begin.Add(time.Minute)
		if s.Begin.IsZero() {
			s.Deadline = now.Add(time.Minute)
		}
		s.TimeoutMS = rapid.Int64Range(0, 20_000).Draw(t, "timeout")
	}
	s.Unmet = rapid.SampledFrom([]jobs.Unmet{"", jobs.UnmetCancel, jobs.UnmetWait}).Draw(t, "unmet")
	for range rapid.IntRange(0, min(2, len(earlier))).Draw(t, "dependencies") {
		s.After = append(s.After, jobs.Dependency{Job: rapid.SampledFrom(earlier).Draw(t, "earlier"),
			Kind: rapid.SampledFrom([]jobs.DependencyKind{jobs.AfterOK, jobs.AfterAny, jobs.AfterFail,
				jobs.AfterCorr}).Draw(t, "kind")})
	}
}

// TestEachTaskIsRecordedOnce: with any order of exits, failures, cancels, cuts and crashes, no worker is overdrawn, no
// attempt begins twice, every job ends, and each task has one final record in the journal.
func TestEachTaskIsRecordedOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, rapid.IntRange(1, 3).Draw(t, "workers"), rapid.IntRange(1, 5).Draw(t, "slots"))
		var commit func()
		dropped := map[string]bool{}
		t.Repeat(map[string]func(*rapid.T){
			"submit": func(t *rapid.T) {
				id := jobs.ID(uint64(len(w.ids) + 1))
				if err := w.dispatcher.Submit(w.now, id, drawSpec(t, w.now, w.ids)); err != nil {
					t.Fatal(err)
				}
				w.ids = append(w.ids, id)
				w.flush()()
			},
			"hold": func(t *rapid.T) {
				if len(w.ids) > 0 {
					_ = w.dispatcher.SetHold(w.now, rapid.SampledFrom(w.ids).Draw(t, "job"), true)
				}
			},
			"requeue": func(t *rapid.T) {
				if len(w.ids) > 0 {
					_, _ = w.dispatcher.Requeue(w.now, rapid.SampledFrom(w.ids).Draw(t, "job"),
						jobs.Indices{{First: 0, Last: rapid.IntRange(0, 12).Draw(t, "last")}})
				}
			},
			"release": func(t *rapid.T) {
				if len(w.ids) > 0 {
					_ = w.dispatcher.SetHold(w.now, rapid.SampledFrom(w.ids).Draw(t, "job"), false)
				}
			},
			"cancel": func(t *rapid.T) {
				if len(w.ids) > 0 {
					_ = w.dispatcher.Cancel(w.now, rapid.SampledFrom(w.ids).Draw(t, "job"), "the user wanted it")
				}
			},
			"cancel tasks": func(t *rapid.T) {
				all := w.dispatcher.List(w.now, "")
				if len(all) == 0 {
					return
				}
				w.cancelTasks(t, rapid.SampledFrom(all).Draw(t, "job").ID, dropped)
				if commit != nil {
					commit()
					commit = nil
				}
				w.flush()()
			},
			"end": func(t *rapid.T) {
				if all := w.lives(); len(all) > 0 {
					rapid.SampledFrom(all).Draw(t, "life")(rapid.SampledFrom([]int{0, 0, 0, 1, -1, evictedCode}).Draw(t,
						"code"))
				}
			},
			"give":           w.giveToken,
			"end generation": func(*rapid.T) { w.endGeneration() },
			"overdraw":       func(t *rapid.T) { w.unpaid = rapid.IntRange(0, 5).Draw(t, "refusals") },
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
				w.dispatcher.Silent(w.now, p.id)
				if rapid.Bool().Draw(t, "for long") {
					w.dispatcher.Gone(w.now, p.id)
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
		w.crash(3)
		w.drain(0)
		for _, j := range w.dispatcher.List(w.now, "") {
			for _, x := range w.tasks(j.ID) {
				if dropped[fmt.Sprint(j.ID, " ", x.Index)] && x.State != "cancelled" {
					t.Fatalf("task %d of %s waited when it was cancelled, and then it was %s", x.Index, j.ID, x.State)
				}
			}
		}
	})
}

func (w *world) hasScheduler(id string) bool {
	s, err := w.dispatcher.Status(w.now, id)
	return err == nil && s.Spec.Scheduler != ""
}

func (w *world) tasks(id string) []jobs.Task {
	all, _, err := w.dispatcher.Tasks(w.now, id, jobs.TaskQuery{Limit: jobs.MaxIndex})
	if err != nil {
		w.t.Fatal(err)
	}
	return all
}

// cancelTasks cancels some tasks of a job alone, and notes which of them were never given out.
func (w *world) cancelTasks(t *rapid.T, id string, waited map[string]bool) {
	all := w.tasks(id)
	first := rapid.IntRange(0, len(all)-1).Draw(t, "first")
	last := rapid.IntRange(first, len(all)-1).Draw(t, "last")
	want := 0
	for _, x := range all[first : last+1] {
		if x.State == "waiting" {
			want++
			if x.Attempt == 0 { // else it may run at a worker that is not heard
				waited[fmt.Sprint(id, " ", x.Index)] = true
			}
		}
	}
	out, err := w.dispatcher.CancelTasks(w.now, id, jobs.Indices{{First: all[first].Index, Last: all[last].Index}})
	// tasks of a scheduler wait at workers, too, and are killed there
	if n := out.Tasks - out.Ending; err != nil || n > want || n != want && !w.hasScheduler(id) {
		t.Fatalf("of %d tasks that waited %+v are cancelled: %v", want, out, err)
	}
}

// drain lets everything that runs end, in order, until nothing is left.
func (w *world) drain(code int) {
	for _, p := range w.workers {
		if !p.connected {
			p.connect()
		}
	}
	for _, id := range w.ids {
		_ = w.dispatcher.SetHold(w.now, id, false) // of one that has ended nothing waits
	}
	w.flush()()
	w.obey()
	for steps := 0; ; steps++ {
		all := w.lives()
		if len(all) == 0 && !w.unfinished() {
			break
		}
		if steps > 10_000 {
			w.t.Fatalf("it does not come to an end: %+v", w.dispatcher.List(w.now, ""))
		}
		w.now = w.now.Add(time.Second)
		if len(all) > 0 {
			all[0](code)
		} else {
			w.dispatcher.Open(w.now)                 // as the owner's tick does
			for id := range w.dispatcher.Awaited() { // its submission was lost in a crash
				w.dispatcher.Learn(w.now, &jobs.Outcome{Job: id, Why: "nobody knows it"})
			}
			for _, id := range w.ids {
				if s, _ := w.dispatcher.Status(w.now, id); strings.Contains(s.Why, "waits for ever") {
					_ = w.dispatcher.Cancel(w.now, id, "the user wanted it")
				}
			}
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
	for _, s := range w.dispatcher.List(w.now, "") {
		want := jobs.Progress{ID: s.ID, Done: s.Done(), Over: s.State.Final()}
		if p, err := w.dispatcher.Progress(s.ID); err != nil || p != want {
			w.t.Fatalf("it is at %+v, %v; want %+v", p, err, want)
		}
		if !s.State.Final() {
			return true
		}
	}
	return false
}

// checkJournal: one final record for each task that was not cancelled before it ran, and the same counts after a
// restart.
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
	before := w.dispatcher.List(w.now, "")
	w.crash(7)
	for i, a := range w.dispatcher.List(w.now, "") {
		b := before[i]
		if a.State != b.State || a.Succeeded != b.Succeeded || a.Failed != b.Failed || a.Cancelled != b.Cancelled ||
			a.Retried != b.Retried || a.Evicted != b.Evicted || a.Lost != b.Lost {
			w.t.Fatalf("before a restart %+v, after it %+v", b, a)
		}
		if d := cmp.Diff(b.Usage, a.Usage); d != "" {
			w.t.Fatalf("use of job %s (-before a restart +after it):\n%s", a.ID, d)
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

// TestEvictedAndLostTasksRerunWithoutUsingARetry: a task makes room more often than one may be lost, or its end is seen by nobody as often as that
// may be, and it is run again each time; it is counted, and no try of its own is used up, over a restart too.
func TestEvictedAndLostTasksRerunWithoutUsingARetry(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, 1, 1)
		id := jobs.ID(1)
		w.ids = []string{id}
		spec := jobs.Spec{App: "app", Command: []string{"true"}}
		if err := spec.Settle(); err != nil {
			t.Fatal(err)
		}
		if err := w.dispatcher.Submit(w.now, id, spec); err != nil {
			t.Fatal(err)
		}
		code, evicted, lost := evictedCode, rapid.IntRange(jobs.MaxLost+1, 3*jobs.MaxLost).Draw(t, "evictions"), 0
		if rapid.Bool().Draw(t, "nobody sees their ends") {
			code, evicted, lost = -1, 0, rapid.IntRange(1, jobs.MaxLost).Draw(t, "lost")
		}
		for range evicted + lost {
			w.flush()()
			w.obey()
			if all := w.lives(); len(all) != 1 {
				t.Fatalf("%d lives", len(all))
			} else {
				all[0](code)
			}
			w.obey()
		}
		w.flush()()
		w.crash(1)
		w.drain(0)
		if s := w.dispatcher.List(w.now, "")[0]; s.State != jobs.Succeeded || s.Evicted != evicted || s.Lost != lost ||
			s.Retried != 0 {
			t.Fatalf("%+v", s)
		}
		w.checkJournal()
	})
}

// TestJobOverQuotaWaitsWithoutBlockingOthers: a job whose namespace is out of budget waits, shows why, is not retried
// in a loop, and continues once the budget allows; other jobs use the room meanwhile.
func TestJobOverQuotaWaitsWithoutBlockingOthers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, 1, 1)
		spec := jobs.Spec{App: "app", Command: []string{"true"}, Last: 3, Namespace: "poor"}
		if err := spec.Settle(); err != nil {
			t.Fatal(err)
		}
		w.unpaid = 1
		for i := range 2 {
			if err := w.dispatcher.Submit(w.now, jobs.ID(uint64(i+1)), spec); err != nil {
				t.Fatal(err)
			}
			w.flush()()
			w.obey()
		}
		first, err := w.dispatcher.Status(w.now, jobs.ID(1))
		if err != nil || first.Waiting != 4 || !strings.Contains(first.Why, "namespace poor cannot pay") {
			t.Fatalf("%+v, %v", first, err)
		}
		if second, err := w.dispatcher.Status(w.now, jobs.ID(2)); err != nil || second.Running != 1 {
			t.Fatalf("%+v, %v", second, err)
		}
		w.dispatcher.Open(w.now) // too early
		if first, _ := w.dispatcher.Status(w.now, jobs.ID(1)); !strings.Contains(first.Why, "cannot pay") {
			t.Fatalf("%+v", first)
		}
		if rapid.Bool().Draw(t, "cancel") {
			if err := w.dispatcher.Cancel(w.now, jobs.ID(1), "the user wanted it"); err != nil {
				t.Fatal(err)
			}
		}
		w.now = w.now.Add(10 * time.Second)
		w.dispatcher.Open(w.now)
		w.drain(0)
		w.checkJournal()
	})
}
