package api

import "github.com/soukhq/souk/core/rollout"

// A change of a service is a rollout.Change on both sides; between them it is the body of the operation for its verb.

// Change returns what the body says.
func (in Scale) Change() rollout.Change { return rollout.Change{Counts: in.Counts, Parent: in.Parent} }

// Change returns what the body says.
func (in ServiceRollback) Change() rollout.Change {
	return rollout.Change{Release: in.Release, Parent: in.Parent}
}

// Change returns what the body says.
func (in RolloutChange) Change() rollout.Change { return rollout.Change{Parent: in.Parent} }

// Change returns what the body says.
func (in Promotion) Change() rollout.Change {
	return rollout.Change{Promote: in.Steps, All: in.All, Parent: in.Parent}
}

// ChangeService returns the operation that changes a service by the verb c.Why, and its body; "" where no operation does.
func ChangeService(c *rollout.Change) (op Op, body any) {
	switch c.Why {
	case rollout.WhyScale:
		return ScaleService, Scale{Counts: c.Counts, Parent: c.Parent}
	case rollout.WhyBack:
		return RollbackService, ServiceRollback{Release: c.Release, Parent: c.Parent}
	case rollout.WhyPromote:
		return PromoteRollout, Promotion{Steps: c.Promote, All: c.All, Parent: c.Parent}
	}
	return map[string]Op{rollout.WhyRestart: RestartService, rollout.WhyPause: PauseRollout,
		rollout.WhyResume: ResumeRollout}[c.Why], RolloutChange{Parent: c.Parent}
}
