package batch

import (
	"context"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/auction"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
)

// stubborn is a runtime with one life, which ignores SIGTERM.
type stubborn struct {
	runtime.Runtime
	signalled, killed chan time.Time
	signals           []syscall.Signal // that it got
}

func (s *stubborn) Signal(_ context.Context, _ string, sig syscall.Signal) error {
	s.signals = append(s.signals, sig)
	s.signalled <- time.Now()
	return nil
}

// SignalAll is Signal.
func (s *stubborn) SignalAll(ctx context.Context, name string, sig syscall.Signal) error {
	return s.Signal(ctx, name, sig)
}

func (s *stubborn) Kill(context.Context, string) error {
	s.killed <- time.Now()
	return nil
}

func (s *stubborn) Logs(context.Context, string, machine.LogQuery, func(machine.LogLine) error) error {
	return nil
}

type noHost struct{ Host }

func (noHost) ReleaseTask(context.Context, string) error { return nil }

// TestTaskTimeoutDoesNotDelayKill: one order may tell a task's timeout and that it must end, and the two are read in any
// order. SIGKILL follows SIGTERM after the grace all the same.
func TestTaskTimeoutDoesNotDelayKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s := &stubborn{signalled: make(chan time.Time, 8), killed: make(chan time.Time, 8)}
		r := NewRunner(RunnerOptions{Worker: "w1", Runtime: s})
		r.ctx, r.host = ctx, noHost{}
		x := newTask(jobs.Life{Job: jobs.ID(1)}, -1)
		go r.followTask(x, limits{})
		x.end <- "it was told to end"
		synctest.Wait()
		x.watch <- limits{timeout: time.Hour}
		asked := <-s.signalled
		if waited := (<-s.killed).Sub(asked); waited != endGrace {
			t.Errorf("SIGKILL came %v after SIGTERM; the grace is %v", waited, endGrace)
		}
		x.exit <- runtime.Exit{Machine: x.life.String(), Code: -1, Signal: 9, At: time.Now()}
		synctest.Wait()
	})
}

// TestTaskIsWarnedOnceBeforeItIsEnded: so long before its timeout, however often its limits are told; and also where souk
// was away until the timeout was over.
func TestTaskIsWarnedOnceBeforeItIsEnded(t *testing.T) {
	limit := limits{time.Hour, jobs.Warning{Signal: "USR1", BeforeMS: 60_000}}
	for name, c := range map[string]struct{ ran, warned, ended time.Duration }{
		"from its start":        {0, 59 * time.Minute, time.Hour},
		"souk was away shortly": {59*time.Minute + 30*time.Second, 0, 30 * time.Second},
		"souk was away":         {2 * time.Hour, 0, endGrace},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				s := &stubborn{signalled: make(chan time.Time, 8), killed: make(chan time.Time, 8)}
				r := NewRunner(RunnerOptions{Worker: "w1", Runtime: s})
				r.ctx, r.host = ctx, noHost{}
				x, begin := newTask(jobs.Life{Job: jobs.ID(1)}, -1), time.Now()
				x.beganAt(begin.Add(-c.ran))
				go r.followTask(x, limit)
				warned := <-s.signalled
				x.watch <- limit // its buyer has connected anew
				ended, killed := <-s.signalled, <-s.killed
				if got := warned.Sub(begin); got != c.warned {
					t.Errorf("warned after %v, want %v", got, c.warned)
				}
				if got := ended.Sub(begin); got != c.ended {
					t.Errorf("ended after %v, want %v", got, c.ended)
				}
				if len(s.signals) != 2 || s.signals[0] != syscall.SIGUSR1 || s.signals[1] != syscall.SIGTERM ||
					killed.Sub(ended) != endGrace {
					t.Errorf("it got %v, and was killed %v later", s.signals, killed.Sub(ended))
				}
				x.exit <- runtime.Exit{Machine: x.life.String(), Code: -1, Signal: 9, At: time.Now()}
				synctest.Wait()
			})
		})
	}
}

// TestTasksKeptOverARestartBoundReservations: souk was started anew, and a large task waits for the room of one that runs. As
// soon as its terms are told, what would end too late has no room beside it.
func TestTasksKeptOverARestartBoundReservations(t *testing.T) {
	r := NewRunner(RunnerOptions{Worker: "w1", Runtime: &stubborn{}})
	runs := jobs.Life{Job: jobs.ID(1), Attempt: 1, CPU: 1000, Memory: 64}
	now := time.Now()
	r.Known(now, []runtime.Status{{Machine: runs.String(), Attempt: 1, Running: true, StartedAt: now}})
	r.Connect(jobs.Hello{Buyer: "b", Jobs: []string{runs.Job}}, nil)
	bid := func(cpu, rank int64, limit time.Duration) jobs.ShapeBid {
		b := auction.NoBid()
		b.Short = rank
		return jobs.ShapeBid{Shape: jobs.ShapeOf(cluster.Resources{CPU: cpu, Memory: 64}), Quota: 1, Bid: b,
			Limit: limit.Microseconds()}
	}
	terms := &jobs.Terms{Job: runs.Job, App: "app", Shape: runs.Shape(), Timeout: time.Minute}
	r.Order("b", &jobs.Orders{Watch: []jobs.Watch{{Life: runs, Terms: terms}},
		Bulletin: &jobs.Bulletin{Bids: []jobs.ShapeBid{bid(2000, 1, 0), bid(1000, 2, 61*time.Second)}}})
	rec := cluster.Record{Worker: "w1", State: cluster.Ready, Incarnation: 1, Used: runs.Shape(),
		Capacity: cluster.Resources{CPU: 2000, Memory: 4096}}
	if o := r.slots.Offers(now, rec)["b"]; len(o) > 0 {
		t.Errorf("%+v is offered; want nothing", o)
	}
	if list, _ := r.slots.ReservedFor(now, "b"); len(list) != 1 || list[0].InMS != 60_000 {
		t.Errorf("%+v is reserved; want one room in a minute", list)
	}
}

// TestTaskWithoutStartTimeTookNoTime: a runtime that was killed meanwhile may not know when a task began. That does not
// make it one of two thousand years, which would be its job's estimate and its namespace's bill.
func TestTaskWithoutStartTimeTookNoTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r := NewRunner(RunnerOptions{Worker: "w1", Runtime: &stubborn{}})
		l := jobs.Life{Job: jobs.ID(1), Attempt: 1}
		name := l.String()
		r.Known(time.Now(), []runtime.Status{{Machine: name, Attempt: 1,
			Exit: &runtime.Exit{Machine: name, Attempt: 1, At: time.Now()}}})
		go r.Run(ctx, noHost{})
		synctest.Wait()
		r.mu.Lock()
		res := r.held[name].result
		r.mu.Unlock()
		if took := res.Ended - res.Began; took != 0 {
			t.Errorf("it took %v", time.Duration(took)*time.Microsecond)
		}
		cancel()
		synctest.Wait()
	})
}
