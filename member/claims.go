package member

import (
	"context"
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/mesh/wire"
)

// DecideBy sets what decides the claims that other members ask this one for. Call it before Run.
func (m *Member) DecideBy(d wire.Decider) { m.decider = d }

// RunTasksBy sets the runner of tasks that buyers of other members use. Call it before Run.
func (m *Member) RunTasksBy(t wire.Tasks) { m.tasks = t }

// CarryBy sets what carries services at this member. Call it before Run.
func (m *Member) CarryBy(s wire.Stewards) { m.stewards = s }

// Stuck asks another member how long its steward has not completed a round over its services.
func (m *Member) Stuck(ctx context.Context, id cluster.WorkerID) (time.Duration, error) {
	f, known := m.Other(id)
	if !known {
		return 0, fault.New(fault.NotFound, codeMemberNotFound, "no member %s is known here", id)
	}
	if err := f.unheardError(); err != nil {
		return 0, err
	}
	return f.Link.Stuck(ctx)
}

// Stewards lists the members that may be stewards of services: the reachable ones that are not removed, including this
// one.
func (m *Member) Stewards() (ids []cluster.WorkerID) {
	for _, x := range m.cluster.Members() {
		if x.Self || !m.removedFor(x.ID) && x.Heard() {
			ids = append(ids, x.ID)
		}
	}
	return ids
}

// LostAfter returns how long a worker is unreachable before its machines count as lost, unless their group says
// otherwise. It comes from the gossip knobs.
func (m *Member) LostAfter() time.Duration { return m.o.Knobs.Lost }

// Apart returns how long this member has heard no other; 0 in a cluster of one, or if all others have left or were
// removed. Members known from before its start count as others.
func (m *Member) Apart() time.Duration {
	others := slices.ContainsFunc(m.cluster.Expected(), func(id cluster.WorkerID) bool { return !m.removedFor(id) }) ||
		slices.ContainsFunc(m.cluster.Members(), func(x cluster.Member) bool {
			return !x.Self && x.State != cluster.MemberLeft && !m.removedFor(x.ID)
		})
	if !others {
		return 0
	}
	return m.cluster.Silent()
}

// Deciders lists the members that may decide claims: the known ones that are not removed.
func (m *Member) Deciders() []cluster.WorkerID {
	var out []cluster.WorkerID
	for _, x := range m.cluster.Members() {
		if x.Self || !m.removedFor(x.ID) {
			out = append(out, x.ID)
		}
	}
	return out
}

// Claim asks another member to decide a claim. An unreachable member is not tried.
func (m *Member) Claim(ctx context.Context, id cluster.WorkerID, c cluster.Claim) (cluster.Claimed, error) {
	f, known := m.Other(id)
	if !known {
		return cluster.Claimed{}, fault.New(fault.NotFound, codeMemberNotFound, "no member %s is known here", id)
	}
	if err := f.unheardError(); err != nil {
		return cluster.Claimed{}, err
	}
	return f.Link.Claim(ctx, c)
}
