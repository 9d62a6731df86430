package jobs_test

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/core/auction"
	"github.com/soukhq/souk/core/eta"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/core/share"
)

// cores makes a job of n tasks of so many whole cores, each estimated to take 10 s.
func cores(t fataler, n, cpus int) jobs.Spec {
	return settled(t, jobs.Spec{Last: n - 1, CPUKind: "performance", CPUs: cpus, EstimateMS: 10_000})
}

// learn has so many jobs of one task run for 10 s each.
func (w *world) learn(n int) {
	for i := range n {
		w.submit(1000+i, cores(w.t, 1, 1))
		w.endAll(10 * time.Second)
	}
}

// endAll ends all that runs, some time later, with 0.
func (w *world) endAll(later time.Duration) {
	w.now = w.now.Add(later)
	for _, end := range w.lives() {
		end(0)
	}
	w.obey()
	w.flush()()
	w.obey()
}

// TestWhichJobsHaveAnETA: none before enough is known, and none that something else than room keeps, or that nothing can
// run.
func TestWhichJobsHaveAnETA(t *testing.T) {
	for name, c := range map[string]struct {
		known int
		spec  func(s *jobs.Spec)
		ends  bool
		helps string
	}{
		"known":         {eta.Least, func(*jobs.Spec) {}, true, ""},
		"nothing known": {eta.Least - 2, func(*jobs.Spec) {}, false, ""},
		"held":          {eta.Least, func(s *jobs.Spec) { s.Hold = true }, false, "souk job release"},
		"later":         {eta.Least, func(s *jobs.Spec) { s.Begin = epoch.Add(1000 * time.Hour) }, false, ""},
		"behind another": {eta.Least, func(s *jobs.Spec) {
			s.After = []jobs.Dependency{{Kind: jobs.AfterAny, Job: jobs.ID(1)}}
		}, false, ""},
		"too large": {eta.Least, func(s *jobs.Spec) { s.CPUs = 8 }, false,
			"fewer cores: a task with 4 instead of 8 could run on 1 worker"},
	} {
		t.Run(name, func(t *testing.T) {
			scene(t, 1, 4, func(t *rapid.T, w *world) {
				w.learn(c.known)
				w.submit(1, cores(t, 4, 1)) // it runs
				spec := jobs.Spec{CPUKind: "performance", CPUs: 1, EstimateMS: 10_000}
				c.spec(&spec)
				id := w.submit(2, settled(t, spec))
				j, err := w.dispatcher.Status(w.now, id)
				if err != nil || (j.ETA != nil) != c.ends || j.Helps == "" != (c.helps == "") ||
					!strings.Contains(j.Helps, c.helps) {
					t.Fatalf("%v: ETA %+v, helps %q", err, j.ETA, j.Helps)
				}
				if !c.ends {
					return
				}
				s, e := j.ETA.Starts, j.ETA.Ends
				if s == nil || e == nil || s.High.Before(s.Low) || e.High.Before(e.Low) || s.Low.Before(w.now) {
					t.Fatalf("starts %+v, ends %+v", s, e)
				}
				if j.Queue == nil || j.Queue.Later != 1 || j.Queue.Now+j.Queue.Never != 0 || j.Queue.Slots != 4 {
					t.Fatalf("%+v", j.Queue)
				}
			})
		})
	}
}

// TestWhenForecastsAreScored: that of the start at the first start, the others at the end. A job that is cancelled, or
// was held meanwhile, is not scored.
func TestWhenForecastsAreScored(t *testing.T) {
	type scores struct{ start, end, rest int }
	hold := func(w *world, id string, hold bool) {
		if err := w.dispatcher.SetHold(w.now, id, hold); err != nil {
			w.t.Fatal(err)
		}
		w.obey()
	}
	for name, c := range map[string]struct {
		tasks int
		do    func(w *world, id string) // when it has begun
		begun scores
		ended scores
	}{
		"one task":   {1, func(*world, string) {}, scores{1, 0, 0}, scores{1, 1, 1}},
		"four tasks": {4, func(*world, string) {}, scores{1, 0, 0}, scores{1, 1, 2}},
		"held": {4, func(w *world, id string) {
			hold(w, id, true)
			hold(w, id, false)
		}, scores{1, 0, 0}, scores{1, 0, 0}},
		"cancelled": {4, func(w *world, id string) {
			_ = w.dispatcher.Cancel(w.now, id, "enough")
			w.obey()
		}, scores{1, 0, 0}, scores{1, 0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			scene(t, 1, 1, func(t *rapid.T, w *world) {
				check := func(when string, want scores) {
					got := map[eta.Kind]int{}
					for k, x := range w.dispatcher.SaveETA().Kinds {
						for _, s := range x.Sizes {
							got[k] += len(s.Scores)
						}
					}
					if is := (scores{got["start"], got["end"], got["rest"]}); is != want {
						t.Fatalf("%s: %+v", when, is)
					}
				}
				id := w.submit(1, cores(t, c.tasks, 4))
				check("begun", c.begun)
				c.do(w, id)
				for range c.tasks {
					w.endAll(10 * time.Second)
				}
				if j, _ := w.dispatcher.Status(w.now, id); !j.State.Final() {
					t.Fatalf("%+v", j)
				}
				check("ended", c.ended)
			})
		})
	}
}

