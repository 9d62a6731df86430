package rollout

import (
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/machine"
)

// ready counts the machines that are ready.
func (r *rig) ready() (n int) {
	for _, m := range r.machines {
		if m.Ready {
			n++
		}
	}
	return n
}

// pass lets a time pass.
func (r *rig) pass(d time.Duration) {
	for until := r.now.Add(d); r.now.Before(until); {
		r.tick()
	}
}

// TestServiceRecoversSoonAfterItsDependency: a service whose dependency was away is up within 10 s of its return, or a
// fifth of the time away. A start that keeps failing is retried ever less often.
func TestServiceRecoversSoonAfterItsDependency(t *testing.T) {
	for _, tt := range []struct {
		away, within time.Duration
		tries        int // of all three together, at most
	}{
		{20 * time.Second, 10 * time.Second, 30}, {5 * time.Minute, time.Minute, 90},
		{3 * time.Hour, 6 * time.Minute, 250},
	} {
		for _, dies := range []bool{false, true} { // the steward, in the middle of it
			r := newRig(t, 1, release.Group{Name: "web", Replicas: 3, Config: &machine.Config{Image: good}}, true)
			r.rest()
			r.pass(time.Minute)
			began := r.now
			r.away, r.log = true, nil
			for r.now.Sub(began) < tt.away {
				r.tick()
				if dies && r.now.Sub(began) == tt.away/2 {
					r.steward = NewSteward(r.steward.Term())
				}
			}
			back := r.now
			r.away = false
			for r.ready() < 3 {
				r.tick()
				if r.now.Sub(back) > tt.within {
					r.t.Fatalf("away for %v: %d of 3 are ready %v after it is back", tt.away, r.ready(), tt.within)
				}
			}
			tries := 0
			for _, line := range r.log {
				if strings.Contains(line, " start ") || strings.Contains(line, " try ") {
					tries++
				}
			}
			if tries > tt.tries {
				r.t.Fatalf("away for %v: %d tries", tt.away, tries)
			}
			if r.pass(2 * time.Minute); len(r.want.Held) > 0 || r.ready() < 3 {
				r.t.Fatalf("two minutes later %d are ready, and these are held: %+v", r.ready(), r.want.Held)
			}
		}
	}
}

// TestReplacementOfAStoppedMachineIsAsleep: what takes the place of a machine that somebody stopped, or that waits for a request, is made
// asleep; what takes the place of one that was stopped on the way to its removal is not.
func TestReplacementOfAStoppedMachineIsAsleep(t *testing.T) {
	for _, tt := range []struct {
		rests, services, asleep bool
	}{{true, true, true}, {false, true, false}, {true, false, false}} {
		r := releaseOf("two", map[string]int{"web": 1})
		if tt.services {
			r.Groups[0].Config.Services = []machine.Service{{InternalPort: 80}}
		}
		want := &Want{App: "a", Release: r, Head: next(t, nil, release.Change{Release: r.ID()}, r, nil)}
		want.Progress = release.Progress{Rollout: want.Head.Rollout, Release: want.Head.Release, State: release.Done}
		s := NewSteward(cluster.Term{})
		s.Begin(cluster.Term{Number: 1, Member: "m"})
		n := s.Step(time.Unix(1e9, 0), want, []release.Standing{{ID: "old", State: machine.Stopped, Rests: tt.rests,
			Cordoned: true, Replica: machine.Replica{Group: "web", Spec: "old"}}})
		if len(n.Orders) == 0 || n.Orders[0].Verb != Make || n.Orders[0].Asleep != tt.asleep {
			t.Errorf("%+v: %+v", tt, n.Orders)
		}
	}
}
