package gossip

import (
	"fmt"
	"testing"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/internal/wait/waittest"
)

// picture is what a reader of a feed has made of it.
type picture struct {
	workers  map[cluster.WorkerID]int64 // CPU used
	machines map[string]string          // states
	taken    int
}

func (p *picture) read(f *Feed) {
	for more := true; more; {
		n := f.Take(3)
		for _, w := range n.Workers {
			if p.taken++; w.Record == nil {
				delete(p.workers, w.ID)
			} else {
				p.workers[w.ID] = w.Record.Used.CPU
			}
		}
		for _, m := range n.Machines {
			if p.taken++; m.Machine == nil {
				delete(p.machines, m.ID)
			} else {
				p.machines[m.ID] = m.Machine.State
			}
		}
		more = n.More
	}
}

// TestFeedDeliversEveryChange: who takes a feed knows what the registry knows of the others, however late it begins and
// however seldom it takes; what changed many times meanwhile is taken once; a worker that is forgotten is gone.
func TestFeedDeliversEveryChange(t *testing.T) {
	a := start(t, Options{Self: "a"})
	early := a.Feed()
	b := start(t, Options{Self: "b"}, a)
	tell := func(id, state string) {
		if err := b.AnnounceMachine(Machine{ID: id, App: "x", State: state, Worker: "b", UpdatedAt: time.Unix(1,
			0)}); err != nil {
			t.Fatal(err)
		}
	}
	const machines = 50
	for round := range 4 {
		for i := range machines {
			tell(fmt.Sprint("m", i), fmt.Sprint("round", round))
		}
		if err := b.Announce(b.record(int64(10 + round))); err != nil {
			t.Fatal(err)
		}
	}
	for i := range machines / 2 {
		if err := b.RemoveMachine(fmt.Sprint("m", i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Announce(a.record(7)); err != nil { // its own: the reader knows that better
		t.Fatal(err)
	}
	waittest.Until(t, "both know the same", func() bool {
		return len(a.Machines("x")) == machines/2 && a.Root() == b.Root()
	})
	for name, f := range map[string]*Feed{"from the beginning": early, "late": a.Feed()} {
		p := picture{workers: map[cluster.WorkerID]int64{}, machines: map[string]string{}}
		p.read(f)
		if len(p.workers) != 1 || p.workers["b"] != 13 || len(p.machines) != machines/2 {
			t.Errorf("%s: %+v", name, p)
		}
		for id, state := range p.machines {
			if state != "round3" {
				t.Errorf("%s: machine %s in %s", name, id, state)
			}
		}
		if p.taken > machines+1 {
			t.Errorf("%s: %d things were taken for %d that changed", name, p.taken, machines+1)
		}
		if n := f.Take(10); len(n.Workers)+len(n.Machines) > 0 || n.More {
			t.Errorf("%s: there is more: %+v", name, n)
		}
	}
	b.stop()
	for {
		moved := a.Moved()
		if m, _ := a.Member("b"); m.State == cluster.MemberDead {
			break
		}
		<-moved
	}
	if err := a.Forget("b"); err != nil {
		t.Fatal(err)
	}
	p := picture{workers: map[cluster.WorkerID]int64{"b": 13}, machines: map[string]string{"m49": "round3"}}
	p.read(early)
	if len(p.workers)+len(p.machines) > 0 {
		t.Errorf("after all was forgotten: %+v", p)
	}
}
