package lifecycle

import (
	"time"

	"github.com/soukhq/souk/cluster"
)

// Short tasks (package jobs) are no machines: they have no row, no operations and no journal records here. All that a
// Supervisor knows of one is the room that it occupies, so that machines and tasks together never have more than there is.

// TaskRoom gives a task its room until TaskGone. It is judged like a grant; a task that has its room already keeps it.
func (s *Supervisor) TaskRoom(now time.Time, name string, want cluster.Resources) error {
	return s.seller.GrantVolume(now, name, want)
}

// TaskKnown enters the room of a task that runs since before, at start-up: it is a fact and is not judged.
func (s *Supervisor) TaskKnown(name string, want cluster.Resources) {
	s.seller.RestoreVolume(name, want)
}

// TaskGone gives the room back. Nothing happens when there is none.
func (s *Supervisor) TaskGone(name string) { s.seller.Free(name) }
