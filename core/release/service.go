package release

// Service is a member's knowledge of a service, besides its machines. What it points to is shared.
type Service struct {
	App     string   // its name, for sentences
	Head    *Head    // nil: this member cannot use it
	Release *Release // the head's; nil: this member lacks it
	Before  *Release // that of Head.Before; nil: there is none, or this member lacks it
	Tenure           // as its steward has last written it; zero: no term has begun yet
}

// InForce returns the release that the service's machines are to run now, and its count of restarts: the head's, or
// the previous one once the rollout is undone. nil: this member lacks it.
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

// Applied returns the release that machines are made from now, and its count of restarts: the release in force, or the
// previous one while the release command has not succeeded. nil: there is no such release, or this member lacks it.
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
