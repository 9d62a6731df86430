package member

import (
	"context"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/wire"
)

// claimsSince is the capability from which on a member decides claims.
const claimsSince = 20261122

// DecideBy gives the member what decides claims that others ask it for. It is called before Run.
func (m *Member) DecideBy(d wire.Decider) { m.decider = d }

// Deciders lists the members that may decide claims: those that are known, not removed, and new enough.
func (m *Member) Deciders() []cluster.WorkerID {
	var out []cluster.WorkerID
	for _, x := range m.cluster.Members() {
		if x.Self || !m.removedFor(x.ID) && x.Capability >= claimsSince {
			out = append(out, x.ID)
		}
	}
	return out
}

// Claim asks another member for what must be unique in an app. One that cannot be heard is not tried.
func (m *Member) Claim(ctx context.Context, id cluster.WorkerID, c cluster.Claim) (cluster.Claimed, error) {
	f, known := m.Other(id)
	if !known {
		return cluster.Claimed{}, fault.New(fault.NotFound, "member_not_found", "no member %s is known here", id)
	}
	if err := f.unheard(); err != nil {
		return cluster.Claimed{}, err
	}
	return f.Link.Claim(ctx, c)
}
