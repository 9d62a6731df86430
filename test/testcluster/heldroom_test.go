package testcluster_test

import (
	"testing"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/test/testcluster"
)

// hostRelease is a release of n programs of the host, each of so much memory.
func hostRelease(n int, mb int) api.NewRelease {
	return api.NewRelease{Groups: []api.NewGroup{{Replicas: &n, Group: release.Group{Name: "web",
		Config: &machine.Config{Image: "souk/host",
			Init:  machine.Init{Exec: []string{"/bin/sleep", "600"}},
			Guest: &machine.Guest{CPUKind: "shared", CPUs: 1, MemoryMB: mb}}}}}}
}

// TestReservedRoomIsKeptForItsRelease: room held by a plan goes to the machines of its release only, also where
// another member deploys it and a third is its steward.
func TestReservedRoomIsKeptForItsRelease(t *testing.T) {
	t.Parallel()
	c := testcluster.New(t, 3, testcluster.Options{
		Capacity: cluster.Resources{CPU: 16_000, Memory: 1024, Disk: 100_000, Ports: 1000}})
	if _, err := c.Client(0).CreateApp(t.Context(), app); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		c.Until("the app is there", func() bool { _, err := c.Client(i).App(t.Context(), app); return err == nil })
	}
	in := hostRelease(3, 768) // one fits at each worker
	p, err := c.Client(0).HoldRelease(t.Context(), app, in)
	if err != nil || p.Fits != api.FitsNow || p.Held == nil || len(p.Held.At) != 3 {
		t.Fatalf("%+v, %v", p, err)
	}
	if left := time.Until(p.Held.Until); left < 30*time.Second || left > time.Minute {
		t.Errorf("it is held for %v", left)
	}
	other := &machine.Launch{Name: "other", Config: hostRelease(1, 512).Groups[0].Config}
	if _, err := c.Client(1).Launch(t.Context(), app, other, client.LaunchOptions{}); !fault.Is(err, fault.Exhausted) {
		t.Fatalf("another machine took the room: %v", err)
	}
	in.Held = p.Held
	if _, err := c.Client(1).Deploy(t.Context(), app, in); err != nil {
		t.Fatal(err)
	}
	c.Until("three machines run where they were planned", func() bool {
		s, err := c.Client(2).Service(t.Context(), app)
		if err != nil || len(s.Groups) != 1 || s.Groups[0].Ready != 3 {
			return false
		}
		for _, x := range s.Groups[0].Slots {
			if at := p.Held.At["web/"+string(rune('0'+x.Index))]; at != x.Worker {
				t.Errorf("web/%d is at %s, and was planned for %s", x.Index, x.Worker, at)
			}
		}
		return true
	})
	again, err := c.Client(2).HoldRelease(t.Context(), app, hostRelease(3, 900))
	if err != nil || again.Fits != api.FitsLater || again.Held != nil {
		t.Fatalf("%+v, %v", again, err)
	}
}
