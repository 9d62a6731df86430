package testcluster_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/test/testcluster"
)

// loseDisk kills a member, removes it, and has it join anew without what it had, as fast as that goes.
func loseDisk(t *testing.T, c *testcluster.Cluster, i int) {
	t.Helper()
	c.Kill(i)
	c.Until("it is dead", dead(c, 0, i))
	_, err := c.Client(0).RemoveMember(t.Context(), string(c.Worker(i)),
		client.RemoveOptions{By: "test", Reason: "its disk is lost", ForgetMachines: true})
	if err != nil {
		t.Fatal(err)
	}
	c.Until("it may join anew", func() bool { return c.Rejoin(i) == nil })
	c.Restart(i)
}

// TestRejoinedMemberDiesAsAnyOther: a member that was removed with its lost disk, and rejoined, dies: its machines are
// listed, its names stay taken and its id is not reused, also at members that restart meanwhile.
func TestRejoinedMemberDiesAsAnyOther(t *testing.T) {
	t.Parallel()
	c := begin(t, 3)
	loseDisk(t, c, 2)
	c.Meet()
	var m *machine.Machine
	for i := 0; m == nil || m.Worker != c.Worker(2); i++ {
		if i == 20 {
			t.Fatal("20 machines are not on the member that joined anew")
		}
		m = made(t, c.Client(i%3), "after-"+string(rune('a'+i)))
	}
	c.Meet()
	if got := c.Member(0).Deciders(); len(got) != 3 {
		t.Errorf("claims are decided by %v", got)
	}
	if got := c.Member(1).Removed(); len(got) > 0 {
		t.Errorf("a member that has joined anew is shown as removed: %v", got)
	}
	c.Kill(2)
	for _, i := range []int{0, 1} {
		c.Until("it is dead to all", dead(c, i, 2))
	}
	there := func() {
		t.Helper()
		for _, i := range []int{0, 1} {
			ms, err := c.Client(i).Machines(t.Context(), app, client.ListOptions{})
			found := false
			for _, x := range ms {
				found = found || x.ID == m.ID
			}
			if err != nil || !found {
				t.Errorf("at %d it is not among %d machines: %v", i, len(ms), err)
			}
			if _, err := c.Client(i).Launch(t.Context(), app, launch(m.Name), client.LaunchOptions{}); err == nil {
				t.Errorf("at %d its name is free", i)
			}
		}
	}
	there()
	if err := c.Rejoin(2); err == nil {
		t.Error("its id was given to somebody else")
	}
	c.Kill(0)
	c.Restart(0)
	c.Until("the first member is back and knows all again", func() bool {
		_, known := c.Member(0).Fleet().Snapshot().Machine(m.ID)
		return known
	})
	there()
}

// TestRemovedMemberRejoinsWithinASecond: both say success, and so it is.
func TestRemovedMemberRejoinsWithinASecond(t *testing.T) {
	t.Parallel()
	c := begin(t, 2)
	for i := range 3 { // one of them may happen to be in two seconds
		loseDisk(t, c, 1)
		c.Meet()
		if ok, text := c.Ready(1); !ok {
			t.Fatal(text)
		}
		c.Until("it has the app", func() bool { _, err := c.Client(1).App(t.Context(), app); return err == nil })
		made(t, c.Client(1), fmt.Sprint("round-", i))
	}
}

// TestUnknownMemberCanBeRemoved: it was saved by an earlier life of the member that is asked, or its certificate is
// known where it was signed, or somebody insists; and its certificate then opens nothing.
func TestUnknownMemberCanBeRemoved(t *testing.T) {
	t.Parallel()
	c := begin(t, 3)
	c.Until("all have written down who there is", func() bool {
		for _, i := range []int{0, 1} {
			if saved, err := c.Saved(i); err != nil || len(saved) != 2 {
				return false
			}
		}
		return true
	})
	for i := range 3 {
		c.Kill(i)
	}
	c.Restart(0)
	c.Restart(1)
	remove := func(i int, id string, force bool) error {
		_, err := c.Client(i).RemoveMember(t.Context(), id,
			client.RemoveOptions{By: "test", Reason: "stolen", Force: force, ForgetMachines: true})
		return err
	}
	if err := remove(1, string(c.Worker(2)), false); err != nil {
		t.Errorf("one that was saved: %v", err)
	}
	if err := remove(1, "nobody", false); !fault.Is(err, fault.NotFound) {
		t.Errorf("one that nobody has heard of: %v", err)
	}
	if err := remove(1, "nobody", true); err != nil {
		t.Errorf("one that nobody has heard of, with force: %v", err)
	}
	c.Restart(2)
	c.Until("it is told that it was removed", func() bool {
		ok, text := c.Ready(2)
		return !ok && strings.Contains(text, "removed") && strings.Contains(text, "join")
	})
	if w, known := c.Member(0).Fleet().Snapshot().Worker(cluster.WorkerID("m3")); known {
		t.Errorf("it is shown: %+v", w)
	}
}
