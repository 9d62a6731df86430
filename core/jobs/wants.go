package jobs

import (
	"slices"
	"strings"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
)

// Wants are the conditions of a job's tasks on the attributes of their worker.
type Wants struct {
	Require []cluster.Requirement `json:"require,omitempty"` // a worker that does not meet all of them runs no task
	// Prefer are met by the workers that tasks go to at first: others run them once tasks have waited for preferFor.
	Prefer []cluster.Requirement `json:"prefer,omitempty"`
}

// Bounds of Wants.
const (
	MaxConditions    = 16      // of Require, and of Prefer
	maxConditionText = 1 << 10 // bytes of their text
)

func (w *Wants) checkWants() error {
	no := func(format string, args ...any) error {
		return fault.New(fault.Invalid, fault.CodeJob, format, args...)
	}
	for _, list := range [][]cluster.Requirement{w.Require, w.Prefer} {
		if len(list) > MaxConditions {
			return no("a task has at most %d requirements and as many preferences, not %d", MaxConditions, len(list))
		}
		for _, q := range list {
			if why := q.Valid(); why != "" {
				return no("%s", why)
			}
		}
		if n := len(conditionText(list)); n > maxConditionText {
			return no("the requirements of a task, and its preferences, have at most %d bytes each, not %d",
				maxConditionText, n)
		}
	}
	return nil
}

// conditionText writes conditions in their canonical form: sorted, each once, one on a line. So shapes can be compared.
func conditionText(list []cluster.Requirement) string {
	lines := make([]string, len(list))
	for i, q := range list {
		lines[i] = q.String()
	}
	slices.Sort(lines)
	return strings.Join(slices.Compact(lines), "\n")
}

// parseConditions reads what conditionText has written; not ok: it has not.
func parseConditions(text string) (list []cluster.Requirement, ok bool) {
	if text == "" {
		return nil, true
	}
	for line := range strings.SplitSeq(text, "\n") {
		q, err := cluster.ParseRequirement(line)
		if err != nil {
			return nil, false
		}
		list = append(list, q)
	}
	return list, true
}

// request returns the request that the judge judges a task of this shape by; not ok: the shape has a requirement that
// this build does not know.
func (s Shape) request() (r placement.Request, ok bool) {
	r = placement.Request{Resources: s.Resources(), UnixUser: s.User.Name, GPUKind: s.GPUKind}
	r.Scheduling.Require, ok = parseConditions(s.Require)
	return r, ok
}

// isPreferred reports whether a shape prefers workers, and some worker that it prefers may hold a task of it.
func (d *Dispatcher) isPreferred(sh *shapeQueue) bool {
	return len(sh.preferred) > 0 && slices.ContainsFunc(d.inOrder, func(s *workerState) bool {
		return (s.here || s.near) && sh.prefers(s) && !s.judgeShape(sh).Never
	})
}

// prefers reports whether a worker meets all preferences of a shape.
func (sh *shapeQueue) prefers(s *workerState) bool {
	for i := range sh.preferred {
		q := &sh.preferred[i]
		if v, there := s.record.Attribute(q.Attribute); q.Of(v, there) != cluster.Met {
			return false
		}
	}
	return true
}
