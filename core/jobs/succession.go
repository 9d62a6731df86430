package jobs

import (
	"time"

	"github.com/soukhq/souk/cluster"
)

// Succession decides who keeps a job: it is what a member does as the keeper of its own jobs and as the heir of others'.
type Succession struct {
	Self       cluster.WorkerID
	Dispatcher *Dispatcher
	Copies     *Copies
}

// Claims returns who keeps those of these jobs that this member keeps or has a copy of.
func (s *Succession) Claims(ids []string) []Claim {
	return append(s.Dispatcher.Claims(s.Self, ids), s.Copies.Claims(ids)...)
}

// DropOwn drops the copies of jobs that this member keeps by a higher claim: it has taken them over.
func (s *Succession) DropOwn() {
	for _, c := range s.Copies.Claims(s.Dispatcher.Hello(s.Self).Jobs) {
		if own := s.Dispatcher.ClaimOf(s.Self, c.Job); own != nil && own.Outranks(&c) {
			s.Copies.Drop(c.Job)
		}
	}
}

// Take takes a part of a job from a member that keeps it, or did. Of two members that keep a job, the one whose claim
// ranks lower hands it over. What was changed must be durable before the answer is given: in the journal of copies, or,
// for a Merge, by IsSafe.
func (s *Succession) Take(now time.Time, keeper cluster.WorkerID, x *Copy) CopyAnswer {
	a := CopyAnswer{Job: x.Job, State: CopyMissing}
	x.noteOutputs(keeper)
	own := s.Dispatcher.ClaimOf(s.Self, x.Job)
	theirs := Claim{Job: x.Job, Epoch: x.Epoch, By: keeper}
	switch {
	case own == nil && x.Merge:
	case x.Drop:
		a.State = CopyKept
		s.Copies.dropFor(keeper, x)
		s.Dispatcher.dropAdopted(x)
	case own == nil && s.Copies.isNewerThan(keeper, x):
		if s.adopt(now, x.Job) {
			a.State, a.Rival = CopyRivaled, s.Dispatcher.ClaimOf(s.Self, x.Job)
		}
	case own == nil:
		return s.Copies.Take(now, keeper, x)
	case x.Merge:
		if err := s.Dispatcher.Merge(now, x); err == nil {
			a.State = CopyKept
		}
	case theirs.Outranks(own):
		s.Dispatcher.Rival(now, theirs)
	default:
		a.State, a.Rival = CopyRivaled, own
	}
	return a
}

// HearClaims takes what another member claims about jobs of this one. It returns what to send to that member, so that it
// finds that this one has taken over jobs which it still keeps: it may have been stopped meanwhile, and have noticed
// nothing.
func (s *Succession) HearClaims(now time.Time, by cluster.WorkerID, claims []Claim) (send []Copy) {
	for _, c := range claims {
		own := s.Dispatcher.ClaimOf(s.Self, c.Job)
		switch {
		case own == nil:
		case c.Copy && c.By == s.Self && c.Epoch > own.Epoch: // this disk is an old one; by is about to take over
			s.Dispatcher.Rival(now, Claim{Job: c.Job, Epoch: c.Epoch, By: by})
		case c.Copy || c.By != by:
		case c.Outranks(own):
			s.Dispatcher.Rival(now, c)
		default:
			send = append(send, Copy{Job: c.Job, Epoch: own.Epoch, Probe: true})
		}
	}
	return send
}

// Confirm takes what the keeper of copies claims about the jobs with these ids: it drops the copies that are out of date,
// and takes over the jobs of which the keeper's disk has less than the copy.
func (s *Succession) Confirm(now time.Time, keeper cluster.WorkerID, ids []string, claims []Claim) {
	for _, id := range s.Copies.confirm(s.Self, keeper, ids, claims) {
		s.adopt(now, id)
	}
}

// adopt takes over a job from its copy.
func (s *Succession) adopt(now time.Time, id string) bool {
	x := s.Copies.Release(id)
	return x != nil && s.Dispatcher.Adopt(now, x)
}

// TakeOver takes over jobs whose keepers are gone, unless by the claims of the others another member keeps them, or
// has a newer copy. silent says that not all others have answered: they are waited for, but not for ever.
func (s *Succession) TakeOver(now time.Time, ids []string, claims []Claim, silent bool) {
	for _, id := range ids {
		switch {
		case s.Copies.IsSuperseded(id, claims):
			s.Copies.Drop(id)
		case silent && s.Copies.Waits(now, id):
		default:
			s.adopt(now, id)
		}
	}
}

// Reclaim finds the member that keeps a job of this one which another had taken over that is gone. If there is none, this
// one keeps it again.
func (s *Succession) Reclaim(now time.Time, id string, claims []Claim, silent bool) {
	for _, c := range claims {
		if c.Job == id && c.By != s.Self {
			if !c.Copy {
				s.Dispatcher.Rival(now, c)
			}
			return // or its heir is about to take it over
		}
	}
	if !silent {
		s.Dispatcher.Reclaim(now, id)
	}
}
