package catalog

import (
	"time"

	"github.com/soukhq/souk/core/rollout"
)

// The verbs, as tests say them.

func (c *Catalog) Deploy(app string, r *rollout.Release, by string, parent *string, booking *rollout.Booking,
	now time.Time) (*rollout.Head, error) {
	h, _, err := c.Change(app, rollout.Change{Why: rollout.WhyDeploy, New: r, By: by, Parent: parent, Booking: booking,
		At: now})
	return h, err
}

func (c *Catalog) Scale(app string, counts map[string]int, by string, parent *string,
	now time.Time) (*rollout.Head, error) {
	return c.verb(app, rollout.Change{Why: rollout.WhyScale, Counts: counts}, by, parent, now)
}

func (c *Catalog) Restart(app, by string, parent *string, now time.Time) (*rollout.Head, error) {
	return c.verb(app, rollout.Change{Why: rollout.WhyRestart}, by, parent, now)
}

func (c *Catalog) Rollback(app, release, by string, parent *string, now time.Time) (*rollout.Head, []string, error) {
	return c.Change(app, rollout.Change{Why: rollout.WhyBack, Release: release, By: by, Parent: parent, At: now})
}

func (c *Catalog) Pause(app, by string, parent *string, now time.Time) (*rollout.Head, error) {
	return c.verb(app, rollout.Change{Why: rollout.WhyPause}, by, parent, now)
}

func (c *Catalog) Resume(app, by string, parent *string, now time.Time) (*rollout.Head, error) {
	return c.verb(app, rollout.Change{Why: rollout.WhyResume}, by, parent, now)
}

func (c *Catalog) Promote(app string, steps int, all bool, by string, parent *string,
	now time.Time) (*rollout.Head, error) {
	return c.verb(app, rollout.Change{Why: rollout.WhyPromote, Promote: steps, All: all}, by, parent, now)
}

func (c *Catalog) Move(app string, moves []rollout.MoveTo, stands func(id string) bool, by string,
	now time.Time) (*rollout.Head, error) {
	return c.verb(app, rollout.Change{Why: rollout.WhyMove, Moves: moves, Stands: stands}, by, nil, now)
}

func (c *Catalog) verb(app string, want rollout.Change, by string, parent *string,
	now time.Time) (*rollout.Head, error) {
	want.By, want.Parent, want.At = by, parent, now
	h, _, err := c.Change(app, want)
	return h, err
}
