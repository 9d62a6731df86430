package worker

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestPulseMeasuresMissedTime: what lies between two beats that are far apart is missed, and so is the time in which the runtime owes an
// answer, from the question on; what passes otherwise is not.
func TestPulseMeasuresMissedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan error)
		p := &pulse{period: time.Second, worker: "w1", last: time.Now(), asking: map[string]bool{},
			asked:   map[string]time.Time{},
			loop:    func(context.Context) error { return nil },
			runtime: func(context.Context) error { return <-answer }}
		var asking sync.WaitGroup
		missed := func(want time.Duration) {
			t.Helper()
			if got := p.missedSinceAsked(time.Now()); got != want {
				t.Errorf("%v are missed, want %v", got, want)
			}
		}
		pass := func(d time.Duration) {
			for range d / (time.Second / 4) {
				<-time.After(time.Second / 4)
				p.countBeat(time.Now())
			}
		}
		pass(time.Minute)
		missed(0)
		<-time.After(45 * time.Second) // souk is stopped: no beat
		missed(45 * time.Second)
		missed(0)
		p.askInBackground(t.Context(), &asking, asksRuntime, p.runtime)
		pass(time.Second)
		missed(0) // it may yet answer
		if err := p.whySilent(p.period); err != nil {
			t.Error(err)
		}
		pass(29 * time.Second)
		p.askInBackground(t.Context(), &asking, asksRuntime, p.runtime) // one question at a time
		missed(30 * time.Second)
		if p.whySilent(p.period) == nil {
			t.Error("the runtime's silence is not told")
		}
		answer <- errors.New("the connection broke after a long time") // no answer
		asking.Wait()
		pass(10 * time.Second)
		missed(10 * time.Second)
		p.askInBackground(t.Context(), &asking, asksRuntime, p.runtime)
		answer <- nil
		asking.Wait()
		pass(time.Minute)
		missed(0)
		if err := p.whySilent(p.period); err != nil {
			t.Error(err)
		}
	})
}

// TestExamineReportsUnansweredProbes: an examination makes both round trips, and says which has no answer.
func TestExamineReportsUnansweredProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		never := make(chan struct{})
		p := &pulse{period: time.Second, worker: "w1",
			loop:    func(context.Context) error { return nil },
			runtime: func(context.Context) error { <-never; return nil }}
		began := time.Now()
		found := p.examineNow(t.Context())
		if len(found) != 2 || !found[0].OK || found[1].OK || found[1].Advice == "" || time.Since(began) > examineTime {
			t.Errorf("%+v, after %v", found, time.Since(began))
		}
		close(never)
	})
}
