package catalog

import (
	"time"

	"github.com/soukhq/souk/core/release"
)

// The verbs, as tests say them.

func (c *Services) Deploy(app string, r *release.Release, by string, parent *string, booking *release.Booking,
	now time.Time) (*release.Head, error) {
	h, _, err := c.Change(app, release.Change{Why: release.WhyDeploy, New: r, By: by, Parent: parent, Booking: booking,
		At: now})
	return h, err
}

func (c *Services) Scale(app string, counts map[string]int, by string, parent *string,
	now time.Time) (*release.Head, error) {
	return c.verb(app, release.Change{Why: release.WhyScale, Counts: counts}, by, parent, now)
}

func (c *Services) Restart(app, by string, parent *string, now time.Time) (*release.Head, error) {
	return c.verb(app, release.Change{Why: release.WhyRestart}, by, parent, now)
}

func (c *Services) Rollback(app, to, by string, parent *string, now time.Time) (*release.Head, []string, error) {
	return c.Change(app, release.Change{Why: release.WhyBack, Release: to, By: by, Parent: parent, At: now})
}

func (c *Services) Pause(app, by string, parent *string, now time.Time) (*release.Head, error) {
	return c.verb(app, release.Change{Why: release.WhyPause}, by, parent, now)
}

func (c *Services) Resume(app, by string, parent *string, now time.Time) (*release.Head, error) {
	return c.verb(app, release.Change{Why: release.WhyResume}, by, parent, now)
}

func (c *Services) Promote(app string, steps int, all bool, by string, parent *string,
	now time.Time) (*release.Head, error) {
	return c.verb(app, release.Change{Why: release.WhyPromote, Promote: steps, All: all}, by, parent, now)
}

func (c *Services) Move(app string, moves []release.MoveTo, stands func(id string) bool, by string,
	now time.Time) (*release.Head, error) {
	return c.verb(app, release.Change{Why: release.WhyMove, Moves: moves, Stands: stands}, by, nil, now)
}

func (c *Services) verb(app string, want release.Change, by string, parent *string,
	now time.Time) (*release.Head, error) {
	want.By, want.Parent, want.At = by, parent, now
	h, _, err := c.Change(app, want)
	return h, err
}
