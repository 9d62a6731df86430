package proxy

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// TestPortProbesAreBounded: a machine that takes t to listen is waited for 1/32 of t longer, or 0.25 ms, and never 0.1 s
// longer. One that never listens is looked at 190 times in its first second and 530 times in half a minute.
func TestPortProbesAreBounded(t *testing.T) {
	looks := func(until time.Duration) (n int) {
		for at := time.Duration(0); at < until; at += lookPause(at, 1) {
			if late := lookPause(at, 1); late > max(at/32, 250*time.Microsecond) || late > 100*time.Millisecond {
				t.Fatalf("at %v it is looked again after %v", at, late)
			}
			n++
		}
		return n
	}
	for until, most := range map[time.Duration]int{
		8 * time.Millisecond: 32, 100 * time.Millisecond: 120, time.Second: 190, readyTime: 530,
	} {
		if n := looks(until); n > most {
			t.Errorf("in %v it is looked %d times, more than %d", until, n, most)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		ports := rapid.IntRange(1, 100000).Draw(t, "ports")
		pause := lookPause(time.Duration(rapid.Int64Range(0, int64(readyTime)).Draw(t, "waited")), ports)
		if looks := float64(ports) * float64(time.Millisecond) / float64(pause); looks > 8 {
			t.Fatalf("%d ports are looked at %.1f times a ms", ports, looks)
		}
	})
}

// TestEarlyCheckRetriesAreBounded: checks that do not pass are asked for again soon, and 280 times in half a minute at most.
func TestEarlyCheckRetriesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), readyTime)
		defer cancel()
		n, began, last := 0, time.Now(), time.Duration(0)
		pressChecks(ctx, func() {
			at := time.Since(began)
			if at-last > max(last/32, 500*time.Microsecond) {
				t.Errorf("after %v it is asked for at %v", last, at)
			}
			last = at
			n++
		})
		if n < 200 || n > 280 {
			t.Errorf("they are asked for %d times", n)
		}
	})
}

// TestFirstProbeFollowsExpectedStartTime: a start that was slow puts the next first look off by less than an eighth of that, and after a few
// starts a machine is looked at before it is ready, however long it took before.
func TestFirstProbeFollowsExpectedStartTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		took := rapid.Custom(func(t *rapid.T) time.Duration {
			return time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(time.Second)).Draw(t, "took"))
		})
		var e expected
		if e.firstLook() != 0 {
			t.Fatalf("a machine that was never started is first looked at after %v", e.firstLook())
		}
		for n := range rapid.IntRange(1, 30).Draw(t, "starts") {
			d, before := took.Draw(t, "start"), e.firstLook()
			seen := max(d, before)
			e.learnStart(seen)
			if e.firstLook() > firstMost || e.firstLook() > seen*3/4 || n > 0 && e.firstLook() > before+seen/8 {
				t.Fatalf("after a start of %v it is first looked at after %v, and it was %v", seen, e.firstLook(),
					before)
			}
		}
		usual := took.Draw(t, "usual")
		for range 24 { // each shortens what is too long by a quarter
			e.learnStart(max(usual, e.firstLook()))
		}
		if e.firstLook() > usual {
			t.Fatalf("a machine that takes %v is first looked at after %v", usual, e.firstLook())
		}
	})
}
