package member

import (
	"fmt"
	"math"
	"testing"

	"github.com/soukhq/souk/machine"
)

// TestAgreeAfterManyDeletions: a worker that has removed more machines than the 1,024 deletions that are kept is understood as
// before: after a round the others know what it has, and what it has no more.
func TestAgreeAfterManyDeletions(t *testing.T) {
	x := newTown(t)
	a, b := x.add("m1"), x.add("m2")
	x.meet()
	b.imports.reached(math.MaxUint64) // it has no catalog
	made := func(i int) *machine.Machine { return started("web", fmt.Sprint("m", i), "", "m2", 0) }
	remove := func(m *machine.Machine) {
		m.State = machine.Destroyed
		b.Machine(m)
	}
	const many = 1100
	for i := range many {
		b.Machine(made(i))
	}
	b.cluster.AnnounceNow()
	for i := range many {
		remove(made(i))
	}
	for i := many; i < many+20; i++ {
		m := made(i)
		b.Machine(m)
		a.Agree(t.Context(), true)
		if _, known := a.fleet.Snapshot().Machine(m.ID); !known {
			t.Errorf("%s is made, and not known", m.ID)
		}
		remove(m)
		a.Agree(t.Context(), true)
		if _, known := a.fleet.Snapshot().Machine(m.ID); known {
			t.Errorf("%s is removed, and known", m.ID)
		}
	}
}
