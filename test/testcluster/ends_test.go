package testcluster_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/mesh/gossip"
	"github.com/soukhq/souk/mesh/gossip/gossiptest"
	"github.com/soukhq/souk/test/testcluster"
)

// TestDestroyIsKnownAfterWorkerDeath: machines are destroyed, which is answered, and their worker, which has removed very many, dies. The
// others know that they are gone, so nothing bars the end of their apps.
func TestDestroyIsKnownAfterWorkerDeath(t *testing.T) {
	t.Parallel()
	k := gossiptest.Fast()
	k.Suspicion = 8
	// All else than what an answer waits for comes too late.
	k.Flush, k.Save, k.StuckAfter = time.Hour, time.Hour, time.Hour
	c := testcluster.New(t, 3, testcluster.Options{Knobs: k})
	of := c.Member(2).Cluster()
	told := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range 1100 { // more than the deletions that are kept
		told(of.AnnounceMachine(gossip.Machine{ID: fmt.Sprint("gone", i), App: "gone", Worker: c.Worker(2)}))
	}
	of.AnnounceNow()
	for i := range 1100 {
		told(of.RemoveMachine(fmt.Sprint("gone", i)))
	}
	of.AnnounceNow()
	var apps []string
	for i := 0; len(apps) < 5; i++ {
		name := fmt.Sprint("ends-", i)
		_, err := c.Client(0).CreateApp(t.Context(), name)
		told(err)
		m, err := c.Client(i%2).Launch(t.Context(), name, stopped(""), client.LaunchOptions{})
		told(err)
		_, err = c.Client(i%2).Destroy(t.Context(), name, m.ID, "", true)
		told(err)
		if m.Worker == c.Worker(2) {
			apps = append(apps, name)
		}
	}
	c.Kill(2)
	c.Until("the others know that it is dead", func() bool {
		for i := range 2 {
			if w, _ := c.Member(i).Fleet().Snapshot().Worker(c.Worker(2)); w.State != cluster.MemberDead {
				return false
			}
		}
		return true
	})
	for i, name := range apps {
		if err := c.Client(i%2).DestroyApp(t.Context(), name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
