package release

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Update is how a group's machines are replaced by those of another release. The zero value is a rolling update that
// is undone if it fails.
type Update struct {
	Strategy Strategy `json:"strategy,omitempty"` // "": rolling
	// MaxSurge is how many surplus machines may exist, as a number or a percentage: "5", "25%". "": 25%, at least 1. A
	// percentage is rounded up.
	MaxSurge string `json:"max_surge,omitempty"`
	// MaxUnavailable is how many replicas may lack a ready machine because the old one is removed first. "": 0, or 1
	// with order stop-first. A percentage is rounded down.
	MaxUnavailable string `json:"max_unavailable,omitempty"`
	Order          Swap   `json:"order,omitempty"` // "": start-first, unless a volume or a published port forbids it
	// MinUp is how long a new machine must be ready without interruption before the old one is removed; nil: watchFor,
	// or half of Deadline if that is less.
	MinUp *machine.Duration `json:"min_up,omitempty"`
	// Deadline is how long a new machine may take to become ready; nil: 5m.
	Deadline  *machine.Duration `json:"deadline,omitempty"`
	Steps     []CanaryStep      `json:"steps,omitempty"`      // of a canary; none: one machine, then a promote
	OnFailure OnFailure         `json:"on_failure,omitempty"` // "": undo
}

// Strategy is a way to replace the machines of a group.
type Strategy string

// The strategies.
const (
	Rolling   Strategy = "rolling"   // a few at a time
	Canary    Strategy = "canary"    // up to a percentage of them, then a pause or a promote
	BlueGreen Strategy = "bluegreen" // all new ones beside the old ones, then all requests move to them
	Immediate Strategy = "immediate" // all at once
)

// Swap is the order in which a replica's old and new machine change places.
type Swap string

// The orders.
const (
	StartFirst Swap = "start-first" // the new one must be ready before the old one goes
	StopFirst  Swap = "stop-first"  // the old one goes first: the new one needs what it has
)

// OnFailure is what happens to a rollout that fails.
type OnFailure string

// The values of OnFailure.
const (
	Undo  OnFailure = "undo"  // the previous release is wanted again
	Pause OnFailure = "pause" // it stops until a person decides
	GoOn  OnFailure = "go-on" // the other replicas are still replaced
)

// CanaryStep is one step of a canary.
type CanaryStep struct {
	Percent int               `json:"percent"`       // of the group's replicas; at least one replica
	For     *machine.Duration `json:"for,omitempty"` // how long the step lasts; nil: until a promote
}

// Defaults and bounds of an update.
const (
	MaxSteps        = 20
	DefaultDeadline = 5 * time.Minute
	// watchFor is how long a new machine must be ready before the old one is removed, and before a rollout is done:
	// most programs that cannot run end sooner.
	watchFor      = 10 * time.Second
	defaultSurge  = "25%"
	leastDeadline = time.Second    // of Deadline
	mostWait      = 24 * time.Hour // of MinUp, Deadline and Step.For
)

// update returns the group's Update, or the zero value.
func (g *Group) update() Update {
	if g.Update == nil {
		return Update{}
	}
	return *g.Update
}

// Strategy returns the group's strategy.
func (g *Group) Strategy() Strategy { return cmp.Or(g.update().Strategy, Rolling) }

// exclusive returns why two machines of one replica cannot be up at once; "" if they can.
func (g *Group) exclusive() string {
	switch {
	case g.Single:
		return "it is single"
	case len(g.Config.Mounts) > 0:
		return "its volume has one machine"
	case g.Config.Network != nil && len(g.Config.Network.Publish) > 0:
		return "its published port has one machine"
	}
	return ""
}

// Movable reports whether a machine of the group can be made at another worker: a volume stays where it is.
func (g *Group) Movable() bool { return len(g.Config.Mounts) == 0 }

// Order returns which machine of a replica changes first. Machines in the host's network use its ports, so two with
// the same service cannot share a worker: the default is then stop-first.
func (g *Group) Order() Swap {
	switch {
	case g.exclusive() != "":
		return StopFirst
	case g.update().Order == "" && g.Config.OnHostPorts() && len(g.Config.Services) > 0:
		return StopFirst
	}
	return cmp.Or(g.update().Order, StartFirst)
}

