package rollout

import (
	"maps"
	"slices"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/release"
)

// Which slots of a group are wanted follows from what stands. All that have a machine are, as long as no fewer are wanted, and
// the lowest free numbers beside them. Where fewer are wanted those stay that would be missed most: so a service that is made
// smaller loses its idle machines, and not those that happen to have the highest numbers.

// filled is a slot that has a machine, or is about to.
type filled struct {
	index  int
	fresh  bool             // it has what it is to have, or is on the way to it
	open   bool             // requests go there
	class  int              // of its best machine
	load   int              // requests under way
	worker cluster.WorkerID // of its first machine; "": it has none
}

// Classes of machines: those that serve, those that rest, and others.
const (
	ofNoUse = iota
	rests
	serves
)

// enter counts a machine for its slot.
func (s *filled) enter(m *release.Standing, spec string, removing bool) {
	s.fresh = s.fresh || m.Spec == spec && !removing
	s.open = s.open || !m.Cordoned && !removing
	s.load += m.Load
	if s.worker == "" {
		s.worker = m.Worker
	}
	switch {
	case removing || m.Unheard:
	case m.Ready:
		s.class = serves
	case m.Asleep():
		s.class = max(s.class, rests)
	}
}

// missed compares how much two slots would be missed; at is how many slots their workers have.
func (s *filled) missed(o *filled, at map[cluster.WorkerID]int) int {
	for _, by := range [...]int{
		s.class - o.class, compareBool(s.fresh, o.fresh), compareBool(s.open, o.open), s.load - o.load,
		at[o.worker] - at[s.worker], // that the others are spread
		o.index - s.index,
	} {
		if by != 0 {
			return by
		}
	}
	return 0
}

// stay returns those n of some slots that would be missed most, by their numbers.
func stay(list []filled, n int) []filled {
	if len(list) <= n {
		return list
	}
	list = slices.Clone(list)
	at := map[cluster.WorkerID]int{}
	for i := range list {
		at[list[i].worker]++
	}
	for len(list) > max(0, n) {
		least := 0
		for i := range list {
			if list[i].missed(&list[least], at) < 0 {
				least = i
			}
		}
		at[list[least].worker]--
		list = slices.Delete(list, least, least+1)
	}
	return list
}

// fill returns the numbers of slots, in order, with the lowest free ones so that there are n.
func fill(list []filled, n int) []int {
	taken := make(map[int]bool, len(list))
	out := make([]int, 0, n)
	for i := range list {
		taken[list[i].index] = true
		out = append(out, list[i].index)
	}
	for index := 0; len(out) < n; index++ {
		if !taken[index] {
			out = append(out, index)
		}
	}
	slices.Sort(out)
	return out
}

// WantedSlots returns the numbers of the n replicas of a group that are wanted, whose machines are to be of a spec, as far as
// what stands says that.
func WantedSlots(group, spec string, n int, standing []release.Standing) []int {
	by := map[int]*filled{}
	for i := range standing {
		m := &standing[i]
		if m.Group != group || m.Run != "" || m.Goes() {
			continue
		}
		if by[m.Index] == nil {
			by[m.Index] = &filled{index: m.Index}
		}
		by[m.Index].enter(m, spec, false)
	}
	return fill(stay(sorted(by), n), n)
}

func sorted(by map[int]*filled) []filled {
	out := make([]filled, 0, len(by))
	for _, index := range slices.Sorted(maps.Keys(by)) {
		out = append(out, *by[index])
	}
	return out
}

// chooseSlots says which slots of each group are wanted. As long as so many are, they are the same: a slot whose machine goes
// first has none for a while. Those that were wanted before the rollout are among them, or the other way round.
func (l *look) chooseSlots() {
	all := map[string]map[int]*filled{}
	for slot, list := range l.seen.by {
		if all[slot.Group] == nil {
			all[slot.Group] = map[int]*filled{}
		}
		s, to := &filled{index: slot.Index}, l.aim.goal[slot.Group]
		for _, m := range list {
			s.enter(m, specOf(to), l.memory.removing(m.ID))
		}
		s.fresh = s.fresh || to != nil && l.memory.makes(slot, to.spec)
		all[slot.Group][slot.Index] = s
	}
	maps.DeleteFunc(l.memory.chosen, func(name string, _ []int) bool { return l.aim.goal[name] == nil })
	for name, to := range l.aim.goal {
		list, before := sorted(all[name]), l.aim.old[name]
		if len(l.memory.chosen[name]) != to.n {
			l.memory.chosen[name] = fill(stay(list, to.n), to.n)
		}
		to.take(l.memory.chosen[name], all[name])
		if before != nil {
			before.take(around(to.slots, list, before.n), nil)
		}
	}
	for name, to := range l.aim.old {
		if l.aim.goal[name] == nil {
			to.take(fill(stay(sorted(all[name]), to.n), to.n), nil)
		}
	}
}

// around returns n slots: of those that are given, in order, and if there are more, of the slots beside them.
func around(slots []int, list []filled, n int) []int {
	given := func(s filled) bool { _, is := slices.BinarySearch(slots, s.index); return is }
	if n <= len(slots) {
		list = slices.DeleteFunc(slices.Clone(list), func(s filled) bool { return !given(s) })
		return fill(stay(list, n), n)
	}
	others := slices.DeleteFunc(slices.Clone(list), given)
	others = stay(others, n-len(slots))
	for _, index := range slots {
		others = append(others, filled{index: index})
	}
	return fill(others, n)
}

func specOf(to *side) string {
	if to == nil {
		return ""
	}
	return to.spec
}

// take gives a group its slots. Of those without a machine an autoscale may leave out the ones beyond its least number.
func (to *side) take(slots []int, stands map[int]*filled) {
	to.slots, to.has, to.optional = slots, map[int]bool{}, map[int]bool{}
	has := 0
	for _, index := range slots {
		if to.has[index] = true; stands[index] != nil {
			has++
		}
	}
	a := to.group.Autoscale
	for _, index := range slots {
		if a == nil || stands[index] != nil {
			continue
		}
		to.optional[index] = has >= a.Min
		has++
	}
}
