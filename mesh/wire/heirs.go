package wire

import (
	"context"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
)

const (
	pathJobKeep   = "/wire/job-keep"
	pathJobClaims = "/wire/job-claims"
)

// maxCopied bounds the jobs of one call about copies.
const maxCopied = 20_000

// Heirs keeps copies of the jobs of other members. All errors are *fault.Error.
type Heirs interface {
	// TakeCopies takes parts of jobs that the member keeps. The answers are durable, and in the same order.
	TakeCopies(ctx context.Context, keeper cluster.WorkerID, list []jobs.Copy) ([]jobs.CopyAnswer, error)
	// Claims returns who keeps those of these jobs that this member keeps or has a copy of. started says that the member
	// that asks, by, has just started, so its disk may be an old one.
	Claims(ctx context.Context, by cluster.WorkerID, ids []string, started bool) ([]jobs.Claim, error)
}

type copiesArgs struct {
	Copies []jobs.Copy `json:"copies"`
}

func (a *copiesArgs) check() error {
	if len(a.Copies) > maxCopied {
		return fault.New(fault.Invalid, fault.CodeJob, "parts of %d jobs are copied at once; at most %d", len(a.Copies),
			maxCopied)
	}
	for i := range a.Copies {
		x := &a.Copies[i]
		if !jobs.ValidID(x.Job) || x.Epoch < 0 || x.Epoch > jobs.MaxEpoch || x.Piece < 0 ||
			x.Version < len(x.Groups) && x.Piece == 0 {
			return fault.New(fault.Invalid, fault.CodeJob, "%.40q, epoch %d, version %d, piece %d are no part of a job",
				x.Job, x.Epoch, x.Version, x.Piece)
		}
		var wrong *jobs.Result
		x.EachResult(func(_ int, r *jobs.Result) {
			if r.Index < 0 || r.Index > jobs.MaxIndex || jobs.TryOf(r.Attempt) == 0 || r.Attempt < 0 ||
				jobs.EpochOf(r.Attempt) > jobs.MaxEpoch {
				wrong = r
			}
		})
		if wrong != nil {
			return fault.New(fault.Invalid, fault.CodeJob, "task %d, attempt %d name no result of job %s", wrong.Index,
				wrong.Attempt, x.Job)
		}
	}
	return nil
}

type claimsArgs struct {
	Jobs    []string `json:"jobs"`
	Started bool     `json:"started,omitempty"`
}

func (a *claimsArgs) check() error {
	if len(a.Jobs) > maxCopied {
		return fault.New(fault.Invalid, fault.CodeJob, "%d jobs are asked about at once; at most %d", len(a.Jobs),
			maxCopied)
	}
	for _, id := range a.Jobs {
		if !jobs.ValidID(id) {
			return fault.New(fault.Invalid, fault.CodeJob, "%.40q is no id of a job", id)
		}
	}
	return nil
}

func (s *Server) heirsOrError() (Heirs, error) {
	if s.o.Heirs == nil {
		return nil, fault.New(fault.Unimplemented, jobs.CodeJobs, "%s keeps no copies of jobs", s.o.Identity.Name().ID)
	}
	return s.o.Heirs, nil
}

// heirVerbs are the calls between a member that keeps jobs and those that have copies of them.
func heirVerbs() map[string]route {
	return map[string]route{
		pathJobKeep: unaryOf(change, func(ctx context.Context, s *Server, by Peer, a copiesArgs) ([]jobs.CopyAnswer,
			error) {
			h, err := s.heirsOrError()
			if err != nil {
				return nil, err
			}
			return h.TakeCopies(ctx, cluster.WorkerID(by.ID), a.Copies)
		}),
		pathJobClaims: unaryOf(read, func(ctx context.Context, s *Server, by Peer, a claimsArgs) ([]jobs.Claim,
			error) {
			h, err := s.heirsOrError()
			if err != nil {
				return nil, err
			}
			return h.Claims(ctx, cluster.WorkerID(by.ID), a.Jobs, a.Started)
		}),
	}
}

// CopyJobs sends the member parts of jobs that this one keeps. The answers are in the same order.
func (l *Link) CopyJobs(ctx context.Context, list []jobs.Copy) (answers []jobs.CopyAnswer, err error) {
	err = l.callMember(ctx, pathJobKeep, changeTime, copiesArgs{list}, &answers)
	return answers, err
}

// JobClaims asks the member who keeps those of these jobs that it keeps or has a copy of. started says that this member
// has just started.
func (l *Link) JobClaims(ctx context.Context, ids []string, started bool) (claims []jobs.Claim, err error) {
	err = l.callMember(ctx, pathJobClaims, readTime, claimsArgs{ids, started}, &claims)
	return claims, err
}
