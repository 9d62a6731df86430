package rollout

import (
	"cmp"
	"maps"
	"math"
	"math/bits"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Autoscale has a service choose by its load how many machines of a group there are.
type Autoscale struct {
	Min    int    `json:"min"` // machines, 1 to 1000
	Max    int    `json:"max"` // machines, Min to 1000
	Metric Metric `json:"metric,omitempty"`
	// Target is how much load a machine is to have: requests or connections under way, or per cent of its CPUs. 0: the
	// smallest soft_limit of the group's services, or 70 per cent.
	Target int `json:"target,omitempty"`
	// DownAfter is for how long fewer machines must have been enough before some go; nil: DefaultDownAfter.
	DownAfter *machine.Duration `json:"down_after,omitempty"`
}

// Metric is what the load of a machine is measured by.
type Metric string

// The metrics.
const (
	Concurrency Metric = "concurrency" // requests or connections that proxies have under way; what "" means
	CPU         Metric = "cpu"         // how much of its CPUs it uses
)

// Defaults and bounds of Autoscale.
const (
	DefaultDownAfter = 5 * time.Minute
	DefaultCPU       = 70 // per cent
	leastDownAfter   = time.Second
	mostDownAfter    = 24 * time.Hour
	mostTarget       = 1_000_000
	// tolerance is how far the load may be beyond the target before a machine is added: else a load that changes a little
	// would add one and take it away again.
	tolerance = 1.1
	// stepEvery is the time between two steps down, of which each takes a quarter of the machines at most.
	stepEvery = 15 * time.Second
)

// By returns the metric.
func (a *Autoscale) By() Metric { return cmp.Or(a.Metric, Concurrency) }

func (a *Autoscale) downAfter() time.Duration {
	if a.DownAfter == nil {
		return DefaultDownAfter
	}
	return a.DownAfter.Duration
}

// Target returns how much load a machine of the group is to have, in units of its metric; 0: nothing says it, or the group
// has no autoscale.
func (g *Group) Target() int {
	a := g.Autoscale
	switch {
	case a == nil:
		return 0
	case a.Target == 0 && a.By() == CPU:
		return DefaultCPU
	case a.Target == 0:
		soft, _ := g.limits()
		return soft
	}
	return a.Target
}

// limits returns the smallest soft and hard limit of the group's services; 0: none has one. A hard limit alone is the soft
// one, too, as for proxies.
func (g *Group) limits() (soft, hard int) {
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

// Reported returns the least load that members may know of a machine that has n requests under way: loads are told in steps,
// two for each doubling (fleet.Loads).
func Reported(n int) int {
	if n < 2 {
		return max(0, n)
	}
	low := bits.Len(uint(n)) - 2
	return n >> low << low
}

// enough returns the load that a machine takes before another is wanted. Proxies let no more than the hard limit through,
// so the load of machines that are full must be beyond it, also as it is told.
func (g *Group) enough() float64 {
	most := float64(g.Target())
	if _, hard := g.limits(); hard > 0 && g.Autoscale.By() == Concurrency {
		most = min(most, 0.999*float64(Reported(hard))/tolerance)
	}
	return most
}

// checkAutoscale refuses an autoscale that cannot be carried out.
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
	case a.downAfter() < leastDownAfter || a.downAfter() > mostDownAfter:
		return invalid("group %s says autoscale.down_after = %v; %v to %v are possible", g.Name, a.downAfter(),
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

// Scaled is how many machines of a group its autoscale has chosen, and why. Its service's steward writes it when that
// changes.
type Scaled struct {
	Count int `json:"count"`
	// Hand is Head.Hand of the group when this was chosen: a number that somebody sets later goes before it.
	Hand uint64    `json:"hand,omitempty"`
	From int       `json:"from,omitempty"` // the number before; 0: none was chosen yet
	Load int       `json:"load,omitempty"` // of all its machines then, in units of the metric
	At   time.Time `json:"at,omitzero"`    // since when Count is so
	// Lacks is why there are fewer machines than Count, one sentence; "": there are not, or nothing was refused.
	Lacks string `json:"lacks,omitempty"`
}

const maxLacks = 200 // bytes

func checkScaled(all map[string]Scaled) error {
	ok := len(all) <= 2*MaxGroups
	for name, x := range all {
		ok = ok && machine.ValidGroup(name) && x.Count >= 0 && x.Count <= machine.MaxReplicas &&
			len(x.Lacks) <= maxLacks
	}
	if !ok {
		return fault.New(fault.Invalid, "tenure", "a steward scales at most %d groups to at most %d machines, and "+
			"says why in at most %d bytes", 2*MaxGroups, machine.MaxReplicas, maxLacks)
	}
	return nil
}

// Wanted returns how many machines of a group of its release are wanted: as the head says, or where the group has an
// autoscale that is on, as that has chosen.
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

// Scales reports whether a group has an autoscale that is on: a head that says 0 turns it off.
func (h *Head) Scales(g *Group) bool { return g.Autoscale != nil && h.Count(g) > 0 }

// checkHand refuses a number of machines that somebody sets for a group which chooses it by itself.
func (g *Group) checkHand(n int) error {
	a := g.Autoscale
	if a == nil || n == 0 || n >= a.Min && n <= a.Max {
		return nil
	}
	return invalid("group %s has an autoscale of %d to %d machines, and %d are asked for: ask for a number between "+
		"them, or for 0, which turns it off, or make a release with other bounds", g.Name, a.Min, a.Max, n)
}

// Loads is what the machines of a group have to do, in units of its metric.
type Loads struct {
	Heard float64 // of those that can be asked
	All   float64 // with those that cannot, as last told
	Up    int     // machines that are up
	Blind bool    // of one that is ready the load is not known yet
}

// LoadsOf adds up the loads of a group's machines.
func (g *Group) LoadsOf(standing []Standing) (l Loads) {
	cpu := g.Autoscale != nil && g.Autoscale.By() == CPU
	for i := range standing {
		m := &standing[i]
		if m.Group != g.Name || m.goes() || !m.up() {
			continue
		}
		l.Up++
		load := float64(m.Load)
		if cpu { // one that comes up uses it for that
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

// needs returns how many machines a load needs.
func (g *Group) needs(load float64) int {
	n := math.Ceil(load/g.enough() - 1e-9)
	return int(min(max(n, float64(g.Autoscale.Min)), float64(g.Autoscale.Max)))
}

// scaler is what a steward remembers of a group that chooses how many machines it has.
type scaler struct {
	count int    // that was in force at the last look, or that was chosen then
	needs []need // within the time until machines go, each less than the one before; never empty
	down  time.Time
}

// need is how many machines were needed, until at.
type need struct {
	count int
	at    time.Time
}

// newScaler begins with as many as there are: what was needed before nobody remembers, so none goes too early.
func newScaler(now time.Time, count int) *scaler {
	return &scaler{count: count, needs: []need{{count, now}}}
}

// note notes how many are needed from now on.
func (s *scaler) note(now time.Time, count int) {
	s.needs[len(s.needs)-1].at = now
	for len(s.needs) > 0 && s.needs[len(s.needs)-1].count <= count {
		s.needs = s.needs[:len(s.needs)-1]
	}
	s.needs = append(s.needs, need{count, now})
}

// choose returns how many machines there are to be where there are n, and when to look again where nothing changes;
// zero: there is no need. More come at once, and fewer are left once they have been enough for long.
func (s *scaler) choose(now time.Time, g *Group, n int, l Loads) (count int, again time.Time) {
	after := g.Autoscale.downAfter()
	if s.count != n { // somebody has set it
		s.note(now, n)
		s.count = n
	}
	up := g.needs(l.Heard)
	if up > n && l.Heard > tolerance*g.enough()*float64(n) {
		s.note(now, up)
		return up, time.Time{}
	}
	enough := min(n, g.needs(l.All))
	if l.Blind {
		enough = n
	}
	s.note(now, enough)
	for len(s.needs) > 1 && !now.Before(s.needs[0].at.Add(after)) {
		s.needs = s.needs[1:]
	}
	next := s.down.Add(min(stepEvery, after))
	switch most := s.needs[0]; {
	case most.count >= n && len(s.needs) == 1:
		return n, time.Time{}
	case most.count >= n:
		return n, most.at.Add(after)
	case now.Before(next):
		return n, next
	default:
		return max(most.count, n-max(1, n/4)), time.Time{}
	}
}

// scaleGroups lets groups choose how many machines they have, and returns what they have chosen. That is written before anything
// is done for it.
func (l *look) scaleGroups(d *docket) map[string]Scaled {
	next := maps.Clone(l.want.Scaled)
	maps.DeleteFunc(next, func(name string, _ Scaled) bool { return !l.mayScale(name) })
	maps.DeleteFunc(l.memory.scalers, func(name string, _ *scaler) bool { return l.aim.goal[name] == nil })
	for name, to := range l.aim.goal {
		if x, changed := l.scaleGroup(to, next[name]); changed && d.tell() {
			if x.Count != to.n {
				l.memory.scalers[name].take(l.clock.now, x.Count)
			}
			if next == nil {
				next = map[string]Scaled{}
			}
			next[name] = x
			d.give(todo{waits: true})
		}
	}
	if len(next) == 0 {
		return nil
	}
	return next
}

// take takes that so many machines were chosen.
func (s *scaler) take(now time.Time, count int) {
	if count < s.count {
		s.down = now
	}
	s.count = count
}

// scaleGroup returns how many machines a group chooses to have, which was x before, and whether that is another choice.
func (l *look) scaleGroup(to *side, x Scaled) (next Scaled, changed bool) {
	name, loads := to.group.Name, to.group.LoadsOf(l.seen.kept)
	if !l.want.Head.Scales(to.group) || loads.Up == 0 { // it is off, or all machines rest: what they needed is past
		delete(l.memory.scalers, name)
		return x, false
	}
	s := l.memory.scalers[name]
	if s == nil {
		s = newScaler(l.clock.now, to.n)
		l.memory.scalers[name] = s
	}
	n, again := s.choose(l.clock.now, to.group, to.n, loads)
	if !again.IsZero() {
		l.clock.waits(again)
	}
	hand, lacks := l.want.Head.Hand[name], l.lacks(to)
	if x.Hand < hand { // what was chosen before somebody set a number is over
		x = Scaled{}
	}
	if n == to.n && (lacks == "") == (x.Lacks == "") {
		return x, false
	}
	if n != to.n {
		x.From, x.Load, x.At = to.n, int(math.Round(loads.Heard)), l.clock.now.UTC()
	}
	x.Count, x.Hand, x.Lacks = n, max(x.Hand, hand), lacks
	return x, true
}

// mayScale reports whether a group has an autoscale in a release that may be in force.
func (l *look) mayScale(name string) bool {
	for _, r := range []*Release{l.want.Release, l.want.Before} {
		if r == nil {
			continue
		}
		if g := r.Group(name); g != nil && g.Autoscale != nil {
			return true
		}
	}
	return false
}

// lacks says why one of the slots of a group has no machine; "": each has one, or none was refused.
func (l *look) lacks(to *side) string {
	for _, index := range to.slots {
		slot := Slot{to.group.Name, index}
		if w := l.memory.slots[slot]; w != nil && w.why != nil && len(l.seen.by[slot]) == 0 {
			return fault.Clip(w.why.Error(), maxLacks)
		}
	}
	return ""
}

// lacked returns the slots that an autoscale has added and that have no machine: a release need not have room for them.
func (w *Want) lacked(standing []Standing) map[Slot]bool {
	out := map[Slot]bool{}
	for i := range w.Release.Groups {
		g := &w.Release.Groups[i]
		if _, chosen := w.Scaled[g.Name]; !chosen || g.Autoscale == nil {
			continue
		}
		stands := map[int]bool{}
		for i := range standing {
			if m := &standing[i]; m.Group == g.Name && m.Run == "" && !m.goes() {
				stands[m.Index] = true
			}
		}
		filled := len(stands)
		for _, index := range WantedSlots(g.Name, "", w.Head.Wanted(g, w.Scaled), standing) {
			if stands[index] {
				continue
			}
			if filled >= g.Autoscale.Min {
				out[Slot{g.Name, index}] = true
			}
			filled++
		}
	}
	return out
}

// unfilled reports whether a slot is one that an autoscale may leave out, and no machine could be made for it: a rollout goes
// on and ends without.
func (l *look) unfilled(v *view, to *side) bool {
	w := l.memory.slots[v.slot]
	return to.optional[v.slot.Index] && len(v.of)+len(v.others) == 0 && w != nil && w.why != nil && !w.gave
}
