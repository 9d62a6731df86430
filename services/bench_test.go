package services

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/store/catalog"
)

// BenchmarkChangeAmong10000Services is what a change of one machine costs a member that carries all services: 10,000 of them, of one machine
// each, are at rest. floor is the walk over the machines alone.
func BenchmarkChangeAmong10000Services(b *testing.B) {
	const services = 10_000
	f := fleet.New()
	shared := &board{all: map[string]*catalog.Service{}, heard: []cluster.WorkerID{"w1"}}
	v := shared.view()
	h := &hands{fleet: f}
	f.Update(func(e *fleet.Edit) {
		e.Member(fleet.Member{ID: "w1", State: cluster.MemberAlive})
		e.Record(cluster.Record{Worker: "w1"}, 1)
	})
	for i := range services {
		shared.deploy(fmt.Sprint("app", i), "one", 1)
	}
	s := New(Options{Self: "w1", Members: v, Catalog: v, Fleet: f, Hands: h})
	for quiet := 0; quiet < 3; { // until all are made
		if _, next, _ := s.lookAtChanged(context.Background()); next == time.Hour && len(s.turns) == 0 &&
			len(s.ends) == 0 {
			quiet++
		}
		select {
		case end := <-s.ends:
			quiet = 0
			end(time.Now())
		case <-time.After(50 * time.Millisecond):
		}
	}
	change := func(i int) {
		for m := range f.Snapshot().MachinesOf(fmt.Sprint("app", i%services)) {
			next := *m
			next.Load++
			f.Update(func(e *fleet.Edit) { e.Machine(next) })
		}
	}
	b.Run("look", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			change(i)
			s.lookAtChanged(context.Background())
		}
	})
	b.Run("rest", func(b *testing.B) {
		for b.Loop() {
			s.lookAtChanged(context.Background())
		}
	})
	b.Run("floor", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			change(i)
			for m := range f.Snapshot().AllMachines() {
				if m.State == machine.Destroyed {
					b.Fatal("it is destroyed")
				}
			}
		}
	})
}
