package release

import (
	"time"

	"github.com/soukhq/souk/machine"
)

// Bounds of StopAfter.
const (
	leastStopAfter = time.Second
	// apartMargin is what a worker may need to find that it hears nobody and to kill its machines, before others are made
	// in their place.
	apartMargin = time.Second
)

// StopsAfter returns for how long a worker may hear no other member until it stops its machines of the group; 0: it does not.
func (g *Group) StopsAfter() time.Duration { return durationOr(g.StopAfter, 0) }

// checkApart refuses a time after which machines stop that is out of bounds, or not before others are made in their place.
// Where the group does not say when that is, the shortest time counts that any member has.
func (g *Group) checkApart() error {
	most := g.LostWithin(0) - apartMargin
	switch after := g.StopsAfter(); {
	case g.StopAfter == nil:
	case after < leastStopAfter || after > machine.MaxApart:
		return invalid("group %s says stop_after = %v; %v to %v are possible", g.Name, after, leastStopAfter,
			machine.MaxApart)
	case g.Lost() != Never && after > most:
		return invalid("group %s says stop_after = %v, and others take the place of its machines after %v: they must "+
			"have stopped %v before, so say at most %v, or a longer lost_after", g.Name, after, g.LostWithin(0),
			apartMargin, most)
	}
	return nil
}
