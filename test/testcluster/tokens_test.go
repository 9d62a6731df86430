package testcluster_test

import (
	"testing"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
)

// TestRemovedMembersTokenIsRefused: who has the disk of a member that was removed has its token, which is let in nowhere.
func TestRemovedMembersTokenIsRefused(t *testing.T) {
	t.Parallel()
	c := begin(t, 3)
	const bad = 2
	good := func(i int) bool {
		_, err := c.ClientWith(i, c.Token(bad)).Apps(t.Context())
		if err != nil && !fault.Is(err, fault.Denied) {
			t.Fatal(err)
		}
		return err == nil
	}
	c.Until("the token of one member is good at all", func() bool { return good(0) && good(1) && good(2) })
	removal := cluster.Removal{Member: c.Worker(bad), By: "test", Reason: "stolen", At: time.Now()}
	if err := c.Member(0).Remove(removal, true); err != nil {
		t.Fatal(err)
	}
	c.Until("all have heard of the removal", func() bool { return len(c.Member(1).Removed()) == 1 })
	for i := range 2 {
		if good(i) {
			t.Errorf("member %d lets in the token of the one that was removed", i)
		}
		if _, err := c.Client(i).Apps(t.Context()); err != nil {
			t.Errorf("member %d does not let in its own: %v", i, err)
		}
	}
}