// TestWhatIsLearntOfForecastsIsKept: over a restart, with what runs and waits.
func TestWhatIsLearntOfForecastsIsKept(t *testing.T) {
	scene(t, 1, 4, func(t *rapid.T, w *world) {
		w.learn(2 * eta.Least)
		w.submit(1, cores(t, 4, 1))
		id := w.submit(2, cores(t, 4, 1))
		saved := w.dispatcher.SaveETA()
		w.crash(0)
		w.dispatcher.RestoreETA(saved)
		for _, p := range w.workers {
			p.connect()
		}
		w.dispatcher.Open(w.now)
		w.obey()
		j, err := w.dispatcher.Status(w.now, id)
		if err != nil || j.ETA == nil || j.ETA.Starts == nil || j.ETA.Starts.Coverage.Of == 0 {
			t.Fatalf("%+v, %v", j, err)
		}
		for range 3 {
			w.endAll(10 * time.Second)
		}
		if j, _ := w.dispatcher.Status(w.now, id); j.State != jobs.Succeeded {
			t.Fatalf("%+v", j)
		}
	})
}

// TestForecasts: of a job on four cores, where tasks take 10 s.
func TestForecasts(t *testing.T) {
	const sec = time.Second
	for name, c := range map[string]struct {
		before     []int // tasks of one core, of a job each, that came before; the first four of them run
		ran        time.Duration
		spec       jobs.Spec
		start, end time.Duration
	}{
		"empty":           {nil, 0, jobs.Spec{CPUs: 1}, 0, 10 * sec},
		"two rounds":      {nil, 0, jobs.Spec{CPUs: 1, Last: 5}, 0, 20 * sec},
		"one at once":     {nil, 0, jobs.Spec{CPUs: 1, Last: 5, AtOnce: 1}, 0, 60 * sec},
		"behind a task":   {[]int{4}, 4 * sec, jobs.Spec{CPUs: 1}, 6 * sec, 16 * sec},
		"room beside it":  {[]int{3}, 4 * sec, jobs.Spec{CPUs: 1}, 0, 10 * sec},
		"no room beside":  {[]int{3}, 4 * sec, jobs.Spec{CPUs: 2}, 6 * sec, 16 * sec},
		"longer than so":  {[]int{4}, 30 * sec, jobs.Spec{CPUs: 1}, 30 * sec, 40 * sec},
		"behind a job":    {[]int{4, 4}, 4 * sec, jobs.Spec{CPUs: 1, Last: 4}, 16 * sec, 36 * sec},
		"a million tasks": {nil, 0, jobs.Spec{CPUs: 1, Last: 999_999}, 0, 2_500_000 * sec},
	} {
		t.Run(name, func(t *testing.T) {
			scene(t, 1, 4, func(t *rapid.T, w *world) {
				for i, n := range c.before {
					w.submit(10+i, cores(t, n, 1))
				}
				w.now = w.now.Add(c.ran)
				spec := c.spec
				spec.CPUKind, spec.EstimateMS = "performance", 10_000
				id := jobs.ID(1)
				if err := w.dispatcher.Submit(w.now, id, settled(t, spec)); err != nil {
					t.Fatal(err)
				}
				w.flush()()
				start, end, ok := w.dispatcher.Forecast(w.now, id)
				const near = 50 * time.Millisecond
				if !ok || (start-c.start).Abs() > near || (end-c.end).Abs() > max(c.end/500, near) {
					t.Fatalf("%v: starts in %v, ends in %v", ok, start, end)
				}
			})
		})
	}
}

