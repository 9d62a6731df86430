package member

import (
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fleet/buyers"
	"github.com/soukhq/souk/mesh/wire"
)

// KeepJobs has the member answer the other members' questions about the jobs that are kept here. Call it before Run.
func (m *Member) KeepJobs(j wire.Jobs) { m.jobs = j }

// KeepCopies has the member keep copies of the other members' jobs. Call it before Run.
func (m *Member) KeepCopies(h wire.Heirs) { m.heirs = h }

// KeepSent has the member keep what users send for the tasks of jobs, as far as other members ask for it. Call it before
// Run.
func (m *Member) KeepSent(s wire.Sent) { m.sent = s }

// Buyers lists the buyers of tasks of the other members, but of those that have left for good.
func (m *Member) Buyers() []buyers.Other {
	known := m.fleet.Snapshot()
	far := m.Others()
	out := make([]buyers.Other, 0, len(far))
	for _, f := range far {
		if w, there := known.Worker(f.id); !there || w.State != cluster.MemberLeft {
			out = append(out, f.buyer())
		}
	}
	return out
}

// Buyer returns the buyer of tasks of another member.
func (m *Member) Buyer(id cluster.WorkerID) (buyers.Other, bool) {
	f, known := m.Other(id)
	if !known {
		return buyers.Other{}, false
	}
	return f.buyer(), true
}

func (f *Far) buyer() buyers.Other {
	return buyers.Other{ID: f.id, Buyer: f.Jobs(), Gone: f.gone}
}

// gone returns since when the member is not heard of, and the error for that; nil: it is.
func (f *Far) gone() (since time.Time, why error) {
	if why = f.unheardError(); why == nil {
		return since, nil
	}
	if w, known := f.m.fleet.Snapshot().Worker(f.id); known {
		since = w.Since
	}
	return since, why
}
