package testcluster_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/mesh/gossip"
	"github.com/soukhq/souk/mesh/gossip/gossiptest"
	"github.com/soukhq/souk/test/testcluster"
)

const raced = 100

// patient is a fast pace at which nobody is taken for dead who is only slow: a name that two members decide is what
// this must not be about.
func patient() gossip.Knobs {
	k := gossiptest.Fast()
	k.Suspicion, k.SuspicionMax = 200, 2 // of the time between probes: 20 s
	return k
}

// stopped is a launch of a machine that is made and not started.
func stopped(name string) *machine.Launch {
	l := launch(name)
	l.SkipLaunch = true
	return l
}

// raceAll has every member asked for each of many machines at the same moment, and counts who got how many.
func raceAll(t *testing.T, c *testcluster.Cluster, members int, ask func(cl *client.Client, i int) (*machine.Machine,
	error)) (ids []map[string]bool) {
	t.Helper()
	ids = make([]map[string]bool, raced)
	var mu sync.Mutex
	var all sync.WaitGroup
	slots := make(chan struct{}, 2*members)
	for i := range raced {
		ids[i] = map[string]bool{}
		for k := range members {
			slots <- struct{}{}
			all.Go(func() {
				defer func() { <-slots }()
				if m, err := ask(c.Client(k), i); err == nil {
					mu.Lock()
					ids[i][m.ID] = true
					mu.Unlock()
				} else if !strings.Contains(err.Error(), "unique machine name violation") {
					t.Errorf("%d at %d: %v", i, k, err)
				}
			})
		}
	}
	all.Wait()
	return ids
}

