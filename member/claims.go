package member

import (
	"context"
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/mesh/wire"
)

// DecideBy gives the member what decides claims that others ask it for. It is called before Run.
func (m *Member) DecideBy(d wire.Decider) { m.decider = d }

// CarryBy gives the member what carries services. It is called before Run.
func (m *Member) CarryBy(s wire.Stewards) { m.stewards = s }

// Stuck asks another member for how long the services that it carries have not come round.
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

// Stewards lists the members that may carry services: those that can be heard and are not removed; this one among
// them.
func (m *Member) Stewards() (ids []cluster.WorkerID) {
	for _, x := range m.cluster.Members() {
		if x.Self || !m.removedFor(x.ID) && x.Heard() {
			ids = append(ids, x.ID)
		}
	}
	return ids
}

// LostAfter returns for how long a worker is not heard until its machines are lost, where their group does not say it.
// It follows from the member's pace.
func (m *Member) LostAfter() time.Duration { return m.o.Knobs.Lost }

// Apart returns for how long this member has heard no other one; 0 where it belongs to a cluster of one, or all others
// have left or were removed. One that it has known before its start counts.
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

// Deciders lists the members that may decide claims: those that are known and not removed.
func (m *Member) Deciders() []cluster.WorkerID {
	var out []cluster.WorkerID
	for _, x := range m.cluster.Members() {
		if x.Self || !m.removedFor(x.ID) {
			out = append(out, x.ID)
		}
	}
	return out
}

// Claim asks another member for what must be unique in an app. One that cannot be heard is not tried.
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