// Surge returns how many of n replicas may have two machines at once, and how many may have no ready one because the
// old one was removed first.
func (g *Group) Surge(n int) (surge, unavailable int) {
	u, all := g.update(), g.Strategy() == BlueGreen || g.Strategy() == Immediate
	unavailable = part(cmp.Or(u.MaxUnavailable, "0"), n, false)
	switch {
	case g.Order() == StopFirst && all:
		return 0, n
	case g.Order() == StopFirst:
		return 0, max(1, unavailable)
	case all:
		return n, 0
	case u.MaxSurge == "":
		return max(1, part(defaultSurge, n, true)), unavailable
	}
	if surge = part(u.MaxSurge, n, true); surge == 0 {
		unavailable = max(1, unavailable)
	}
	return surge, unavailable
}

// part returns an amount, a number or a percentage of n.
func part(amount string, n int, up bool) int {
	k, percent, err := parseAmount(amount)
	switch {
	case err != nil:
		return 0
	case !percent:
		return min(k, n)
	case up:
		return (k*n + 99) / 100
	}
	return k * n / 100
}

func parseAmount(s string) (n int, percent bool, err error) {
	digits, percent := strings.CutSuffix(s, "%")
	n, err = strconv.Atoi(digits)
	switch {
	case err != nil || n < 0 || percent && n > 100 || !percent && n > machine.MaxReplicas:
		return 0, false, fault.New(fault.Invalid, fault.CodeRelease,
			"%q is no amount of replicas: say a number such as 5, or "+
				"a part such as 25%%", fault.Clip(s, 40))
	}
	return n, percent, nil
}

// MinUp returns how long a new machine of the group must be ready before the old one is removed. Checks do not shorten
// it: a program may pass them and die a second later.
func (g *Group) MinUp() time.Duration {
	return durationOr(g.update().MinUp, min(watchFor, g.Deadline()/2))
}

func (g *Group) Deadline() time.Duration { return durationOr(g.update().Deadline, DefaultDeadline) }

func (g *Group) OnFailure() OnFailure { return cmp.Or(g.update().OnFailure, Undo) }

// Steps returns the steps of a canary; none for another strategy.
func (g *Group) Steps() []CanaryStep {
	if g.Strategy() != Canary {
		return nil
	}
	if s := g.update().Steps; len(s) > 0 {
		return s
	}
	return []CanaryStep{{}} // one machine, until a promote
}

// checkUpdate refuses an invalid update.
func (g *Group) checkUpdate() error {
	u := g.update()
	for what, amount := range map[string]string{"max_surge": u.MaxSurge, "max_unavailable": u.MaxUnavailable} {
		if _, _, err := parseAmount(cmp.Or(amount, "0")); err != nil {
			return invalid("group %s says update.%s = %q; say a number such as 5, or a part such as 25%%", g.Name, what,
				fault.Clip(amount, 40))
		}
	}
	why := g.exclusive()
	switch {
	case !slices.Contains([]Strategy{"", Rolling, Canary, BlueGreen, Immediate}, u.Strategy):
		return invalid("group %s says update.strategy = %q; use %s, %s, %s or %s", g.Name,
			fault.Clip(string(u.Strategy), 40), Rolling, Canary, BlueGreen, Immediate)
	case !slices.Contains([]Swap{"", StartFirst, StopFirst}, u.Order):
		return invalid("group %s says update.order = %q; use %s or %s", g.Name, fault.Clip(string(u.Order), 40),
			StartFirst, StopFirst)
	case !slices.Contains([]OnFailure{"", Undo, Pause, GoOn}, u.OnFailure):
		return invalid("group %s says update.on_failure = %q; use %s, %s or %s", g.Name,
			fault.Clip(string(u.OnFailure), 40), Undo, Pause, GoOn)
	case why != "" && u.Order == StartFirst:
		return invalid("group %s says update.order = start-first, and %s: say stop-first, or leave it out", g.Name, why)
	case g.Order() == StopFirst && u.Strategy == BlueGreen:
		return invalid("group %s says update.strategy = bluegreen, and its old machines go first, as %s: use rolling",
			g.Name, cmp.Or(why, when(u.Order == StopFirst, "update.order says so"), "they have a port of the host"))
	case u.MaxSurge != "" && (u.Strategy == BlueGreen || u.Strategy == Immediate || g.Order() == StopFirst):
		return invalid("group %s says update.max_surge, which %s does not use: leave it out", g.Name,
			cmp.Or(when(g.Order() == StopFirst, "order stop-first"), "strategy "+string(u.Strategy)))
	case len(u.Steps) > 0 && u.Strategy != Canary:
		return invalid("group %s says update.steps, which only strategy canary has: say update.strategy = canary",
			g.Name)
	}
	return cmp.Or(g.checkTimes(&u), g.checkSteps(&u))
}