// TestGrantedTasksCount: they are about to run, and neither wait nor leave their worker room for others.
func TestGrantedTasksCount(t *testing.T) {
	d := jobs.NewDispatcher(auction.DefaultRules(8))
	d.Open(epoch)
	enter := func(n int) (id string) {
		id = jobs.ID(uint64(n))
		if err := d.Submit(epoch, id, cores(t, 1, 2)); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Flush(); err != nil {
			t.Fatal(err)
		}
		d.Saved(epoch)
		return id
	}
	first := enter(1)
	report := jobs.Report{Worker: "w", Record: twoCPUs("w"), Full: true, Accounts: true, Free: 4}
	d.Report(epoch, report)
	now := epoch.Add(time.Minute)
	d.Open(now)
	for _, o := range d.Take().Orders {
		if o.Bulletin != nil && len(o.Bulletin.Bids) > 0 {
			d.Report(now, jobs.Report{Worker: "w", Record: twoCPUs("w"), Free: 3,
				Offers: []jobs.SlotOffer{{Offer: jobs.Offer{Slot: 1, Number: 1}, Shape: o.Bulletin.Bids[0].Shape}}})
		}
	}
	if j, _ := d.Status(now, first); j.Running != 1 {
		t.Fatalf("%+v", j)
	}
	if _, end, ok := d.Forecast(now, first); !ok || end != 10*time.Second {
		t.Errorf("the one that is granted ends in %v", end)
	}
	if start, end, ok := d.Forecast(now, enter(2)); !ok || start != 10*time.Second || end != 20*time.Second {
		t.Errorf("the next starts in %v, ends in %v", start, end)
	}
}

// TestQueueBeforeAJob: by the queue's order in one account, and of others those that go first by what workers say.
func TestQueueBeforeAJob(t *testing.T) {
	d, now := jobs.NewDispatcher(auction.DefaultRules(8)), epoch
	d.Open(now)
	submit := func(n, tasks int, namespace string) string {
		spec := settled(t, jobs.Spec{Last: tasks - 1, Namespace: namespace, CPUKind: "performance", CPUs: 1,
			EstimateMS: 1000})
		id := jobs.ID(uint64(n))
		if err := d.Submit(now, id, spec); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Flush(); err != nil {
			t.Fatal(err)
		}
		d.Saved(now)
		return id
	}
	submit(1, 2, "web")
	submit(2, 30, "ml")
	id := submit(3, 5, "web")
	submit(4, 500, "web")
	level := func(of share.Account, n int) share.Standing { return share.Standing{Account: of, NamespaceLevel: n} }
	web, ml := share.Account{Namespace: "web"}, share.Account{Namespace: "ml"}
	report := jobs.Report{Worker: "w", Record: twoCPUs("w"), Full: true, Accounts: true}
	for _, c := range []struct {
		web, ml     int
		jobs, tasks int
		first       bool
	}{{0, 1, 1, 2, false}, {1, 0, 2, 32, true}} {
		report.Shares = []share.Standing{level(web, c.web), level(ml, c.ml)}
		d.Report(now, report)
		j, err := d.Status(now, id)
		if err != nil || j.Queue == nil || j.Queue.Jobs != c.jobs || j.Queue.Tasks != c.tasks ||
			j.Queue.CoreSeconds != float64(c.tasks) || len(j.Queue.Accounts) == 1 != c.first {
			t.Errorf("%v: %+v", err, j.Queue)
		}
		if c.first && (j.Queue.Accounts[0].Account != (share.Account{}) || j.Queue.Accounts[0].Tasks != 30 ||
			!strings.Contains(j.Helps, "weight of namespace web")) {
			t.Errorf("%+v, helps %q", j.Queue.Accounts, j.Helps)
		}
	}
}

// TestFewOfManyJobsAreForecast: of those that come together, so that the dispatcher is not held up.
func TestFewOfManyJobsAreForecast(t *testing.T) {
	if d := crowded(t); d.NumForecasts() != 16 {
		t.Error(d.NumForecasts())
	}
}

// crowded has 500 jobs of 100 tasks each that came together.
func crowded(t fataler) *jobs.Dispatcher {
	d := jobs.NewDispatcher(auction.DefaultRules(8))
	d.Open(epoch)
	d.Report(epoch, jobs.Report{Worker: "w", Record: twoCPUs("w"), Full: true, Accounts: true})
	for n := range 500 {
		if err := d.Submit(epoch, jobs.ID(uint64(n)), cores(t, 100, 1)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.Flush(); err != nil {
		t.Fatal(err)
	}
	d.Saved(epoch)
	return d
}

// BenchmarkForecast forecasts a job behind 499 others.
func BenchmarkForecast(b *testing.B) {
	d := crowded(b)
	for b.Loop() {
		if _, _, ok := d.Forecast(epoch, jobs.ID(499)); !ok {
			b.Fatal("no forecast")
		}
	}
}
