package market_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
)

// TestTasksAreKeptFromWhatIsWanted: what is wanted stands in the record since it was first asked for, until it is not
// asked for again or a machine of its gang has its room. It is refused where machines leave no room.
func TestTasksAreKeptFromWhatIsWanted(t *testing.T) {
	s, now := newSeller(cluster.Resources{CPU: 4000}), epoch
	two := cluster.Resources{CPU: 2000}
	want := func(token string, cpu int64) error {
		_, err := s.Want(now, request("m-"+token, cluster.Resources{CPU: cpu}), token, 10*time.Second)
		return err
	}
	for i := range 4 {
		r := request(fmt.Sprint("t", i), cluster.Resources{CPU: 1000})
		if err := s.GrantTask(now, r, market.Tenant{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := want("g.0", 2000); err != nil {
		t.Fatal(err)
	}
	now = now.Add(5 * time.Second)
	if err := want("g.0", 2000); err != nil {
		t.Fatal(err)
	}
	r := s.Record(now)
	if len(r.Wanted) != 1 || r.Wanted[0].Gang != "g" || !r.Wanted[0].Since.Equal(epoch) || r.Tasks.CPU != 4000 ||
		r.Used.CPU != 4000 {
		t.Fatalf("%+v", r)
	}
	s.Free("t0")
	s.Free("t1")
	if err := s.Grant(now, request("other", two), "", true); err != nil {
		t.Fatalf("a machine is not kept from it: %v", err)
	}
	if err := want("h.0", 3000); !fault.Is(err, fault.Exhausted) {
		t.Errorf("without tasks 2 cores are free, and 3 can be wanted: %v", err)
	}
	s.Free("t2")
	s.Free("t3")
	if err := s.Grant(now, request("m", two), "g.1.0", true); err != nil {
		t.Fatal(err)
	}
	if r := s.Record(now); len(r.Wanted) != 0 || !r.Tasks.IsZero() {
		t.Errorf("its machine is there: %+v", r.Wanted)
	}
	s.Free("m")
	if err := want("k.0", 2000); err != nil || !s.NextExpiry().Equal(now.Add(10*time.Second)) {
		t.Errorf("%v, until %v", err, s.NextExpiry())
	}
	now = now.Add(10 * time.Second)
	if r := s.Record(now); len(r.Wanted) != 0 {
		t.Errorf("nobody asked again: %+v", r.Wanted)
	}
	s.Check()
}

func TestWantedIsBounded(t *testing.T) {
	s := newSeller(cluster.Resources{CPU: 1 << 30})
	for i := range market.MaxWanted + 1 {
		_, err := s.Want(epoch, request("m", cluster.Resources{CPU: 1}), fmt.Sprint("g.", i), time.Second)
		if refused := err != nil; refused != (i == market.MaxWanted) {
			t.Fatalf("%d: %v", i, err)
		}
	}
	for token, ttl := range map[string]time.Duration{"": time.Second, "a": 0, "b": market.MaxHoldTTL + 1} {
		if _, err := s.Want(epoch, request("m", cluster.Resources{}), token, ttl); !fault.Is(err, fault.Invalid) {
			t.Errorf("%q for %v: %v", token, ttl, err)
		}
	}
}

// TestGangThatWaitsHasTasksKeptAway: a gang that tasks leave no room asks workers to keep them away, at the same ones as
// long as they will do, and where machines leave it none it does not.
func TestGangThatWaitsHasTasksKeptAway(t *testing.T) {
	view := cluster.View{}
	for i := range 3 {
		view.Workers = append(view.Workers, cluster.Record{Worker: cluster.WorkerID(fmt.Sprint("w", i)),
			State: cluster.Ready, Capacity: cluster.Resources{CPU: 4000}, Used: cluster.Resources{CPU: 4000},
			Tasks: cluster.Resources{CPU: 4000}})
	}
	view.Workers[0].Tasks.CPU = 1000 // and machines
	r := market.GangRequest{ID: "g", Until: epoch.Add(time.Hour)}
	for i := range 2 {
		r.Members = append(r.Members, request(fmt.Sprint("m", i), cluster.Resources{CPU: 3000}))
	}
	g, err := market.NewGangBuyer(r, view, placement.Policy{}, rand.New(rand.NewPCG(1, 1)))
	if err != nil {
		t.Fatal(err)
	}
	wants := func(now time.Time) (at []cluster.WorkerID) {
		b := g.Step(now, nil)
		var in []market.Answer
		for _, a := range b.Asks {
			if a.Act != market.ActWant || a.Token != fmt.Sprint("g.", a.Member) {
				t.Fatalf("%+v", a)
			}
			at = append(at, a.Worker)
			in = append(in, market.Answer{Done: true})
		}
		if len(at) > 0 {
			b = g.Step(now, in)
		}
		if !b.Refresh {
			t.Fatalf("it does not wait: %+v", b)
		}
		return at
	}
	if at := wants(epoch); len(at) != 2 || at[0] == at[1] || at[0] == "w0" || at[1] == "w0" {
		t.Errorf("tasks are kept away at %v", at)
	}
	if at := wants(epoch.Add(time.Second)); at != nil {
		t.Errorf("a second later again, at %v", at)
	}
	if at := wants(epoch.Add(6 * time.Second)); len(at) != 2 {
		t.Errorf("six seconds later at %v", at)
	}
	view.Workers[1].Tasks, view.Workers[2].Tasks = cluster.Resources{}, cluster.Resources{} // machines came
	g.SetView(view)
	if at := wants(epoch.Add(12 * time.Second)); at != nil {
		t.Errorf("tasks are kept away for nothing, at %v", at)
	}
}
