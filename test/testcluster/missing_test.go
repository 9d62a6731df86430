package testcluster_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/test/testcluster"
)

// oneOnEach makes machines until each of three members has one.
func oneOnEach(t *testing.T, c *testcluster.Cluster) map[cluster.WorkerID]*machine.Machine {
	t.Helper()
	at := map[cluster.WorkerID]*machine.Machine{}
	for i := 0; len(at) < 3 && i < 20; i++ {
		m := made(t, c.Client(0), fmt.Sprint("m-", i))
		at[m.Worker] = m
	}
	if len(at) < 3 {
		t.Fatalf("20 machines are on %d of 3 workers", len(at))
	}
	size := 1
	c.Until("each has a volume, and all know", func() bool {
		_, err := c.Client(0).CreateVolume(t.Context(), app, api.NewVolume{Name: "disk", SizeGB: &size})
		if err != nil {
			t.Fatal(err)
		}
		for w := range c.Member(0).Fleet().Snapshot().Workers() {
			if len(w.Record.Volumes) == 0 {
				return false
			}
		}
		return true
	})
	c.Meet()
	return at
}

// TestUnreachableMemberIsNamed: a firewall passes gossip and blocks calls. The others list what they know, name the
// unreachable member, and keep placing; an unknown machine is not found in the end.
func TestUnreachableMemberIsNamed(t *testing.T) {
	t.Parallel()
	c := begin(t, 3)
	at := oneOnEach(t, c)
	c.Firewall(2, true)
	c.Meet()
	missing := map[string]bool{}
	cl := c.Client(0).OnMissing(func(workers []string) {
		for _, id := range workers {
			missing[id] = true
		}
	})
	of := at[c.Worker(2)]
	lists := map[string]func() (int, error){
		"machines": func() (int, error) {
			ms, err := cl.Machines(t.Context(), app, client.ListOptions{})
			return len(ms), err
		},
		"lines": func() (int, error) {
			ms, err := cl.MachineLines(t.Context(), client.LineOptions{Name: of.Name})
			return len(ms), err
		},
		"apps": func() (int, error) { as, err := cl.Apps(t.Context()); return len(as), err },
	}
	all := 0
	for m := range c.Member(0).Fleet().Snapshot().MachinesOf(app) {
		_ = m
		all++
	}
	for what, ask := range lists {
		clear(missing)
		n, err := ask()
		want := map[string]int{"machines": all, "lines": 1, "apps": 1}[what]
		if err != nil || n != want {
			t.Errorf("%s: %d, not %d: %v", what, n, want, err)
		}
		if !missing[string(c.Worker(2))] || len(missing) > 1 {
			t.Errorf("%s name as missing %v", what, missing)
		}
	}
	if m, err := cl.Machine(t.Context(), app, of.ID); err != nil || m.HostStatus != "unreachable" {
		t.Errorf("a machine of the one that cannot be called: %+v, %v", m, err)
	}
	if m := made(t, cl, "meanwhile"); m.Worker == c.Worker(2) {
		t.Error("a machine was made at a member that cannot be called")
	}
	if _, err := cl.Destroy(t.Context(), app, of.ID, "", true); !fault.Is(err, fault.Unavailable) {
		t.Errorf("what only that one can do: %v", err)
	}
	if _, err := cl.CreateApp(t.Context(), "heard-of"); err != nil {
		t.Error("a change is refused for one that cannot be called:", err)
	}
	c.Until("that one knows of the change by gossip", func() bool {
		_, err := c.Client(2).App(t.Context(), "heard-of")
		return err == nil
	})
	if err := cl.DestroyApp(t.Context(), "heard-of"); err != nil {
		t.Error(err)
	}
	began := time.Now()
	c.Until("a machine that nobody has is not found", func() bool {
		_, err := cl.Machine(t.Context(), app, "0123456789abcd")
		if fault.Is(err, fault.NotFound) && !strings.Contains(err.Error(), string(c.Worker(2))) {
			t.Errorf("it is not said who was not asked: %v", err)
		}
		return fault.Is(err, fault.NotFound)
	})
	t.Logf("it took %v until a machine that nobody has was not found", time.Since(began).Round(time.Second))
	h, err := c.Client(0).Health(t.Context(), string(c.Worker(1)))
	if err != nil || h.OK || !slices.ContainsFunc(h.Findings, func(f api.HealthFinding) bool {
		return f.Member == c.Worker(2) && f.Check == "calls"
	}) {
		t.Errorf("the health of it all: %+v, %v", h, err)
	}
	c.Firewall(2, false)
	c.Meet()
	if m, err := cl.Machine(t.Context(), app, of.ID); err != nil || m.HostStatus == "unreachable" {
		t.Errorf("when it can be called again: %+v, %v", m, err)
	}
}

// TestListsSucceedDuringAMemberDeath: that a member has just died, and nobody knows yet, fails no list.
func TestListsSucceedDuringAMemberDeath(t *testing.T) {
	t.Parallel()
	c := begin(t, 3)
	of := oneOnEach(t, c)[c.Worker(2)]
	cl, ctx := c.Client(0), t.Context()
	over, failed := make(chan struct{}), make(chan error, 1)
	go func() {
		var err error
		for rounds := 0; err == nil; rounds++ {
			select {
			case <-over:
				failed <- nil
				return
			default:
			}
			_, apps := cl.Apps(ctx)
			_, volumes := cl.Volumes(ctx, app)
			_, one := cl.Machine(ctx, app, of.ID)
			ms, list := cl.Machines(ctx, app, client.ListOptions{})
			if err = errors.Join(apps, volumes, one, list); err == nil &&
				!slices.ContainsFunc(ms, func(m *machine.Machine) bool { return m.ID == of.ID }) {
				err = fmt.Errorf("round %d: of %d machines none is of the one that died", rounds, len(ms))
			}
		}
		failed <- err
	}()
	c.Kill(2)
	c.Until("it is dead", dead(c, 0, 2))
	close(over)
	if err := <-failed; err != nil {
		t.Error(err)
	}
}
