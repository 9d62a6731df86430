package registry_test

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/soukhq/souk/core/registry"
)

// TestMembersAgreeAboutADeadMember: of a member that is dead all others come to know what any of them knows of its incarnation, also what
// it told behind something that was lost for good.
func TestMembersAgreeAboutADeadMember(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		w := newWorld(t, func(n int, what string) int {
			switch what {
			case "signed": // else one may refuse what another has heard without a head, and nobody has the head
				return 0
			case "tombstones": // else one may begin from 0 and never learn that it has all
				return 1000
			case "size", "bytes": // else one may have half a burst, where the rest was replaced by what nobody has
				return 10_000
			case "restart": // else one may have heard a little of the last incarnation, and all of the one before
				return 1
			}
			return rng.IntN(n)
		})
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			w.step()
		}
		dead := w.members[0]
		w.members = w.members[1:]
		for range 3 {
			for _, a := range w.members {
				for _, b := range w.members {
					w.exchange(a, b, 200)
				}
			}
		}
		first := w.members[0]
		for _, r := range w.members {
			if d := cmp.Diff(live(first), live(r)); d != "" {
				t.Fatalf("%s is dead, and %s and %s differ: %s", dead.Self(), first.Self(), r.Self(), d)
			}
			if r.Root() != first.Root() {
				t.Fatalf("%s: root %x and %x", r.Self(), r.Root(), first.Root())
			}
		}
	})
}

// TestUpdateBehindAGapOfADeadMemberCounts: b alone knows that a, now dead, removed m1, and no member knows a's update
// before that: the removal still counts.
func TestUpdateBehindAGapOfADeadMemberCounts(t *testing.T) {
	a, b, c := signing(t, "a", 5), signing(t, "b", 5), signing(t, "c", 5)
	said := func() registry.Update {
		t.Helper()
		u := a.News(1000, 9)
		if len(u) != 1 {
			t.Fatal(u)
		}
		return u[0]
	}
	if _, err := a.Put(noon, registry.Machine, "m1", 1, []byte("x")); err != nil {
		t.Fatal(err)
	}
	u := said()
	if err := errors.Join(merge(b, u), merge(c, u)); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Put(noon, registry.Machine, "m2", 1, []byte("y")); err != nil {
		t.Fatal(err)
	}
	said() // which is lost
	if err := a.Delete(noon, registry.Machine, "m1"); err != nil {
		t.Fatal(err)
	}
	if err := merge(b, said()); err != nil {
		t.Fatal(err)
	}
	ask := func(d registry.Digest) (registry.Delta, error) { return b.Delta(d, 1000), nil }
	if _, err := c.Exchange(noon, "b", 9, ask); err != nil {
		t.Fatal(err)
	}
	if _, known := c.Get("a", registry.Machine, "m1"); known || len(c.Gaps()) != 1 {
		t.Error("c still believes in m1, or knows of no gap:", c.Records(""), c.Gaps())
	}
}
