package release

import (
	"time"

	"github.com/soukhq/souk/machine"
)

// Bounds of StopAfter.
const (
	leastStopAfter = time.Second
	// apartMargin is how long a worker may need to notice that it hears nobody and to kill its machines, before others
	// replace them.
	apartMargin = time.Second
)

// StopsAfter returns how long a worker may hear no other member before it stops its machines of the group; 0: it never
// stops them.
func (g *Group) StopsAfter() time.Duration { return durationOr(g.StopAfter, 0) }

// checkApart refuses a StopAfter that is out of bounds, or not shorter than the time after which lost machines are
// replaced. If the group does not set that time, the shortest of any pace counts.
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
