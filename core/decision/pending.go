package decision

import (
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/machine"
)

// Pending is why something is not placed, typed. The values are few and fixed, so that they can label a metric.
type Pending string

// The reasons, the hardest to mend first. If several hold for one worker, the first in this list is that worker's
// reason. Among the workers that match, the reason that comes last in this list is the request's: it is that of the
// worker nearest to taking it. Workers that do not match count only if no worker matches.
const (
	// no worker could ever match it: a typing error or an invalid amount
	Misconfigured Pending = "misconfigured"
	NeverFits     Pending = "never_fits" // larger than any matching worker
	// the workers that would take it are cordoned or draining, or its volume is in use
	Held              Pending = "held"
	Quota             Pending = "quota"               // the tenant's own limit
	NoMatch           Pending = "no_match"            // no worker meets its constraints
	Capacity          Pending = "capacity"            // the workers that match are full
	Fragmented        Pending = "fragmented"          // the matching workers have room enough together, but none alone
	WaitingForVictims Pending = "waiting_for_victims" // evictions are making room
	WaitingForGang    Pending = "waiting_for_gang"    // other members of its gang have no room
	ImagePull         Pending = "image_pull"          // the image is being pulled
	PendingEvaluation Pending = "pending_evaluation"  // it may fit: try again
)

// PendingOrder returns the reasons in the order of their precedence.
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

// PendingText describes a reason in a few words.
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

// CodeQuota is the code of a clause about a tenant's limits.
const CodeQuota = placement.CodeQuota

// Classify returns why no worker of the view takes the request under a policy.
func Classify(r *placement.Request, view cluster.View, policy *placement.Policy) Pending {
	if !r.Resources.Valid() || hasUnknownAttribute(r, view) {
		return Misconfigured
	}
	if len(view.Workers) == 0 {
		return PendingEvaluation
	}
	nearest, matching, full, larger := Misconfigured, 0, 0, 0
	var free cluster.Resources // the sum over the workers that only lack room
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

// hasUnknownAttribute reports whether the request requires an attribute that no worker has with a comparable type.
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

// ofWorker returns why one worker does not take the request: the hardest of its reasons.
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
		// A worker that does not match does not show how large a matching worker could be.
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
	return Capacity // headroom, and each resource by its name
}
