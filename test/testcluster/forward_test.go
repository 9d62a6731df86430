package testcluster_test

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/mesh/gossip/gossiptest"
	"github.com/soukhq/souk/test/testcluster"
)

// onto is a launch that only these workers may take, the first of them by preference.
func onto(name string, workers ...cluster.WorkerID) *machine.Launch {
	l := launch(name)
	set := cluster.Requirement{Attribute: "worker", Op: cluster.In}
	for _, w := range workers {
		set.Values = append(set.Values, cluster.Text(string(w)))
	}
	first := cluster.Requirement{Attribute: "worker", Op: cluster.Equal, Values: set.Values[:1]}
	l.Scheduling = &machine.Scheduling{
		Require: []cluster.Requirement{set},
		Prefer:  []cluster.Preference{{Requirement: first, Weight: 1000}},
	}
	return l
}

// calls returns what a member asks others over the wire while f runs, by what is asked.
func calls(c *testcluster.Cluster, i int, f func()) map[string]uint64 {
	before := c.Member(i).Calls()
	f()
	after := c.Member(i).Calls()
	for k, v := range before {
		after[k] -= v
	}
	maps.DeleteFunc(after, func(_ string, n uint64) bool { return n == 0 })
	return after
}

// TestLaunchCostsExpectedRoundTrips counts what a launch costs through a member: nothing at its own worker, one round trip at another's,
// and one more for a first choice that has become full unheard.
func TestLaunchCostsExpectedRoundTrips(t *testing.T) {
	t.Parallel()
	k := gossiptest.Fast()
	// nothing is broadcast, and pulls take their time: views are stale
	k.Flush, k.Settle, k.Sync = time.Hour, 5*time.Second, 5*time.Second
	c := testcluster.New(t, 3, testcluster.Options{Knobs: k})
	if _, err := c.Client(0).CreateApp(t.Context(), app); err != nil {
		t.Fatal(err)
	}
	c.Until("the second member has the app", func() bool {
		_, err := c.Client(1).App(t.Context(), app)
		return err == nil
	})
	place := func(l *machine.Launch, want cluster.WorkerID) func() {
		return func() {
			t.Helper()
			m, err := c.Client(0).Launch(t.Context(), app, l, client.LaunchOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if m.Worker != want {
				t.Errorf("%s is on %s, not on %s", l.Name, m.Worker, want)
			}
		}
	}
	if got := calls(c, 0, place(onto("", c.Worker(0)), c.Worker(0))); len(got) > 0 {
		t.Errorf("a launch at the member's own worker asked others: %v", got)
	}
	if d := cmp.Diff(map[string]uint64{"grant": 1}, calls(c, 0, place(onto("", c.Worker(1)), c.Worker(1)))); d != "" {
		t.Errorf("a launch at another's worker: %s", d)
	}
	// A name that another member decides costs two more: it is asked for, and the other is told when it is taken.
	if got := calls(c, 0, place(onto("named", c.Worker(0)), c.Worker(0))); got["claim"] > 2 || len(got) > 1 {
		t.Errorf("a launch with a name: %v", got)
	}
	// The first choice is filled through its own member. Where the first member has heard of that in time, it is
	// emptied and filled again.
	for try := range 20 {
		big := onto(fmt.Sprint("big-", try), c.Worker(1))
		big.Config.Guest = &machine.Guest{CPUKind: "shared", CPUs: 8, MemoryMB: 15 * 256}
		full, err := c.Client(1).Launch(t.Context(), app, big, client.LaunchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		stale := false
		got := calls(c, 0, func() {
			stale = used(t, c, 0, c.Worker(1)).Memory < 15*256
			place(onto("", c.Worker(1), c.Worker(2)), c.Worker(2))()
		})
		if stale {
			if d := cmp.Diff(map[string]uint64{"grant": 2}, got); d != "" {
				t.Errorf("a first choice that refused: %s", d)
			}
			return
		}
		if _, err := c.Client(1).Destroy(t.Context(), app, full.ID, "", true); err != nil {
			t.Fatal(err)
		}
		c.Until("the first member knows that there is room again",
			func() bool { return used(t, c, 0, c.Worker(1)).Memory < 15*256 })
	}
	t.Error("the view was never stale")
}

// TestConsecutiveCreatesSpread: a member spreads what it creates in a row over the workers, though none of them has told of
// anything yet.
func TestConsecutiveCreatesSpread(t *testing.T) {
	t.Parallel()
	k := gossiptest.Fast()
	k.Flush, k.Settle, k.Sync = time.Hour, time.Second, time.Second
	c := testcluster.New(t, 3, testcluster.Options{Knobs: k})
	for try := range 5 {
		name := fmt.Sprint("spread-", try)
		if _, err := c.Client(0).CreateApp(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		at := map[cluster.WorkerID]int{}
		for range 6 {
			l := launch("")
			l.Scheduling = &machine.Scheduling{Spread: []machine.Spread{{Attribute: "worker", MaxSkew: 1}}}
			m, err := c.Client(0).Launch(t.Context(), name, l, client.LaunchOptions{})
			if err != nil {
				t.Fatal(err)
			}
			at[m.Worker]++
		}
		if len(at) != 3 || at[c.Worker(0)] != 2 || at[c.Worker(1)] != 2 {
			t.Errorf("%s: %v", name, at)
		}
	}
}

// used returns what a member thinks that a worker has granted.
func used(t *testing.T, c *testcluster.Cluster, i int, id cluster.WorkerID) cluster.Resources {
	t.Helper()
	w, err := c.Client(i).Workers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range w.Workers {
		if r.Worker == id {
			return r.Used
		}
	}
	return cluster.Resources{}
}
