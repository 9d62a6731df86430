package release

import (
	"cmp"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Autoscale makes a service choose the number of a group's machines by their load.
type Autoscale struct {
	Min    int    `json:"min"` // machines, 1 to 1000
	Max    int    `json:"max"` // machines, Min to 1000
	Metric Metric `json:"metric,omitempty"`
	// Target is the load that a machine should have: requests or connections in progress, or per cent of its CPUs. 0:
	// the smallest soft_limit of the group's services, or 70 per cent.
	Target int `json:"target,omitempty"`
	// DownAfter is how long fewer machines must have sufficed before some are removed; nil: DefaultDownAfter.
	DownAfter *machine.Duration `json:"down_after,omitempty"`
}

// Metric is what the load of a machine is measured by.
type Metric string

// The metrics.
const (
	Concurrency Metric = "concurrency" // requests or connections in progress at proxies; the default
	CPU         Metric = "cpu"         // how much of its CPUs it uses
)

// Defaults and bounds of Autoscale.
const (
	DefaultDownAfter = 5 * time.Minute
	DefaultCPU       = 70 // per cent
	leastDownAfter   = time.Second
	mostDownAfter    = 24 * time.Hour
	mostTarget       = 1_000_000
)

// By returns the metric.
func (a *Autoscale) By() Metric { return cmp.Or(a.Metric, Concurrency) }

func (a *Autoscale) GoesDownAfter() time.Duration { return durationOr(a.DownAfter, DefaultDownAfter) }

// Target returns the load that a machine of the group should have, in units of its metric; 0: it is not known, or the
// group has no autoscale.
func (g *Group) Target() int {
	a := g.Autoscale
	switch {
	case a == nil:
		return 0
	case a.Target == 0 && a.By() == CPU:
		return DefaultCPU
	case a.Target == 0:
		soft, _ := g.Limits()
		return soft
	}
	return a.Target
}

// Limits returns the smallest soft and hard limit of the group's services; 0: none. Without a soft limit the hard
// limit is also the soft one, as in proxies.
func (g *Group) Limits() (soft, hard int) {
	least := func(a, b int) int {
		if a == 0 || b > 0 && b < a {
			return b
		}
		return a
	}
	for i := range g.Config.Services {
		if c := g.Config.Services[i].Concurrency; c != nil {
			hard = least(hard, max(0, c.HardLimit))
			soft = least(soft, max(0, cmp.Or(c.SoftLimit, c.HardLimit)))
		}
	}
	return soft, hard
}

// checkAutoscale refuses an invalid autoscale.
func (g *Group) checkAutoscale() error {
	a := g.Autoscale
	if a == nil {
		return nil
	}
	switch {
	case a.Min < 1 || a.Max > machine.MaxReplicas || a.Min > a.Max:
		return invalid("group %s says autoscale.min = %d and max = %d; say 1 to %d each, and min not above max: "+
			"machines that are to rest have autostop of their services", g.Name, a.Min, a.Max, machine.MaxReplicas)
	case a.Max > g.most():
		return invalid("group %s says autoscale.max = %d, and it has one machine at most, as it %s: leave "+
			"autoscale out", g.Name, a.Max, cmp.Or(when(g.Single, "is single"), "has a volume"))
	case g.Replicas < a.Min || g.Replicas > a.Max:
		return invalid("group %s says replicas = %d, and autoscale %d to %d: say a number between them, or leave "+
			"replicas out", g.Name, g.Replicas, a.Min, a.Max)
	case a.By() != Concurrency && a.By() != CPU:
		return invalid("group %s says autoscale.metric = %q; use %s or %s", g.Name, fault.Clip(string(a.Metric), 40),
			Concurrency, CPU)
	case a.GoesDownAfter() < leastDownAfter || a.GoesDownAfter() > mostDownAfter:
		return invalid("group %s says autoscale.down_after = %v; %v to %v are possible", g.Name, a.GoesDownAfter(),
			leastDownAfter, mostDownAfter)
	}
	return g.checkTarget()
}

func (g *Group) checkTarget() error {
	a := g.Autoscale
	switch by := a.By(); {
	case by == CPU && (a.Target < 0 || a.Target > 100):
		return invalid("group %s says autoscale.target = %d by cpu; 1 to 100 per cent of a machine's CPUs are "+
			"possible", g.Name, a.Target)
	case by == CPU:
		return nil
	case a.Target < 0 || a.Target > mostTarget:
		return invalid("group %s says autoscale.target = %d; 1 to %d requests or connections of a machine are "+
			"possible", g.Name, a.Target, mostTarget)
	case len(g.Config.Services) == 0:
		return invalid("group %s has autoscale by concurrency and no services, so no request reaches it: say "+
			"autoscale.metric = \"cpu\", or what it serves", g.Name)
	case g.Target() == 0:
		return invalid("group %s has autoscale by concurrency, and nothing says how much one machine takes: say "+
			"autoscale.target, or concurrency.soft_limit of a service", g.Name)
	}
	return nil
}

// Scaled is the number of a group's machines that its autoscale has chosen, and why. The service's steward writes it
// when it changes.
type Scaled struct {
	Count int `json:"count"`
	// Hand is Head.Hand of the group at that time: a number that a person sets later takes precedence.
	Hand uint64    `json:"hand,omitempty"`
	From int       `json:"from,omitempty"` // the number before; 0: none was chosen yet
	Load int       `json:"load,omitempty"` // of all its machines at that time, in units of the metric
	At   time.Time `json:"at,omitzero"`    // since when Count has been so
	// Lacks is why there are fewer machines than Count, in one sentence; "": there are enough, or none was refused.
	Lacks string `json:"lacks,omitempty"`
}

const MaxLacks = 200 // bytes

func checkScaled(all map[string]Scaled) error {
	ok := len(all) <= 2*MaxGroups
	for name, x := range all {
		ok = ok && machine.ValidGroup(name) && x.Count >= 0 && x.Count <= machine.MaxReplicas &&
			len(x.Lacks) <= MaxLacks
	}
	if !ok {
		return fault.New(fault.Invalid, codeTenure, "a steward scales at most %d groups to at most %d machines, and "+
			"says why in at most %d bytes", 2*MaxGroups, machine.MaxReplicas, MaxLacks)
	}
	return nil
}

// Wanted returns how many machines of a group are wanted: the head's number, or the autoscale's choice if the group
// has one that is on.
func (h *Head) Wanted(g *Group, scaled map[string]Scaled) int {
	if g.Cron != nil {
		return 0 // its machines run at times, and none is kept up
	}
	n := h.Count(g)
	if !h.Scales(g) {
		return n
	}
	if x, is := scaled[g.Name]; is && x.Hand >= h.Hand[g.Name] {
		n = x.Count
	}
	return min(max(n, g.Autoscale.Min), g.Autoscale.Max)
}

// Scales reports whether a group has an autoscale that is on: a count of 0 in the head turns it off.
func (h *Head) Scales(g *Group) bool { return g.Autoscale != nil && h.Count(g) > 0 }

// checkHand refuses a count set by a person for a group with an autoscale, if it is out of range.
func (g *Group) checkHand(n int) error {
	a := g.Autoscale
	if a == nil || n == 0 || n >= a.Min && n <= a.Max {
		return nil
	}
	return invalid("group %s has an autoscale of %d to %d machines, and %d are asked for: ask for a number between "+
		"them, or for 0, which turns it off, or make a release with other bounds", g.Name, a.Min, a.Max, n)
}

// Loads is the load of a group's machines, in units of its metric.
type Loads struct {
	Heard float64 // of the machines whose workers answer
	All   float64 // including the last known loads of the others
	Up    int     // machines that are up
	Blind bool    // the load of a ready machine is not known yet
}

// LoadsOf adds up the loads of a group's machines.
func (g *Group) LoadsOf(standing []Standing) (l Loads) {
	cpu := g.Autoscale != nil && g.Autoscale.By() == CPU
	for i := range standing {
		m := &standing[i]
		if m.Group != g.Name || m.Goes() || !m.Up() {
			continue
		}
		l.Up++
		load := float64(m.Load)
		if cpu { // a starting machine uses CPU for its start
			l.Blind = l.Blind || m.CPU == nil && m.Ready
			if load = 0; m.CPU != nil && (m.Ready || m.Unheard) {
				load = float64(max(0, *m.CPU))
			}
		}
		l.All += load
		if !m.Unheard {
			l.Heard += load
		}
	}
	return l
}
