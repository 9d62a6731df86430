package decision

import (
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/machine"
)

// Pending is why something is not placed, typed. The values are few and fixed, so that they can label a metric.
type Pending string

// The reasons, the hardest to mend first. Where several hold of one worker, the first of them is that worker's. Workers
// that do not match count only when none does; where the others differ, the last of theirs is the request's: it is what
// the worker nearest to taking it says.
const (
	// no worker could ever match it: a typing error, an amount that is none
	Misconfigured Pending = "misconfigured"
	NeverFits     Pending = "never_fits" // larger than any worker that matches
	// the workers that would take it are cordoned or draining, or its volume is in use
	Held              Pending = "held"
	Quota             Pending = "quota"               // the tenant's own limit
	NoMatch           Pending = "no_match"            // no worker meets its constraints
	Capacity          Pending = "capacity"            // the workers that match are full
	Fragmented        Pending = "fragmented"          // there is room enough among those that match, but on none alone
	WaitingForVictims Pending = "waiting_for_victims" // room is being made
	WaitingForGang    Pending = "waiting_for_gang"    // the others of its gang have no room
	ImagePull         Pending = "image_pull"          // the image is on its way
	PendingEvaluation Pending = "pending_evaluation"  // it may fit: try again
)

// PendingOrder lists the reasons in the order of their precedence.
func PendingOrder() []Pending {
	return []Pending{Misconfigured, NeverFits, Held, Quota, NoMatch, Capacity, Fragmented, WaitingForVictims,
		WaitingForGang,
		ImagePull, PendingEvaluation}
}

func reasonPrecedence(p Pending) int {
	for i, q := range PendingOrder() {
		if p == q {
			return i
		}
	}
	return len(PendingOrder())
}

// PendingText says in a few words what a reason means.
func PendingText(p Pending) string {
	switch p {
	case Misconfigured:
		return "no worker can ever match it as it is written"
	case NeverFits:
		return "it is larger than any worker that matches, even an empty one"
	case Held:
		return "the workers that would take it are cordoned or draining, or its volume or a port is in use"
	case Quota:
		return "the namespace's quota is used up"
	case NoMatch:
		return "no worker meets its constraints"
	case Capacity:
		return "the workers that match are full"
	case Fragmented:
		return "there is room enough in sum, but not on any one worker"
	case WaitingForVictims:
		return "room is being made for it"
	case WaitingForGang:
		return "the rest of its gang has no room"
	case ImagePull:
		return "its image is being fetched"
	}
	return "it may fit in a moment: try again"
}

// CodeQuota is the code of the clauses of a tenant's limits.
const CodeQuota = placement.CodeQuota

// Classify says why no worker of the view takes the request under a policy.
func Classify(r *placement.Request, view cluster.View, policy *placement.Policy) Pending {
	if !r.Resources.Valid() || hasUnknownAttribute(r, view) {
		return Misconfigured
	}
	if len(view.Workers) == 0 {
		return PendingEvaluation
	}
	nearest, matching, full, larger := Misconfigured, 0, 0, 0
	var free cluster.Resources // in sum, where only room is missing
	for i := range view.Workers {
		w := &view.Workers[i]
		p := ofWorker(r, w, policy)
		if !r.Resources.Fits(w.Capacity) {
			larger++
		}
		if p == NoMatch {
			continue
		}
		if p == Capacity {
			full++
			free = free.Add(w.Free().Max(cluster.Resources{}))
		}
		if matching++; matching == 1 || reasonPrecedence(p) > reasonPrecedence(nearest) {
			nearest = p
		}
	}
	switch {
	case matching == 0 && larger == len(view.Workers):
		return NeverFits
	case matching == 0:
		return NoMatch
	case nearest == Capacity && full > 1 && r.Resources.Fits(free):
		return Fragmented
	}
	return nearest
}

// hasUnknownAttribute says whether the request requires an attribute that no worker has, of that type.
func hasUnknownAttribute(r *placement.Request, view cluster.View) bool {
	for _, q := range r.Scheduling.Require {
		defined := q.Op == cluster.NotExists || len(view.Workers) == 0
		for i := range view.Workers {
			v, there := view.Workers[i].Attribute(q.Attribute)
			if there && (q.Op == cluster.Exists || q.Of(v, there) != cluster.Undefined) {
				defined = true
				break
			}
		}
		if !defined {
			return true
		}
	}
	return false
}

// ofWorker gives the hardest of one worker's reasons.
func ofWorker(r *placement.Request, w *cluster.Record, policy *placement.Policy) Pending {
	return hardestReason(r, w, policy.Judge(r, w).Failing)
}

func hardestReason(r *placement.Request, w *cluster.Record, failing []machine.Clause) Pending {
	p := PendingEvaluation
	for _, c := range failing {
		q := ofCode(c.Code)
		if q == Capacity && r.Resources.Get(c.Code) > w.Capacity.Get(c.Code) {
			q = NeverFits
		}
		// A worker that does not match says nothing of how large a worker could be.
		if q == NoMatch {
			return NoMatch
		}
		if reasonPrecedence(q) < reasonPrecedence(p) {
			p = q
		}
	}
	return p
}

func ofCode(code string) Pending {
	switch code {
	case placement.CodeRegion, placement.CodeRequirement, placement.CodeWorkerRequires, placement.CodeReserved,
		placement.CodeAffinity,
		placement.CodeAntiAffinity, placement.CodeSpread, placement.CodeGPUKind, placement.CodeVolume,
		placement.CodePolicy:
		return NoMatch
	case placement.CodeState, placement.CodeAttached:
		return Held
	case CodeQuota:
		return Quota
	case placement.CodeGPUDevice:
		return Fragmented
	case placement.CodeStartRate:
		return PendingEvaluation
	}
	return Capacity // headroom and the resources by name
}
