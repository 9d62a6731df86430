package market

import (
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
)

// Volumes and short tasks occupy room in the ledger but do not count as machines. A task may be evicted like a
// machine, once it is described; a volume never is.

// GrantVolume gives a volume its disk. Repeating it changes nothing.
func (s *Seller) GrantVolume(now time.Time, r placement.Request) error {
	return s.grantOther(now, r, &grant{app: r.App, want: r.Resources, up: true, volume: true})
}

// RestoreVolume enters an existing volume's disk at start-up, without judging it.
func (s *Seller) RestoreVolume(id string, want cluster.Resources) {
	s.enterGrant(id, &grant{want: want, up: true, volume: true})
}

// RestoreTask enters the room of a running task at start-up, without judging or describing it. gpus are its devices;
// without them they are chosen.
func (s *Seller) RestoreTask(id string, want cluster.Resources, gpus ...Share) {
	s.enterGrant(id, &grant{want: want, up: true, volume: true, gpus: s.restoredShares(want, gpus)})
}

// GrantTask gives a task its room until it is freed. Repeating it changes nothing.
func (s *Seller) GrantTask(now time.Time, r placement.Request, t Tenant) error {
	return s.grantOther(now, r, &grant{app: r.App, want: r.Resources, up: true, volume: true, task: true, tenant: t})
}

func (s *Seller) grantOther(now time.Time, r placement.Request, g *grant) error {
	s.expireHolds(now)
	if _, here := s.grants[r.Machine]; here {
		return nil
	}
	s.setFunds(now, &r)
	rec := s.rec
	rec.Full = nil // a task is no machine
	if v := placement.Judge(r, rec); !v.Fits {
		return s.refuseRequest(now, r, v, "")
	}
	g.gpus = pickDevices(s.rec.GPUs, r.Resources.GPU, r.GPUKind, nil)
	s.enterGrant(r.Machine, g)
	return nil
}

// DescribeTask describes a running task: its app, and what its eviction would cost. It does nothing if the task is not
// in the ledger (any more).
func (s *Seller) DescribeTask(id, app string, t Tenant) {
	g, ok := s.grants[id]
	if !ok || !g.volume || g.task && g.app == app && g.tenant == t {
		return
	}
	s.tallyEvictable(id, g, -1)
	s.countTask(g, -1)
	g.task, g.app, g.tenant = true, app, t
	s.countTask(g, 1)
	s.tallyEvictable(id, g, 1)
	s.bumpVersion()
}