// TestNamesAndKeysAreUniqueClusterWide: of one name, or one key, asked for at three members at once, there is one machine.
func TestNamesAndKeysAreUniqueClusterWide(t *testing.T) {
	t.Parallel()
	c := testcluster.New(t, 3, testcluster.Options{Knobs: patient()})
	if _, err := c.Client(0).CreateApp(t.Context(), app); err != nil {
		t.Fatal(err)
	}
	c.Until("every member has the app", func() bool {
		_, one := c.Client(1).App(t.Context(), app)
		_, two := c.Client(2).App(t.Context(), app)
		return one == nil && two == nil
	})
	for what, ask := range map[string]func(cl *client.Client, i int) (*machine.Machine, error){
		"name": func(cl *client.Client, i int) (*machine.Machine, error) {
			return cl.Launch(t.Context(), app, stopped(fmt.Sprintf("one-%d", i)), client.LaunchOptions{})
		},
		"key": func(cl *client.Client, i int) (*machine.Machine, error) {
			return cl.Launch(t.Context(), app, stopped(""), client.LaunchOptions{Key: fmt.Sprintf("key-%d", i)})
		},
	} {
		for i, ids := range raceAll(t, c, 3, ask) {
			if len(ids) != 1 {
				t.Errorf("%s %d: %d machines were answered", what, i, len(ids))
			}
		}
	}
	c.Meet()
	names := map[string]int{}
	machines, err := c.Client(0).Machines(t.Context(), app, client.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range machines {
		names[m.Name]++
	}
	for name, n := range names {
		if n > 1 {
			t.Errorf("%d machines are called %s", n, name)
		}
	}
	if len(machines) != 2*raced {
		t.Errorf("%d machines, want %d of a name and as many of a key", len(machines), raced)
	}
}

// TestKeyOfADeadMemberMakesNoDuplicate: creates with keys at a member that dies by kill -9 right afterwards. The same keys at
// another member make no second machine: each answers its own, or says that its worker cannot be asked.
func TestKeyOfADeadMemberMakesNoDuplicate(t *testing.T) {
	t.Parallel()
	c := begin(t, 3)
	const dead, other, keys = 2, 1, 48
	key := func(i int) client.LaunchOptions { return client.LaunchOptions{Key: fmt.Sprintf("key-%d", i)} }
	first := map[int]string{}
	for i := range keys {
		m, err := c.Client(dead).Launch(t.Context(), app, stopped(""), key(i))
		if err != nil {
			t.Fatal(err)
		}
		first[i] = m.ID
	}
	c.Kill(dead)
	same := 0
	for i, id := range first {
		m, err := c.Client(other).Launch(t.Context(), app, stopped(""), key(i))
		switch {
		case err == nil && m.ID == id:
			same++
		case err == nil:
			t.Errorf("key %d made %s first, and %s at another member", i, id, m.ID)
		case !fault.Is(err, fault.Unavailable) && !fault.Is(err, fault.Timeout): // to be asked again
			t.Errorf("key %d: %v", i, err)
		}
	}
	if same == 0 {
		t.Error("no key was answered with its machine, though some machines are at members that live")
	}
	for i := range keys {
		o := key(keys + i)
		o.NewKey = true
		if _, err := c.Client(other).Launch(t.Context(), app, stopped(""), o); err != nil {
			t.Errorf("a key that is new: %v", err)
		}
	}
}

// TestNewKeyWorksBesideADeadMember: with one of four members dead, creates are not refused that cannot have been made there: in
// an app that was just made, with a name, with a key that is said to be new, or that was drawn after the death. A key
// that is older may have been used there, and is.
func TestNewKeyWorksBesideADeadMember(t *testing.T) {
	t.Parallel()
	c := begin(t, 4)
	const dead, tries = 2, 24
	before := time.Now()
	c.Kill(dead)
	c.Until("all take it for dead", func() bool {
		for _, i := range []int{0, 1, 3} {
			if w, known := c.Member(i).Fleet().Snapshot().Worker(c.Worker(dead)); !known || w.Reachable() {
				return false
			}
		}
		return true
	})
	now, open := time.Now(), 0
	for i := range tries {
		at, key := []int{0, 1, 3}[i%3], fmt.Sprint("key-", i)
		fresh := fmt.Sprint("fresh", i)
		if _, err := c.Client(at).CreateApp(t.Context(), fresh); err != nil {
			t.Error(err)
		}
		for _, l := range []struct {
			app, name string
			client.LaunchOptions
		}{
			{fresh, "", client.LaunchOptions{}},
			{fresh, "named", client.LaunchOptions{Key: key, NewKey: true}},
			{app, "", client.LaunchOptions{Key: key, Drawn: now}},
		} {
			if _, err := c.Client(at).Launch(t.Context(), l.app, stopped(l.name), l.LaunchOptions); err != nil {
				t.Errorf("app %s, name %q, %+v: %v", l.app, l.name, l.LaunchOptions, err)
			}
		}
		for _, o := range []client.LaunchOptions{{Key: "old-" + key}, {Key: "older-" + key, Drawn: before}} {
			_, err := c.Client(at).Launch(t.Context(), app, stopped(""), o)
			if fault.CodeOf(err) == "key_open" {
				open++
			} else if err != nil {
				t.Error(err)
			}
		}
	}
	if open == 0 {
		t.Error("no key was open that the dead member may have used")
	}
}

// TestSpreadHoldsClusterWide: twelve machines of an app that must be spread are asked for at three members at once.
// All are made, four at each worker.
func TestSpreadHoldsClusterWide(t *testing.T) {
	t.Parallel()
	c := testcluster.New(t, 3, testcluster.Options{Knobs: patient()}) // of a cut this is not
	if _, err := c.Client(0).CreateApp(t.Context(), app); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range 12 {
		l := launch(fmt.Sprintf("spread-%d", i))
		l.Scheduling = &machine.Scheduling{Spread: []machine.Spread{{Attribute: "worker", MaxSkew: 1}}}
		all.Go(func() {
			if _, err := c.Client(i%3).Launch(t.Context(), app, l, client.LaunchOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	machines, err := c.Client(0).Machines(t.Context(), app, client.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]int{}
	for _, m := range machines {
		at[string(m.Worker)]++
	}
	for w, n := range at {
		if n != 4 {
			t.Errorf("%s has %d of %d machines: %v", w, n, len(machines), at)
		}
	}
}

// spreadLaunch is a launch that must be spread evenly over the workers.
func spreadLaunch(name string) *machine.Launch {
	l := launch(name)
	l.Scheduling = &machine.Scheduling{Spread: []machine.Spread{{Attribute: "worker", MaxSkew: 1}}}
	return l
}

// TestDestroyedMachinesLeaveTheSpread: six machines of a spread app are made, destroyed, and others made at once, five times, at
// members that are drawn: none is refused for those that are over, and no member counts these.
func TestDestroyedMachinesLeaveTheSpread(t *testing.T) {
	t.Parallel()
	c := testcluster.New(t, 3, testcluster.Options{Knobs: patient()})
	if _, err := c.Client(0).CreateApp(t.Context(), app); err != nil {
		t.Fatal(err)
	}
	for round := range 5 {
		n := []int{6, 3, 4, 1, 5}[round]
		var ids []string
		for i := range n {
			m, err := c.Client((round+i)%3).Launch(t.Context(), app, spreadLaunch(fmt.Sprint("re-", i)),
				client.LaunchOptions{})
			if err != nil {
				t.Fatalf("round %d, machine %d: %v", round, i, err)
			}
			ids = append(ids, m.ID)
		}
		for i, id := range ids {
			if _, err := c.Client((round+2*i)%3).Destroy(t.Context(), app, id, "", true); err != nil {
				t.Fatal(err)
			}
		}
		for k := range 3 {
			if list, err := c.Client(k).Apps(t.Context()); err != nil || list[0].MachineCount != 0 {
				t.Errorf("round %d at %d, all destroyed: %+v, %v", round, k, list, err)
			}
		}
	}
}

// TestSpreadSkipsCordonedWorkers: one of three workers is cordoned. Machines that must be spread evenly go to the two
// others, one by one and as a gang, as evenly as if there were no third.
func TestSpreadSkipsCordonedWorkers(t *testing.T) {
	t.Parallel()
	c := testcluster.New(t, 3, testcluster.Options{Knobs: patient()})
	if _, err := c.Client(0).CreateApp(t.Context(), app); err != nil {
		t.Fatal(err)
	}
	closed := api.WorkerCordon{Owner: "test", Reason: "test"}
	if _, err := c.Client(1).CordonWorker(t.Context(), string(c.Worker(2)), closed); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		if _, err := c.Client(i%3).Launch(t.Context(), app, spreadLaunch(""), client.LaunchOptions{}); err != nil {
			t.Errorf("machine %d: %v", i, err)
		}
	}
	gang := api.GangRequest{Size: 5, Launch: spreadLaunch("")}
	if _, err := c.Client(0).LaunchGang(t.Context(), app, gang); err != nil {
		t.Errorf("a gang: %v", err)
	}
	at := map[cluster.WorkerID]int{}
	list, err := c.Client(0).Machines(t.Context(), app, client.ListOptions{})
	for _, m := range list {
		at[m.Worker]++
	}
	if err != nil || at[c.Worker(0)] != 5 || at[c.Worker(1)] != 5 || at[c.Worker(2)] != 0 {
		t.Errorf("%v, %v", at, err)
	}
}
