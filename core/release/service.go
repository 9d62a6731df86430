package release

// Service is what there is to know of a service, beside its machines. What it points to is shared.
type Service struct {
	App     string   // its name, for sentences
	Head    *Head    // nil: it cannot be used here
	Release *Release // the head's; nil: not here
	Before  *Release // that of Head.Before; nil: there is none, or it is not here
	Tenure           // as its steward has last written; zero: none has begun a term
}

// InForce returns the release that the machines of the service are to be like now, with how often they were to be
// restarted: the head's, or once its rollout is undone the one from before. nil: it is not here.
func (s *Service) InForce() (*Release, uint64) {
	if s.Head == nil {
		return nil, 0
	}
	in := s.Head.InForce(s.Progress)
	if s.Head.Before != nil && in == *s.Head.Before {
		return s.Before, in.Restarted
	}
	return s.Release, in.Restarted
}

// Applied returns the release that machines are made from now, and its count of restarts: the release in force, or the one
// before it while the release command has not succeeded. nil: there is no such release, or this member does not have it.
func (s *Service) Applied() (*Release, uint64) {
	r, restarted := s.InForce()
	p := s.Progress
	if s.Head == nil || r != s.Release || r == nil || r.Command == nil || !s.Head.Command ||
		p.Of(s.Head) && p.Command == CommandDone {
		return r, restarted
	}
	if s.Head.Before == nil {
		return nil, 0
	}
	return s.Before, s.Head.Before.Restarted
}
