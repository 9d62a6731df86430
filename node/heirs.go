package node

import (
	"context"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
)

// How long a member is away before its jobs are taken over. A member that hears less than half of the others is probably
// cut off itself, and waits longer.
const (
	goneAfter   = 3 * time.Second // after it was found dead, so that a restart of souk changes nothing
	apartAfter  = time.Minute
	unheardLong = time.Minute // of one that has not been heard since this process began
)

// jobMembers are the other members as heirs and keepers of jobs.
type jobMembers struct{ *farRunners }

// isReady reports whether other members may be asked for anything, and since when.
func (f jobMembers) isReady() (since time.Time, ready bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.begun, f.run != nil && f.run.Err() == nil && f.member.Unfit() == nil
}

// Heirs implements batch.Members: those that take new work come first, in an order of this member's own.
func (f jobMembers) Heirs() []cluster.WorkerID {
	if _, ready := f.isReady(); !ready {
		return nil
	}
	var ready, others []cluster.WorkerID
	for w := range f.member.Fleet().Snapshot().Workers() {
		switch _, known := f.member.Other(w.ID); {
		case w.ID == f.member.ID() || !known || !w.Ready():
		case w.Record.State == cluster.Ready:
			ready = append(ready, w.ID)
		default:
			others = append(others, w.ID)
		}
	}
	what := "heir\x00" + string(f.member.ID())
	return append(cluster.Rendezvous(ready, what), cluster.Rendezvous(others, what)...)
}

// Heard implements batch.Members.
func (f jobMembers) Heard() (out []cluster.WorkerID) {
	if _, ready := f.isReady(); !ready {
		return nil
	}
	for w := range f.member.Fleet().Snapshot().Workers() {
		if _, known := f.member.Other(w.ID); known && w.Reachable() {
			out = append(out, w.ID)
		}
	}
	return out
}

// Gone implements batch.Members.
func (f jobMembers) Gone(id cluster.WorkerID) bool {
	begun, ready := f.isReady()
	if !ready {
		return false
	}
	for _, r := range f.member.Removed() {
		if r.Member == id && r.Rejoined.IsZero() {
			return true
		}
	}
	heard, all, wait := 1, 1, goneAfter
	s := f.member.Fleet().Snapshot()
	for w := range s.Workers() {
		if w.ID == f.member.ID() || w.State == cluster.MemberLeft {
			continue
		}
		if all++; w.Reachable() {
			heard++
		}
	}
	if 2*heard < all {
		wait = apartAfter
	}
	w, known := s.Worker(id)
	switch {
	case !known || w.State == "":
		return time.Since(begun) >= unheardLong
	case w.Reachable():
		return false
	}
	return time.Since(w.Since) >= wait && time.Since(begun) >= wait
}

// Copy implements batch.Members.
func (f jobMembers) Copy(ctx context.Context, id cluster.WorkerID, list []jobs.Copy) ([]jobs.CopyAnswer, error) {
	far, known := f.member.Other(id)
	if !known {
		return nil, errNotKnown(id)
	}
	return far.CopyJobs(ctx, list)
}

// Claims implements batch.Members.
func (f jobMembers) Claims(ctx context.Context, id cluster.WorkerID, ids []string, started bool) ([]jobs.Claim,
	error) {
	far, known := f.member.Other(id)
	if !known {
		return nil, errNotKnown(id)
	}
	return far.JobClaims(ctx, ids, started)
}

func errNotKnown(id cluster.WorkerID) error {
	return fault.New(fault.Unavailable, fault.CodeLost, "%s is not a member any more", id)
}
