package rollout

import "github.com/soukhq/souk/core/release"

// WantOf returns what a steward reads of a service, whose app has an id of its own.
func WantOf(s *release.Service, id string) *Want {
	return &Want{App: id, Head: s.Head, Release: s.Release, Before: s.Before, Held: s.Held, Unmade: s.Unmade,
		Progress: s.Progress, Scaled: s.Scaled, Runs: s.Runs}
}
