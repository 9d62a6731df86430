package batch

import (
	"context"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
)

// stubborn is a runtime with one life, which ignores SIGTERM.
type stubborn struct {
	runtime.Runtime
	signalled, killed chan time.Time
}

func (s *stubborn) Signal(context.Context, string, syscall.Signal) error {
	s.signalled <- time.Now()
	return nil
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