func when(is bool, text string) string {
	if is {
		return text
	}
	return ""
}

func (g *Group) checkTimes(u *Update) error {
	if u.MinUp != nil && (u.MinUp.Duration < 0 || u.MinUp.Duration > mostWait) {
		return invalid("group %s says update.min_up = %v; 0s to %v are possible", g.Name, u.MinUp.Duration, mostWait)
	}
	if d := g.Deadline(); d < leastDeadline || d > mostWait {
		return invalid("group %s says update.deadline = %v; %v to %v are possible", g.Name, d, leastDeadline, mostWait)
	}
	if g.MinUp() >= g.Deadline() {
		return invalid("group %s has its machines up for %v before they count, which update.deadline = %v does not "+
			"leave: say a longer one", g.Name, g.MinUp(), g.Deadline())
	}
	return nil
}

func (g *Group) checkSteps(u *Update) error {
	if len(u.Steps) > MaxSteps {
		return invalid("group %s has a canary of %d steps; %d at most", g.Name, len(u.Steps), MaxSteps)
	}
	for i, s := range u.Steps {
		switch {
		case s.Percent < 1 || s.Percent > 99:
			return invalid("step %d of group %s is %d per cent; 1 to 99 are possible: after the last step all are "+
				"replaced", i+1, g.Name, s.Percent)
		case i > 0 && s.Percent <= u.Steps[i-1].Percent:
			return invalid("step %d of group %s is %d per cent, and the one before it %d: each is larger than the one "+
				"before", i+1, g.Name, s.Percent, u.Steps[i-1].Percent)
		case s.For != nil && (s.For.Duration <= 0 || s.For.Duration > mostWait):
			return invalid("step %d of group %s lasts %v; use up to %v, or leave it out to wait for a promote", i+1,
				g.Name, s.For.Duration, mostWait)
		}
	}
	return nil
}

// checkAfter refuses groups that wait for one another, or for a group that does not exist.
func (r *Release) checkAfter() error {
	for i := range r.Groups {
		g := &r.Groups[i]
		for _, name := range g.After {
			if r.Group(name) == nil {
				return invalid("group %s comes after group %s, which the release does not have; it has %s", g.Name,
					fault.Clip(name, 80), strings.Join(r.Named(), ", "))
			}
		}
	}
	if round := r.round(); len(round) > 0 {
		return invalid("groups wait for one another: %s; take one \"after\" out", strings.Join(round, " comes after "))
	}
	return nil
}

// round returns a cycle of groups, each of which comes after the next; nil if there is none.
func (r *Release) round() []string {
	over := map[string]bool{}
	var path []string
	var walk func(name string) []string
	walk = func(name string) []string {
		if i := slices.Index(path, name); i >= 0 {
			return append(slices.Clone(path[i:]), name)
		}
		if over[name] {
			return nil
		}
		path = append(path, name)
		for _, next := range r.Group(name).After {
			if found := walk(next); found != nil {
				return found
			}
		}
		path = path[:len(path)-1]
		over[name] = true
		return nil
	}
	for i := range r.Groups {
		if found := walk(r.Groups[i].Name); found != nil {
			return found
		}
	}
	return nil
}

// NewAt returns how many of n replicas have a machine of the newer release at a step of the group's canary: at least
// one, and at most all but one, so that an unproven release never serves alone. A single replica has a machine of each
// release, or only the old one if two cannot be up at once.
func (g *Group) NewAt(step, n int) int {
	switch k := max(1, (g.Steps()[step].Percent*n+99)/100); {
	case n == 1 && g.Order() == StopFirst:
		return 0
	case n == 1:
		return 1
	default:
		return min(k, max(0, n-1))
	}
}
