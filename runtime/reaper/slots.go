package reaper

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/soukhq/souk/runtime/reaper/cgroup"
)

// slots manages the cgroups of a tree, used and free. Making and removing a group costs the kernel more than the fork
// itself (it allocates per CPU, and frees under a global lock), so an empty group is kept for the next life. Groups are
// named by number; a life's record contains its group.
//
// A group is not reused if the next life would notice the previous one: a process that does not end, memory still
// charged, an OOM kill counted. Nor if it was killed by cgroup.kill: since Linux 6.14 (6.18 too), the kernel takes a
// process cloned into a group that was ever killed that way for one forked during the kill, and kills it. A group
// killed as a whole has also lost its CPU limit.
type slots struct {
	tree    *cgroup.Tree
	threads *threads

	mu     sync.Mutex
	next   int
	free   []slot
	closed bool
	made   bool // stockSlots is running
	used   map[string]bool
	junk   []string // groups that could not be removed yet
	meters int      // open meters: at most maxFreeSlots
}

// slot is one group with its current limits, and its counters from when it became free.
type slot struct {
	group  cgroup.Group
	there  bool          // the group exists
	limits cgroup.Limits // zero: none set yet
	base   cgroup.Usage
	peak   int64         // what Group.Peak must exceed to be of this life
	killed bool          // must be removed after use
	thread *parkedThread // nil: none is parked, or none is needed
	meter  *cgroup.Meter // nil: not open
}

const (
	maxFreeSlots = 64
	minFreeSlots = 4
	maxCharge    = 4 << 20 // bytes of page cache that may stay charged to a reused group
)

func newSlots(t *cgroup.Tree, p *threads) *slots {
	return &slots{tree: t, threads: p, used: make(map[string]bool)}
}

// takeSlot returns a group with the given limits: a free one that has them, else any free one, else a new one.
func (s *slots) takeSlot(l cgroup.Limits) (slot, error) {
	s.mu.Lock()
	var got slot
	i := s.bestLocked(l)
	if i >= 0 {
		got = s.free[i]
		s.free = slices.Delete(s.free, i, i+1)
	} else {
		got.group = s.tree.Group(s.nameLocked())
	}
	s.used[got.group.Name()] = true
	if len(s.free) < minFreeSlots && !s.made && !s.closed {
		s.made = true
		go s.stockSlots()
	}
	s.mu.Unlock()
	err := got.makeGroup(s.threads)
	switch {
	case err != nil:
	case got.limits == cgroup.Limits{}:
		err = got.group.Limit(l)
	case got.limits != l:
		err = got.group.Change(l)
	}
	if err == nil && got.limits.Denied != l.Denied {
		err = got.group.Deny(l.Denied)
	}
	got.limits = l
	if err != nil {
		err = errors.Join(err, s.removeSlot(got))
	}
	return got, err
}

// freshSlot returns a new group with the given limits that is removed after use: an OCI runtime removes it, and makes
// groups of its name in other hierarchies.
func (s *slots) freshSlot(l cgroup.Limits) (slot, error) {
	s.mu.Lock()
	got := slot{group: s.tree.Group(s.nameLocked()), killed: true}
	s.used[got.group.Name()] = true
	s.mu.Unlock()
	err := got.group.Make()
	if err == nil {
		got.there, got.limits = true, l
		err = got.group.Limit(l)
	}
	if err != nil {
		err = errors.Join(err, s.removeSlot(got))
	}
	return got, err
}

// makeGroup makes the group and parks a thread in it, if that has not been done.
func (g *slot) makeGroup(p *threads) (err error) {
	if !g.there {
		err = g.group.Make()
	}
	if err == nil && g.thread == nil {
		g.there = true
		g.thread, err = p.parkThread(g.group)
	}
	return err
}

// bestLocked returns the index of the best free group, -1 if there is none: a parked thread saves more than matching
// limits, and among equals the last used is still in the CPU's caches. The caller holds s.mu.
func (s *slots) bestLocked(l cgroup.Limits) int {
	best, most := -1, -1
	for i, f := range slices.Backward(s.free) {
		worth := 0
		if f.thread != nil {
			worth += 2
		}
		if f.limits == l {
			worth++
		}
		if worth > most {
			best, most = i, worth
		}
	}
	return best
}

