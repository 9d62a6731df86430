package member

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/machine"
)

// TestAgreementHoldsAfterManyDeletions: a worker that has removed more machines than the 1,024 deletions that are kept is
// understood as before: after a round the others know what it has, and what it has no more.
func TestAgreementHoldsAfterManyDeletions(t *testing.T) {
	x := newTown(t)
	a, b := x.add("m1"), x.add("m2")
	x.meet()
	b.imports.noteReached(math.MaxUint64) // it has no catalog
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

// TestAgreementStopsWaitingForADeadMember: one that does not answer is waited for, and not beyond its end.
func TestAgreementStopsWaitingForADeadMember(t *testing.T) {
	x := newTown(t)
	a, b := x.add("m1"), x.add("m2")
	x.meet()
	agreed := make(chan time.Time, 1)
	b.imports.noteReached(0) // it answers none before its catalog has all
	go func() {
		a.Agree(t.Context(), false)
		agreed <- time.Now()
	}()
	waittest.Until(t, "b is asked", func() bool {
		b.imports.mu.Lock()
		defer b.imports.mu.Unlock()
		return b.imports.moved != nil
	})
	select {
	case <-agreed:
		t.Fatal("it did not wait")
	default:
	}
	b.end()
	ended := time.Now()
	if late := (<-agreed).Sub(ended); late > agreeTime/2 {
		t.Errorf("it waited %v longer than b lived", late)
	}
}
