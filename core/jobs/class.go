package jobs

import (
	"time"

	"github.com/soukhq/souk/fault"
)

// LongTask is the estimate of a task, in microseconds, from which on its job is of class Long unless the job says its
// class.
const LongTask = int64(10 * time.Second / time.Microsecond)

// Class is what schedulers that treat short and long jobs differently take a job for: Hawk, Eagle and Pigeon keep
// workers free of long ones, and in the auction a long job may go by age (auction.Rules.Aged).
type Class string

// The classes; "" is by the estimate of a task: see LongTask.
const (
	Short Class = "short"
	Long  Class = "long"
)

func (s *Spec) checkClass() error {
	if s.Class != "" && s.Class != Short && s.Class != Long {
		return fault.New(fault.Invalid, fault.CodeJob,
			"%.40q is no class of a job; use short or long, or none to go by the estimate of a task", s.Class)
	}
	return nil
}

func (j *job) isLong() bool {
	if j.spec.Class != "" {
		return j.spec.Class == Long
	}
	return j.estimate >= LongTask
}