func (s *slots) nameLocked() string {
	for {
		s.next++
		if name := fmt.Sprintf("s%d", s.next); !s.used[name] {
			return name
		}
	}
}

// stockSlots makes groups in advance, so that a single start does not wait for one.
func (s *slots) stockSlots() {
	for {
		s.mu.Lock()
		if len(s.free) >= minFreeSlots || s.closed {
			s.made = false
			s.mu.Unlock()
			return
		}
		got := slot{group: s.tree.Group(s.nameLocked())}
		s.used[got.group.Name()] = true
		s.mu.Unlock()
		err := got.makeGroup(s.threads)
		s.mu.Lock()
		ok := err == nil && !s.closed
		if ok {
			delete(s.used, got.group.Name())
			s.free = append(s.free, got)
		} else {
			s.made = false
		}
		s.mu.Unlock()
		if !ok {
			_ = s.removeSlot(got) // retried by the next removal
			return
		}
	}
}

// claimSlot marks the group of an adopted life as used.
func (s *slots) claimSlot(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used[name] = true
}

// discardSlot prevents the reuse of the name of a group that could not be removed. The removal is retried.
func (s *slots) discardSlot(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used[name] = true
	s.junk = append(s.junk, name)
}

// giveBackSlot returns a group whose processes have ended.
func (s *slots) giveBackSlot(g slot) error {
	if g.killed {
		return s.removeSlot(g)
	}
	u, empty := s.readUsage(&g)
	if u.OOMKills > 0 || u.Cached > maxCharge || g.limits == (cgroup.Limits{}) || !empty {
		return s.removeSlot(g)
	}
	s.mu.Lock()
	full := len(s.free) >= maxFreeSlots
	if !full {
		g.base = u
		g.restartPeak()
		delete(s.used, g.group.Name())
		s.free = append(s.free, g)
	}
	s.mu.Unlock()
	if full {
		return s.removeSlot(g)
	}
	return nil
}

// restartPeak makes the group's peak of memory count from now on, as far as the kernel can.
func (g *slot) restartPeak() {
	if g.meter == nil {
		g.peak = g.group.Peak()
		return
	}
	g.peak = g.meter.RestartPeak()
}

// openMeter opens the meter of a group, unless it is open or as many are open as may be.
func (s *slots) openMeter(g *slot) {
	if g.meter != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.meters < maxFreeSlots {
		if g.meter = g.group.OpenMeter(); g.meter != nil {
			s.meters++
		}
	}
}

// readUsage reads a group's counters, and whether it is empty. The files stay open for groups that are returned often.
func (s *slots) readUsage(g *slot) (u cgroup.Usage, empty bool) {
	s.openMeter(g)
	if g.meter == nil {
		u, _ = g.group.Counters()
		return u, g.group.Empty()
	}
	return g.meter.Counters(), g.meter.Empty()
}

// closeMeter closes a group's meter, if it has one.
func (s *slots) closeMeter(g *slot) {
	if g.meter == nil {
		return
	}
	g.meter.Close()
	g.meter = nil
	s.mu.Lock()
	s.meters--
	s.mu.Unlock()
}

// removeSlot removes a group, and retries those that could not be removed before. A name is not reused before its group
// is gone.
func (s *slots) removeSlot(g slot) error {
	g.thread.giveUpThread()
	s.closeMeter(&g)
	err := g.group.Remove() // with retries: the thread may need a moment to end
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.junk = append(s.junk, g.group.Name())
		return err
	}
	delete(s.used, g.group.Name())
	s.junk = slices.DeleteFunc(s.junk, func(name string) bool {
		if s.tree.Group(name).TryRemove() != nil {
			return false
		}
		delete(s.used, name)
		return true
	})
	return nil
}

// removeFree removes the free groups, at the end of the reaper.
func (s *slots) removeFree() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.free {
		f.thread.giveUpThread()
		f.meter.Close()
	}
	for _, f := range s.free {
		_ = f.group.Remove() // the next reaper sweeps what stays
	}
	s.free, s.closed = nil, true
}
