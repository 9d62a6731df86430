package reaper

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/soukhq/souk/runtime/reaper/cgroup"
)

// slots are the cgroups of a tree that are in use or ready for use. Making a group and removing it again costs the
// kernel more than the fork itself (it allocates per CPU, and frees under a lock that everyone needs), so a group that
// is empty again is kept for the next life. Groups are named by number; a life's record says which is its own.
//
// A group is not used again when something of the life before could be felt in it: a process that would not end,
// memory still charged, an OOM kill counted. Nor when it was killed as a whole: Linux from 6.14 on (6.18 too) takes a
// process that is cloned into a group that was ever killed so for one that was forked while it is killed, and kills it.
// And what was killed as a whole has lost its limit of CPU.
type slots struct {
	tree    *cgroup.Tree
	threads *threads

	mu     sync.Mutex
	next   int
	free   []slot
	closed bool
	made   bool // some are being made for later
	used   map[string]bool
	junk   []string // could not be removed yet
	meters int      // open: at most as many as groups are kept
}

// slot is one group with the limits it has now and what its counters stood at when it became free.
type slot struct {
	group  cgroup.Group
	there  bool          // it has been made
	limits cgroup.Limits // zero: none yet
	base   cgroup.Usage
	killed bool          // by cgroup.kill
	thread *parkedThread // nil: none is there, or none is needed
	meter  *cgroup.Meter // nil: none is open
}

const (
	maxFreeSlots = 64
	minFreeSlots = 4
	maxCharge    = 4 << 20 // bytes of page cache that may be left charged to a group that is used again
)

func newSlots(t *cgroup.Tree, p *threads) *slots {
	return &slots{tree: t, threads: p, used: make(map[string]bool)}
}

// takeSlot gives a group with the limits asked for: one that has them, else any that is free, else a new one.
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

// freshSlot gives a new group with the limits asked for, which is given back to nobody: an OCI runtime removes it, with
// what it makes of that name in other hierarchies.
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

// makeGroup makes the group and sits a thread down in it, unless that is so.
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

// bestLocked chooses a free group: a parked thread saves more than limits that fit, and of equals the one that was used
// last is still in the CPU's caches. -1 when none is free.
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

// stockSlots makes groups for the next starts, so that a single one does not wait for it.
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
			_ = s.removeSlot(got) // what stays is tried again with the next
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

// discardSlot keeps the name of a group that could not be removed from being given to a life. It is tried again.
func (s *slots) discardSlot(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used[name] = true
	s.junk = append(s.junk, name)
}

// giveBackSlot takes a group back whose processes have ended.
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
		delete(s.used, g.group.Name())
		s.free = append(s.free, g)
	}
	s.mu.Unlock()
	if full {
		return s.removeSlot(g)
	}
	return nil
}

// readUsage reads a group's counters, and whether nothing is left in it. Groups that come back often keep the files
// open.
func (s *slots) readUsage(g *slot) (u cgroup.Usage, empty bool) {
	if g.meter == nil {
		s.mu.Lock()
		if s.meters < maxFreeSlots {
			if g.meter = g.group.OpenMeter(); g.meter != nil {
				s.meters++
			}
		}
		s.mu.Unlock()
	}
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

// removeSlot removes a group, and those that could not be removed before. Its name is not used again until it is gone.
func (s *slots) removeSlot(g slot) error {
	g.thread.giveUpThread()
	s.closeMeter(&g)
	err := g.group.Remove() // patient: the thread may need a moment to be gone
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

// removeFree removes the groups that are free, at the end of the reaper.
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
