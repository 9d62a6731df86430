package release

import (
	"cmp"
	"slices"
	"time"

	"github.com/soukhq/souk/core/cron"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Cron says when a machine of a group runs. Each run is a separate machine, which ends by itself.
type Cron struct {
	// Schedule has cron's five fields (minute, hour, day of the month, month, day of the week), or is @hourly, @daily,
	// @weekly, @monthly or @yearly.
	Schedule string  `json:"schedule"`
	Zone     string  `json:"zone,omitempty"`    // of the time zone database; "": UTC
	Overlap  Overlap `json:"overlap,omitempty"` // "": forbid
	// StartWithin is how late a missed run may still start; nil: 10m.
	StartWithin *machine.Duration `json:"start_within,omitempty"`
	Keep        *int              `json:"keep,omitempty"` // how many ended runs are kept for inspection; nil: 3
}

// Overlap is what happens to a run that is due while another one is running.
type Overlap string

// The overlaps.
const (
	Forbid      Overlap = "forbid"  // the new run is skipped
	AllowBoth   Overlap = "allow"   // both run
	ReplaceThat Overlap = "replace" // the running one is stopped first
)

// Defaults and bounds of Cron.
const (
	defaultStartWithin = 10 * time.Minute
	leastStartWithin   = time.Minute
	mostStartWithin    = 24 * time.Hour
	defaultKeep        = 3
	mostKeep           = 20
)

func (c *Cron) OnOverlap() Overlap { return cmp.Or(c.Overlap, Forbid) }

func (c *Cron) StartsWithin() time.Duration { return durationOr(c.StartWithin, defaultStartWithin) }

func (c *Cron) Keeps() int {
	if c.Keep == nil {
		return defaultKeep
	}
	return *c.Keep
}

// Rule is what determines the times of a job: its schedule and zone.
func (c *Cron) Rule() string { return c.Schedule + " " + cmp.Or(c.Zone, "UTC") }

// Next returns when the first run after a time is due, in UTC; zero: never.
func (c *Cron) Next(after time.Time) time.Time {
	s, err := cron.Parse(c.Schedule, c.Zone)
	if err != nil {
		return time.Time{} // a souk that knows more schedules or zones accepted it
	}
	return s.Next(after)
}

// checkCron refuses an invalid schedule, and settings that make no sense for machines that are not kept up.
func (g *Group) checkCron() error {
	c := g.Cron
	if c == nil {
		return nil
	}
	if _, err := cron.Parse(c.Schedule, c.Zone); err != nil {
		return invalid("group %s: %v", g.Name, err)
	}
	within, policy := c.StartsWithin(), ""
	if g.Config.Restart != nil {
		policy = g.Config.Restart.Policy
	}
	switch {
	case !slices.Contains([]Overlap{Forbid, AllowBoth, ReplaceThat}, c.OnOverlap()):
		return invalid("group %s says cron.overlap = %q; use %s, %s or %s", g.Name, fault.Clip(string(c.Overlap), 40),
			Forbid, AllowBoth, ReplaceThat)
	case within < leastStartWithin || within > mostStartWithin:
		return invalid("group %s says cron.start_within = %v; %v to %v are possible", g.Name, within, leastStartWithin,
			mostStartWithin)
	case c.Keeps() < 0 || c.Keeps() > mostKeep:
		return invalid("group %s says cron.keep = %d; 0 to %d runs can be kept", g.Name, c.Keeps(), mostKeep)
	case len(g.Config.Mounts) > 0 && c.OnOverlap() != Forbid:
		return invalid("group %s has a volume, which one machine can have, and cron.overlap = %s: say %s, or leave it "+
			"out", g.Name, c.Overlap, Forbid)
	case policy != "" && policy != "no" && policy != "on-failure":
		return invalid("group %s runs at times (cron), so its restart policy is no or on-failure, and not %s", g.Name,
			fault.Clip(policy, 40))
	}
	return g.checkUnkept()
}

// checkUnkept refuses, for a job, settings of machines that are kept up.
func (g *Group) checkUnkept() error {
	for what, said := range map[string]bool{"services": len(g.Config.Services) > 0, "update": g.Update != nil,
		"single": g.Single, "after": len(g.After) > 0, "autoscale": g.Autoscale != nil} {
		if said {
			return invalid("group %s runs at times (cron), so it has no %s: leave that out, or make another group",
				g.Name, what)
		}
	}
	return nil
}

// onceConfig returns the config of a machine that runs once to its end.
func onceConfig(c *machine.Config) *machine.Config {
	out := *c
	if c.Restart == nil || c.Restart.Policy != "on-failure" {
		out.Restart = &machine.Restart{Policy: "no"}
	}
	return &out
}
