package testcluster_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/quota"
	"github.com/soukhq/souk/machine"
)

// capped is a launch of 150 thousandths of a core.
func capped() *machine.Launch {
	l := launch("")
	l.Config.Guest = &machine.Guest{CPUMilli: 150, CPUKind: "shared", MemoryMB: 16}
	return l
}

// TestQuotaCapHoldsClusterWide: a namespace that may occupy one core has six machines of 0.15, however many are asked for at
// all members at once, after some were destroyed as at first; and also after a host was lost right after it had made one.
func TestQuotaCapHoldsClusterWide(t *testing.T) {
	t.Parallel()
	c := begin(t, 3)
	ctx := t.Context()
	if _, err := c.Client(0).SetQuota(ctx, quota.Default, nil, nil, &quota.Caps{"cpu": 1}); err != nil {
		t.Fatal(err)
	}
	fill := func(members ...int) (made []*machine.Machine) {
		var mu sync.Mutex
		var all sync.WaitGroup
		for _, k := range members {
			for range 5 {
				all.Go(func() {
					m, err := c.Client(k).Launch(ctx, app, capped(), client.LaunchOptions{})
					mu.Lock()
					defer mu.Unlock()
					if err == nil {
						made = append(made, m)
					} else if !strings.Contains(err.Error(), "0.15 cores of namespace default, had ") {
						t.Error(err)
					}
				})
			}
		}
		all.Wait()
		return made
	}
	there := fill(0, 1, 2)
	if len(there) != 6 {
		t.Fatalf("%d machines of 0.15 cores are within a core", len(there))
	}
	for i, m := range there[:2] {
		if _, err := c.Client(i).Destroy(ctx, app, m.ID, "", true); err != nil {
			t.Fatal(err)
		}
	}
	if again := fill(2, 1, 0); len(again) != 2 {
		t.Fatalf("%d machines are made in the place of two", len(again))
	}
	at := capped()
	at.Scheduling = &machine.Scheduling{Require: []cluster.Requirement{{Attribute: "worker", Op: cluster.Equal,
		Values: []cluster.Value{cluster.Text(string(c.Worker(2)))}}}}
	if _, err := c.Client(1).Destroy(ctx, app, there[5].ID, "", true); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Client(1).Launch(ctx, app, at, client.LaunchOptions{}); err != nil {
		t.Fatal(err)
	}
	c.Kill(2) // its machines go on
	if more := fill(0, 1); len(more) > 0 {
		t.Errorf("%d machines are made beyond the cap, as a host is silent", len(more))
	}
}
