package testcluster_test

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/test/testcluster"
)

// TestMemberEvictionResumesAfterKills: the agent that does it is killed after every step, and a rotation was on its way before,
// whose key the evicted member has. In the end it has nothing that opens anything.
func TestMemberEvictionResumesAfterKills(t *testing.T) {
	t.Parallel()
	c := begin(t, 3)
	const issuer, other, bad = 0, 1, 2
	value := "hush"
	if err := c.Client(other).SetSecrets(t.Context(), app, map[string]*string{"KEY": &value}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.CA().RotateGossip(time.Now()); err != nil {
		t.Fatal(err)
	}
	c.Until("the key that is made before the removal reaches the one that is to be removed", func() bool {
		return c.Member(bad).Cluster().Keys() >= 1
	})
	id, said := string(c.Worker(bad)), map[string]bool{}
	var e api.MemberEviction
	c.Until("it is evicted", func() bool {
		var err error
		if e, err = c.Client(issuer).Evict(t.Context(), id, api.EvictRequest{By: "test"}); err != nil {
			t.Fatal(err)
		}
		if last := e.Steps[len(e.Steps)-1].Text; !said[last] && !e.Done {
			said[last] = true
			c.Kill(issuer)
			c.Restart(issuer)
		}
		return e.Done
	})
	if len(said) < 2 {
		t.Errorf("it was broken off %d times: %v", len(said), said)
	}
	k, err := c.CA().Gossip()
	if err != nil {
		t.Fatal(err)
	}
	has := c.Member(bad).Identity().GossipKeys()
	if slices.ContainsFunc(has.All(), func(key []byte) bool { return bytes.Equal(key, k.Keys[0]) }) {
		t.Error("the evicted member has the key that gossip has now")
	}
	tried(t, c, id)
	if _, err := c.Client(issuer).Evict(t.Context(), id, api.EvictRequest{}); err != nil {
		t.Error(err)
	}
	if again, err := c.CA().Gossip(); err != nil || again.Generation != k.Generation {
		t.Errorf("asked again it rotates again: %d, %v", again.Generation, err)
	}
	if _, err := c.Client(other).Evict(t.Context(), id, api.EvictRequest{}); fault.CodeOf(err) != "authority" {
		t.Error(err)
	}
	// Who is asked about an eviction that was not made, or of itself, says so.
	if _, err := c.Client(issuer).CheckEviction(t.Context(), string(c.Worker(other))); fault.CodeOf(err) !=
		"not_removed" {
		t.Error(err)
	}
	_, err = c.Client(issuer).Evict(t.Context(), string(c.Worker(issuer)), api.EvictRequest{})
	if fault.CodeOf(err) != "self" {
		t.Error(err)
	}
}

// tried waits until all that the disk of a member lets who has it do is refused at both others.
func tried(t *testing.T, c *testcluster.Cluster, id string) {
	t.Helper()
	var check api.EvictionCheck
	c.Until("all is tried and refused", func() bool {
		var err error
		if check, err = c.Client(0).CheckEviction(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		return check.OK
	})
	if len(check.Tries) != 2*3 || len(check.Left) != 1 {
		t.Errorf("%+v", check)
	}
}

// TestCheckFindsAnUnrotatedGossipKey: of a member that was removed and not evicted, the key of gossip still opens it.
func TestCheckFindsAnUnrotatedGossipKey(t *testing.T) {
	t.Parallel()
	c := begin(t, 3)
	id := string(c.Worker(2))
	if _, err := c.Client(0).RemoveMember(t.Context(), id,
		client.RemoveOptions{By: "test", Reason: "stolen", Force: true, ForgetMachines: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.CA().RotateGossip(time.Now()); err != nil {
		t.Fatal(err)
	}
	c.Until("the new key is in use, and the old one not forgotten", func() bool {
		k, err := c.CA().Gossip()
		return err == nil && k.Step == "used"
	})
	found := func(check api.EvictionCheck) bool {
		return slices.ContainsFunc(check.Tries, func(x api.EvictionTry) bool {
			return x.What == "gossip-key" && x.Have == "a key of before opens its gossip"
		})
	}
	check, err := c.Client(0).CheckEviction(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if k, err := c.CA().Gossip(); err == nil && k.Step == "used" && (check.OK || !found(check)) {
		t.Errorf("%+v", check)
	}
}
