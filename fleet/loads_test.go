package fleet_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/machine"
)

// TestLoadIsToldInStepsOfTwoFifths: to and from nothing, and changes by about two fifths.
func TestLoadIsToldInStepsOfTwoFifths(t *testing.T) {
	for _, same := range [][]int{{-1, 0}, {1}, {2}, {3}, {4, 5}, {6, 7}, {8, 11}, {12, 15}, {16, 23}, {24, 31},
		{96, 127}} {
		if fleet.Step(same[0]) != fleet.Step(same[len(same)-1]) {
			t.Errorf("%v are not on one step", same)
		}
	}
	for n, last := 1, 0; n < 1<<20; n++ {
		s := fleet.Step(n)
		if s < last || s > last+3 {
			t.Fatalf("%d is on step %d, and %d on %d", n, s, n-1, last)
		}
		last = s
	}
}

// TestLoadUpdatesAreRateLimited: of one machine once a second, of many 25 every 250 ms, and the newest then.
func TestLoadUpdatesAreRateLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var mu sync.Mutex
		var told []string
		l := fleet.NewLoads(func(list []fleet.Load) {
			mu.Lock()
			defer mu.Unlock()
			for _, x := range list {
				told = append(told, fmt.Sprintf("%v %s=%d", time.Since(began), x.Machine, x.Load))
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { l.Run(ctx); close(done) }()
		want := func(list ...string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(told, list) {
				t.Errorf("told were %q, not %q", told, list)
			}
			told = nil
		}
		wait := func(d time.Duration) { <-time.After(d); synctest.Wait() }
		l.Set("m", 0)
		want()
		l.Set("m", 1)
		want("0s m=1")
		for n := range 100 {
			l.Set("m", n)
		}
		l.Set("m", 9)
		wait(999 * time.Millisecond)
		want()
		wait(time.Millisecond)
		want("1s m=9")
		l.Set("m", 11) // the same step
		wait(5 * time.Second)
		want()
		l.Set("m", 0)
		l.Set("m", 11) // back to the reported value before a report was due
		wait(5 * time.Second)
		l.Set("m", 0)
		want("11s m=0")
		wait(5 * time.Second)
		want()
		l.Set("first", 1)
		want("16s first=1")
		for i := range 60 { // in the pause behind it, so that all are there when that ends
			l.Set(fmt.Sprint(i), 1)
		}
		for _, n := range []int{25, 25, 10, 0} {
			wait(250 * time.Millisecond)
			mu.Lock()
			if len(told) != n {
				t.Errorf("%d were told at once, not %d", len(told), n)
			}
			told = nil
			mu.Unlock()
		}
		cancel()
		<-done
	})
}

// TestWorkerUpdateKeepsProxyLoad: a worker's update of a machine keeps the load that the proxy reported.
func TestWorkerUpdateKeepsProxyLoad(t *testing.T) {
	f := fleet.New()
	own := f.Own("w1")
	m := &machine.Machine{ID: "m1", App: "a", State: machine.Started, Worker: "w1", Config: &machine.Config{
		Services: []machine.Service{{InternalPort: 80, Checks: []machine.ServiceCheck{{}}}}}}
	own.Machine(m)
	if changed := own.Load([]fleet.Load{{"m1", 7}, {"m2", 7}}); len(changed) != 1 || changed[0].Load != 7 {
		t.Errorf("%+v have changed", changed)
	}
	if changed := own.Load([]fleet.Load{{"m1", 7}}); len(changed) != 0 {
		t.Errorf("%+v have changed", changed)
	}
	m.Cordoned, m.Checks = true, []machine.Check{{Name: "servicecheck-00-tcp-80", Status: machine.CheckCritical}}
	own.Machine(m)
	x, known := f.Snapshot().Machine("m1")
	if !known || x.Load != 7 || !x.Cordoned || !x.Failing || x.Port() != 80 || x.Services[0].Checks != nil ||
		m.Config.Services[0].Checks == nil {
		t.Errorf("%+v", x)
	}
}
