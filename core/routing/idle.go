package routing

import (
	"cmp"
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
)

// Idle decides which machines of one worker are stopped because they get no requests. Each worker decides for its own
// machines, since only it sees all their requests, and considers the others' by the fleet's reports. Two workers never
// both stop the last machine that must stay up, if they know of each other's: their IDs decide which ones those are.
type Idle struct {
	since map[string]time.Time // since when each idle machine has been idle
}

// NewIdle returns an Idle without state.
func NewIdle() *Idle { return &Idle{since: map[string]time.Time{}} }

// Service is the machines behind one service, as the worker knows them: its own exactly, the others by the fleet's
// reports.
type Service struct {
	Policy   Policy
	Machines []Member
}

// Member is a machine behind a service.
type Member struct {
	Machine string
	Region  cluster.Region
	Up      bool // it takes requests
	Load    int
	Own     bool      // it is one of the deciding worker's
	Busy    bool      // it reports that it is working
	Since   time.Time // of an own machine: when it came up, or when its last request ended
}

// Rest is a machine that is to be stopped or suspended.
type Rest struct {
	Machine string
	Suspend bool
	Idle    time.Duration // for how long it has been idle
}

// Step returns the machines that are to rest now, and when to look again; zero: when something changes. A machine of
// several services is listed in each, and rests only if all agree.
func (x *Idle) Step(now time.Time, services []Service) (rest []Rest, next time.Time) {
	seen, stays := map[string]bool{}, map[string]bool{}
	out := map[string]Rest{}
	for _, s := range services {
		free := s.unneededMachines()
		for _, m := range s.Machines {
			if !m.Own {
				continue
			}
			if m.Up && m.Load == 0 && !m.Busy {
				seen[m.Machine] = true
				if at, idle := x.since[m.Machine]; !idle || at.Before(m.Since) {
					x.since[m.Machine] = cmp.Or(m.Since, now)
				}
			} else {
				stays[m.Machine] = true
				continue
			}
			if s.Policy.Autostop == StaysUp || !free[m.Machine] {
				stays[m.Machine] = true
				continue
			}
			idle := now.Sub(x.since[m.Machine])
			if idle < s.Policy.IdleAfter {
				stays[m.Machine] = true
				next = earlierTime(next, x.since[m.Machine].Add(s.Policy.IdleAfter))
				continue
			}
			out[m.Machine] = Rest{Machine: m.Machine, Suspend: s.Policy.Autostop == IsSuspended, Idle: idle}
		}
	}
	for id := range x.since {
		if !seen[id] {
			delete(x.since, id)
		}
	}
	for id, r := range out {
		if !stays[id] {
			rest = append(rest, r)
		}
	}
	slices.SortFunc(rest, func(a, b Rest) int { return cmp.Compare(a.Machine, b.Machine) })
	return rest, next
}

// unneededMachines returns the machines that the load of their region does not need, beyond those that must stay up.
func (s *Service) unneededMachines() map[string]bool {
	load, up := map[cluster.Region]int{}, []Member{}
	for _, m := range s.Machines {
		if m.Up {
			load[m.Region] += m.Load
			up = append(up, m)
		}
	}
	slices.SortFunc(up, func(a, b Member) int { return cmp.Compare(a.Machine, b.Machine) })
	out, at := map[string]bool{}, map[cluster.Region]int{}
	for i, m := range up {
		needed := 0
		if s.Policy.Soft > 0 && load[m.Region] > 0 {
			p := s.Policy
			p.Min = 0
			needed = p.Needed(load[m.Region])
		}
		if i >= s.Policy.Min && at[m.Region] >= needed {
			out[m.Machine] = true
		}
		at[m.Region]++
	}
	return out
}

func earlierTime(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}
