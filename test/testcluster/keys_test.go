package testcluster_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/mesh/gossip"
	"github.com/soukhq/souk/mesh/gossip/gossiptest"
	"github.com/soukhq/souk/test/testcluster"
)

// TestRotationShutsOutARemovedMember: after a removal and a rotation of the gossip key the others keep working; the
// removed member receives nothing and cannot return, with its old agent or a new one; a member that was only away
// returns by itself.
func TestRotationShutsOutARemovedMember(t *testing.T) {
	t.Parallel()
	c := begin(t, 4)
	const issuer, other, bad, away = 0, 1, 2, 3
	value := "before"
	if err := c.Client(other).SetSecrets(t.Context(), app, map[string]*string{"KEY": &value}); err != nil {
		t.Fatal(err)
	}
	c.Meet()
	c.Kill(away)
	c.Until("the one that is away is dead to the others", dead(c, issuer, away))
	if err := c.Member(issuer).Remove(cluster.Removal{Member: c.Worker(bad), By: "test", Reason: "stolen",
		At: time.Now()}, true); err != nil {
		t.Fatal(err)
	}
	c.Until("the other member knows of it too, and places nothing there any more",
		func() bool { return len(c.Member(other).Removed()) == 1 })
	k, err := c.CA().RotateGossip(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	before := k.Keys[:1]
	n := 0
	goesOn := func() { n++; goOn(t, c, issuer, other, n) }
	for k.Generation < 3 || k.Step != "" {
		goesOn()
		if k, err = c.CA().Gossip(); err != nil {
			t.Fatal(err)
		}
	}
	c.Until("all that are heard have the new key alone", func() bool {
		return c.Member(issuer).Cluster().Keys() == 3 && c.Member(other).Cluster().Keys() == 3
	})
	goesOn()

	// The removed one: its gossip opens nothing, and nobody gives it the key.
	c.Until("the removed one is not heard", dead(c, other, bad))
	m := made(t, c.Client(issuer), "secretly")
	c.Until("the other member sees the machine",
		func() bool { _, ok := c.Member(other).Cluster().Machine(m.ID); return ok })
	if err := c.Member(bad).Cluster().Join(t.Context(), []string{c.Member(issuer).GossipAddress()}); err == nil {
		t.Error("the removed member could join")
	}
	c.Kill(bad)
	c.Restart(bad)

	// The one that was away has the old key, and gets the new one.
	c.Restart(away)
	c.Until("the one that was away is back", func() bool {
		_, ok := c.Member(away).Cluster().Machine(m.ID)
		x, _ := c.Member(other).Cluster().Member(c.Worker(away))
		return ok && x.State == cluster.MemberAlive && x.Keys == 3
	})
	if _, ok := c.Member(bad).Cluster().Machine(m.ID); ok {
		t.Error("the removed member heard of a machine that was made afterwards")
	}
	if got := c.Member(bad).Identity().GossipKeys(); got.Generation > 0 || len(got.Keys) != 1 ||
		string(got.Keys[0]) != string(before[0]) {
		t.Errorf("the removed member was given keys: generation %d, %d keys", got.Generation, len(got.Keys))
	}
	// Secrets that were sealed before are still to be had, also for who joins now.
	fresh := c.Join()
	c.Until("a member that joins afterwards has the secret", func() bool {
		s, err := c.Client(fresh).Secrets(t.Context(), app)
		return err == nil && len(s) == 1
	})
}

// goOn makes a machine through one of two members, and destroys it through the other once both have seen it.
func goOn(t *testing.T, c *testcluster.Cluster, i, k, n int) {
	t.Helper()
	m := made(t, c.Client([]int{i, k}[n%2]), fmt.Sprint("during-", n))
	c.Until("both members see the machine", func() bool {
		_, a := c.Member(i).Cluster().Machine(m.ID)
		_, b := c.Member(k).Cluster().Machine(m.ID)
		return a && b
	})
	if _, err := c.Client([]int{i, k}[(n+1)%2]).Destroy(t.Context(), app, m.ID, "", true); err != nil {
		t.Fatal(err)
	}
}

// dead reports whether a member holds another for dead, or knows it no more.
func dead(c *testcluster.Cluster, i, k int) func() bool {
	return func() bool {
		x, _ := c.Member(i).Cluster().Member(c.Worker(k))
		return x.State == cluster.MemberDead || x.State == ""
	}
}

// ghost is somebody in gossip who has the key and no certificate, under any name.
func ghost(t *testing.T, c *testcluster.Cluster, name cluster.WorkerID, key []byte) {
	t.Helper()
	g, err := gossip.New(gossip.Options{Self: name, Role: "worker", API: "127.0.0.1:1", Bind: "127.0.0.1:0",
		Keys: [][]byte{key}, Dir: t.TempDir(), Knobs: gossiptest.Fast(), Incarnation: 1,
		Peers: []string{c.Member(0).GossipAddress()}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = g.Run(ctx) }()
	t.Cleanup(func() { end(); <-done })
	c.Until("the others hear "+string(name), func() bool {
		x, _ := c.Member(0).Cluster().Member(name)
		return x.State == cluster.MemberAlive
	})
}

// TestRotationIgnoresUncertifiedMembers: who has the old key, and so names in gossip, is no member without a certificate
// (security H6).
func TestRotationIgnoresUncertifiedMembers(t *testing.T) {
	t.Parallel()
	c := testcluster.New(t, 3, testcluster.Options{})
	const issuer, other, down = 0, 1, 2
	old := c.Member(issuer).Identity().GossipKeys().Keys[0]
	c.Kill(down)
	c.Until("one is dead", dead(c, issuer, down))
	ghost(t, c, "ghost6", old)
	ghost(t, c, c.Worker(down), old) // in the name of one that has a certificate, and is away
	if _, err := c.CA().RotateGossip(time.Now()); err != nil {
		t.Fatal(err)
	}
	c.Until("the rotation is over", func() bool {
		k, err := c.CA().Gossip()
		return err == nil && k.Generation == 3 && k.Step == "" && c.Member(other).Cluster().Keys() == 3
	})
	c.Restart(down)
	c.Until("the one that was away has the new key", func() bool { return c.Member(down).Cluster().Keys() == 3 })
}

// TestMovedIssuerIsFound: an issuer comes back at another address, after a rotation that was forced while it was
// away, and uses a key that the other lacks: neither reads the other's gossip, and the other knows no right address of
// it. The issuer tells it over the wire.
func TestMovedIssuerIsFound(t *testing.T) {
	t.Parallel()
	c := testcluster.New(t, 2, testcluster.Options{})
	const issuer, other = 0, 1
	c.Meet()
	c.Kill(issuer)
	c.Until("the issuer is dead to the other", dead(c, other, issuer))
	k, err := c.CA().RotateGossip(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if k, err = c.CA().AdvanceGossip(k.Generation); err != nil { // as with --force
		t.Fatal(err)
	}
	bundle, err := c.CA().Bundle()
	if err != nil {
		t.Fatal(err)
	}
	// The agent does this when it begins, and may get around to it before it has said a word to anybody.
	if err := c.Member(issuer).Identity().Trust(bundle, time.Now()); err != nil {
		t.Fatal(err)
	}
	c.Move(issuer)
	c.Until("both have the new key alone, and hear each other", func() bool {
		x, _ := c.Member(other).Cluster().Member(c.Worker(issuer))
		a, b := c.Member(issuer).Cluster().Keys(), c.Member(other).Cluster().Keys()
		return a == k.Generation+1 && b == a && x.State == cluster.MemberAlive
	})
}
