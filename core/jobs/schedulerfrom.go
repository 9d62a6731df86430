package jobs

import "cmp"

// Whose default a job's scheduler is (SchedulerFrom.Of).
const (
	OfNamespace = "namespace"
	OfCluster   = "cluster"
	OfJob       = "job" // no default: the job itself names the auction, which Spec.Scheduler does not show
)

// SchedulerFrom says where the scheduler of a job is from. The gateway sets it, whatever the client sends.
type SchedulerFrom struct {
	Of string `json:"of"` // OfNamespace, OfCluster or OfJob
	// Why says in a sentence why the job has another scheduler than the default, or is in no comparison; "": it has it
	Why string `json:"why,omitempty"`
	// Comparison is the ID of the comparison that the job takes part in, which drew its scheduler; "": none
	Comparison string `json:"comparison,omitempty"`
	Candidate  bool   `json:"candidate,omitempty"` // with Comparison: it drew scheduler B
}

// NamedScheduler returns the scheduler that the job itself named when it was submitted; "": none, so that it got the
// default.
func (s *Spec) NamedScheduler() string {
	switch from := s.SchedulerFrom; {
	case from == nil:
		return s.Scheduler
	case from.Of == OfJob:
		return Auction
	}
	return ""
}

// SchedulerText returns the job's scheduler and where it is from; "": the auction, without a default.
func (s *Spec) SchedulerText() string {
	switch from := s.SchedulerFrom; {
	case from == nil || from.Of == OfJob:
		return s.Scheduler
	case from.Why != "":
		return cmp.Or(s.Scheduler, Auction) + ": " + from.Why
	case from.Comparison != "":
		return cmp.Or(s.Scheduler, Auction) + ", drawn in the comparison of " + DefaultOwner(from.Of, s.Namespace)
	default:
		return cmp.Or(s.Scheduler, Auction) + ", the default of " + DefaultOwner(from.Of, s.Namespace)
	}
}

// DefaultOwner returns whose default is meant, in words; namespace is the job's.
func DefaultOwner(of, namespace string) string {
	if of == OfNamespace {
		return "namespace " + namespace
	}
	return "the cluster"
}

// AuctionOnly returns what the job asks for that only the auction knows, and what to do without it; "": nothing.
func (s *Spec) AuctionOnly() (what, instead string) {
	switch {
	case len(s.Prefer) > 0:
		return "preferred workers", "require what the workers must have"
	case s.Priority != "" && s.Priority != Normal:
		return "priorities", "submit the job with priority normal"
	}
	return "", ""
}
