package rollout

import (
	"maps"
	"slices"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/release"
)

// Which slots of a group are wanted follows from its machines. While enough are wanted, all slots with a machine are,
// plus the lowest free numbers. If fewer are wanted, those stay that would be missed most: so a smaller service loses
// its idle machines, not those with the highest numbers.

// filled is a slot that has a machine, or is about to.
type filled struct {
	index  int
	fresh  bool             // it has a machine as wanted, or is about to
	open   bool             // it gets requests
	class  int              // class of its best machine
	load   int              // requests in progress
	worker cluster.WorkerID // of its first machine; "": it has none
}

// Classes of machines: serving ones, resting ones, and others.
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

// missed compares how much two slots would be missed; at is the number of slots by worker.
func (s *filled) missed(o *filled, at map[cluster.WorkerID]int) int {
	for _, by := range [...]int{
		s.class - o.class, compareBool(s.fresh, o.fresh), compareBool(s.open, o.open), s.load - o.load,
		at[o.worker] - at[s.worker], // so that the others are spread
		o.index - s.index,
	} {
		if by != 0 {
			return by
		}
	}
	return 0
}

// stay returns the n slots that would be missed most, by number.
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

// fill returns the numbers of slots, in order, plus the lowest free ones up to n.
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

// WantedSlots returns the numbers of the n wanted replicas of a group, as far as its machines determine them; spec is
// what they are to be.
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

// chooseSlots chooses the wanted slots of each group. They stay the same while their number does, even if a slot's
// machine is removed first. The slots from before the rollout are a subset, or a superset, of the new ones.
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

// around returns n of the given slots, which are in order; if there are fewer, it adds other slots.
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

// take sets a group's slots. Its autoscale may leave out slots without a machine beyond its minimum.
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
