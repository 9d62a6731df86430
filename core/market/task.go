package market

import (
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
)

// Volumes and short tasks take room of the ledger and count as no machines. A task may be evicted as a machine may,
// once it is known what it is; a volume never is.

// GrantVolume gives a volume its disk. Repeating it changes nothing.
func (s *Seller) GrantVolume(now time.Time, r placement.Request) error {
	return s.grantOther(now, r, &grant{app: r.App, want: r.Resources, up: true, volume: true})
}

// RestoreVolume enters a volume's disk that was granted before, at start-up: it is not judged.
func (s *Seller) RestoreVolume(id string, want cluster.Resources) {
	s.enterGrant(id, &grant{want: want, up: true, volume: true})
}

// RestoreTask enters the room of a task that runs and of which nothing else is known, at start-up: it is not judged.
// gpus are the devices that it has; where nobody has noted them, they are chosen.
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
	rec.Full = nil // it is no machine
	if v := placement.Judge(r, rec); !v.Fits {
		return s.refuseRequest(now, r, v, "")
	}
	g.gpus = pickDevices(s.rec.GPUs, r.Resources.GPU, r.GPUKind, nil)
	s.enterGrant(r.Machine, g)
	return nil
}

// DescribeTask tells of what runs under a name that it is a task, whose, and what it would cost to evict. Nothing
// happens when it is not in the ledger (any more).
func (s *Seller) DescribeTask(id, app string, t Tenant) {
	g, ok := s.grants[id]
	if !ok || !g.volume || g.task && g.app == app && g.tenant == t {
		return
	}
	s.tallyEvictable(id, g, -1)
	g.task, g.app, g.tenant = true, app, t
	s.tallyEvictable(id, g, 1)
	s.bumpVersion()
}
