package testcluster_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/test/testcluster"
)

const app = "web"

func launch(name string) *machine.Launch {
	return &machine.Launch{
		Name: name,
		Config: &machine.Config{Image: "souk/host", Init: machine.Init{Exec: []string{"sleep", "1000000"}},
			Guest:   &machine.Guest{CPUKind: "shared", CPUs: 1, MemoryMB: 256},
			Restart: &machine.Restart{Policy: "always"}},
	}
}

func made(t *testing.T, cl *client.Client, name string) *machine.Machine {
	t.Helper()
	m, err := cl.Launch(t.Context(), app, launch(name), client.LaunchOptions{Key: "key-" + name, NewKey: true})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// begin makes a cluster with an app that all know.
func begin(t *testing.T, n int) *testcluster.Cluster {
	t.Helper()
	c := testcluster.New(t, n, testcluster.Options{})
	if _, err := c.Client(0).CreateApp(t.Context(), app); err != nil {
		t.Fatal(err)
	}
	c.Until("every member has the app", func() bool {
		for i := range n {
			if _, err := c.Client(i).App(t.Context(), app); err != nil {
				return false
			}
		}
		return true
	})
	return c
}

// TestAnyMemberServesAnyMachine: what is made through one is seen, explained, stopped and destroyed through any other.
func TestAnyMemberServesAnyMachine(t *testing.T) {
	t.Parallel()
	c := begin(t, 3)
	for i := range 3 {
		m := made(t, c.Client(i), fmt.Sprintf("m-%d", i))
		for k := range 3 {
			got, err := c.Client(k).Machine(t.Context(), app, m.ID)
			if err != nil || got.Worker != m.Worker || got.InstanceID != m.InstanceID || got.State != machine.Started {
				t.Errorf("made at %d on %s, seen at %d: %+v, %v", i, m.Worker, k, got, err)
			}
			e, err := c.Client(k).Explain(t.Context(), app, m.ID, 0)
			if err != nil || e.Placement == nil || len(e.Now) != 3 {
				t.Errorf("made at %d, not explained at %d: %+v, %v", i, k, e, err)
			}
		}
		other, third := c.Client((i+1)%3), c.Client((i+2)%3)
		if _, err := other.Stop(t.Context(), app, m.ID, "", client.StopOptions{}); err != nil {
			t.Error(err)
		}
		if err := third.Wait(t.Context(), app, m.ID, time.Minute, machine.Stopped); err != nil {
			t.Error(err)
		}
		if _, err := third.Destroy(t.Context(), app, m.ID, "", true); err != nil {
			t.Error(err)
		}
	}
	if _, err := c.Client(0).Machine(t.Context(), app, "0123456789abcd"); !fault.Is(err, fault.NotFound) {
		t.Error("a machine that nobody has:", err)
	}
}

// TestViewsConvergeWithoutAsking: every member comes to know what the others have used, without asking.
func TestViewsConvergeWithoutAsking(t *testing.T) {
	t.Parallel()
	c := begin(t, 3)
	for i := range 6 {
		made(t, c.Client(0), fmt.Sprint("m-", i))
	}
	c.Until("every member knows that six machines use memory", func() bool {
		for i := range 3 {
			w, err := c.Client(i).Workers(t.Context())
			var used cluster.Resources
			for _, r := range w.Workers {
				used = used.Add(r.Used)
			}
			if err != nil || used.Memory != 6*256 {
				return false
			}
		}
		return true
	})
}

// TestSecretsAndPoliciesReachAllMembers: secrets and policies made at one member are at all.
func TestSecretsAndPoliciesReachAllMembers(t *testing.T) {
	t.Parallel()
	c := begin(t, 3)
	value := "a"
	if err := c.Client(1).SetSecrets(t.Context(), app, map[string]*string{"KEY": &value}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Client(2).ApplyPolicy(t.Context(), "name = \"tight\"\n[[score]]\nname = \"full\"\nexpr = "+
		"\"double(worker.machines)\"\n"); err != nil {
		t.Fatal(err)
	}
	c.Until("every member has the secret and the policy", func() bool {
		for i := range 3 {
			s, err := c.Client(i).Secrets(t.Context(), app)
			p, errP := c.Client(i).Policies(t.Context())
			if err != nil || errP != nil || len(s) != 1 || len(p) == 0 {
				return false
			}
		}
		return true
	})
	// And what is taken away at another one is gone at all.
	if err := c.Client(0).SetSecrets(t.Context(), app, map[string]*string{"KEY": nil}); err != nil {
		t.Fatal(err)
	}
	c.Until("no member has the secret", func() bool {
		for i := range 3 {
			if s, err := c.Client(i).Secrets(t.Context(), app); err != nil || len(s) != 0 {
				return false
			}
		}
		return true
	})
}

// TestDownMembersMachinesAreNotMissing: the others go on; what the one has they do not call missing; and it comes back as it was.
func TestDownMembersMachinesAreNotMissing(t *testing.T) {
	t.Parallel()
	c := begin(t, 3)
	at := map[cluster.WorkerID]*machine.Machine{}
	for i := 0; len(at) < 3 && i < 20; i++ {
		m := made(t, c.Client(0), fmt.Sprint("m-", i))
		at[m.Worker] = m
	}
	if len(at) < 3 {
		t.Fatalf("20 machines are on %d of 3 workers", len(at))
	}
	c.Kill(2)
	c.Until("the others hold it for dead", func() bool {
		ms, err := c.Client(0).Members(t.Context())
		for _, m := range ms {
			if m.ID == c.Worker(2) && m.State == "dead" {
				return true
			}
		}
		return err != nil
	})
	if m := made(t, c.Client(1), "meanwhile"); m.Worker == c.Worker(2) {
		t.Error("a machine was made at a member that is down")
	}
	m, err := c.Client(0).Machine(t.Context(), app, at[c.Worker(2)].ID)
	if err != nil || m.HostStatus != "unreachable" {
		t.Errorf("a machine of the one that is down: %+v, %v", m, err)
	}
	if _, err := c.Client(0).Machine(t.Context(), app, "0123456789abcd"); !fault.Is(err, fault.Unavailable) {
		t.Error("nobody can say that there is no such machine while one cannot be asked; the answer was", err)
	}
	c.Restart(2)
	c.Meet()
	if m, err = c.Client(0).Machine(t.Context(), app, at[c.Worker(2)].ID); err != nil || m.State != machine.Started ||
		m.InstanceID != at[c.Worker(2)].InstanceID {
		t.Errorf("after it is back: %+v, %v", m, err)
	}
}

// TestRestartedMemberMakesNoDuplicate: a member that has just begun, and has not heard the others yet, does not say that
// their machines do not exist, nor makes them a second time.
func TestRestartedMemberMakesNoDuplicate(t *testing.T) {
	t.Parallel()
	c := begin(t, 3)
	l := launch("once")
	l.ID = "1a2b3c4d5e6f70"
	m, err := c.Client(0).Launch(t.Context(), app, l, client.LaunchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if c.Worker(i) == m.Worker {
			continue
		}
		c.Kill(i)
		c.Restart(i)
		for {
			again, err := c.Client(i).Launch(t.Context(), app, l, client.LaunchOptions{})
			if fault.Is(err, fault.Unavailable) {
				continue // it cannot know yet, and says so
			}
			if err != nil || again.Worker != m.Worker || again.InstanceID != m.InstanceID {
				t.Errorf("made at %s as %s, and asked again at %s: %+v, %v", m.Worker, m.InstanceID, c.Worker(i), again,
					err)
			}
			break
		}
	}
}

// TestColdStartRestoresEveryMachine: after a power loss of all, every machine is back, once, and all members agree.
func TestColdStartRestoresEveryMachine(t *testing.T) {
	t.Parallel()
	c := begin(t, 3)
	var ms []*machine.Machine
	for i := range 6 {
		ms = append(ms, made(t, c.Client(i%3), fmt.Sprint("m-", i)))
	}
	for i := range 3 {
		c.PowerOff(i)
	}
	for _, i := range []int{2, 0, 1} {
		c.Restart(i)
	}
	c.Meet()
	for i, m := range ms {
		cl := c.Client((i + 1) % 3)
		if err := cl.Wait(t.Context(), app, m.ID, time.Minute, machine.Started); err != nil {
			t.Errorf("machine %s of %s: %v", m.ID, m.Worker, err)
		}
	}
	all, err := c.Client(1).Machines(t.Context(), app, client.ListOptions{})
	if err != nil || len(all) != len(ms) {
		t.Errorf("%d machines were made, there are %d: %v", len(ms), len(all), err)
	}
}
