package api

import (
	"github.com/soukhq/souk/core/release"
)

// Client and server use a release.Change for a change of a service; on the wire it is the body of its verb's operation.

// Change returns the body as a release.Change.
func (in Scale) Change() release.Change { return release.Change{Counts: in.Counts, Parent: in.Parent} }

// Change returns the body as a release.Change.
func (in ServiceRollback) Change() release.Change {
	return release.Change{Release: in.Release, Parent: in.Parent}
}

// Change returns the body as a release.Change.
func (in RolloutChange) Change() release.Change { return release.Change{Parent: in.Parent} }

// Change returns the body as a release.Change.
func (in Promotion) Change() release.Change {
	return release.Change{Promote: in.Steps, All: in.All, Parent: in.Parent}
}

// ChangeService returns the operation that changes a service by the verb c.Why, and its body; "": no operation does.
func ChangeService(c *release.Change) (op Op, body any) {
	switch c.Why {
	case release.WhyScale:
		return ScaleService, Scale{Counts: c.Counts, Parent: c.Parent}
	case release.WhyBack:
		return RollbackService, ServiceRollback{Release: c.Release, Parent: c.Parent}
	case release.WhyPromote:
		return PromoteRollout, Promotion{Steps: c.Promote, All: c.All, Parent: c.Parent}
	}
	return map[string]Op{release.WhyRestart: RestartService, release.WhyPause: PauseRollout,
		release.WhyResume: ResumeRollout}[c.Why], RolloutChange{Parent: c.Parent}
}
