package services

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/machine"
)

// load has the machines of an app have so much under way, each its part.
func (b *bed) load(app string, n int) {
	list := slices.Collect(b.fleet.Snapshot().MachinesOf(app))
	b.fleet.Update(func(e *fleet.Edit) {
		for _, old := range list {
			m := *old
			m.Load = (n + len(list) - 1) / len(list)
			e.Machine(m)
		}
	})
}

// TestAutoscaledGroupFollowsItsLoad, up at once and down after a while, also where its steward dies; no head is written, and a load
// that stays costs nothing.
func TestAutoscaledGroupFollowsItsLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		stops := map[cluster.WorkerID]func(){"w1": b.member("w1"), "w2": b.member("w2")}
		b.want("shop", release.Group{Name: "web", Replicas: 2, Config: &machine.Config{Image: "one",
			Services: []machine.Service{{InternalPort: 80}}},
			Autoscale: &release.Autoscale{Min: 1, Max: 6, Target: 10}})
		b.in(20 * time.Second)
		is := func(what string, n int) {
			t.Helper()
			if got := b.machines("shop"); got != n {
				s, _ := b.seen[0].Service("shop")
				t.Fatalf("%s: %d machines, not %d: %+v", what, got, n, s.Tenure)
			}
		}
		is("at first", 2)
		b.load("shop", 42)
		b.in(time.Second)
		is("for 42", 5)
		b.load("shop", 42)
		b.in(4 * time.Minute)
		terms := b.terms
		b.load("shop", 45)
		b.in(time.Hour)
		if is("for 45", 5); b.terms != terms {
			t.Errorf("%d words of a load that stays", b.terms-terms)
		}
		s, _ := b.seen[0].Service("shop")
		stops[s.Tenure.Term.Member]()
		b.board.mu.Lock()
		b.heard = slices.DeleteFunc(b.heard, func(id cluster.WorkerID) bool { return id == s.Tenure.Term.Member })
		b.board.mu.Unlock()
		b.load("shop", 5)
		b.in(release.DefaultDownAfter - time.Second)
		is("just before they may go", 5)
		b.in(2 * time.Minute)
		is("for 5", 1)
		if s, _ := b.seen[0].Service("shop"); s.Head.Number != 1 || s.Tenure.Scaled["web"].Count != 1 || s.Tenure.Busy {
			t.Errorf("%+v, %+v", s.Head, s.Tenure)
		}
	})
}
