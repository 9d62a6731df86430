package jobs

import (
	"slices"
	"strings"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Ordering says when tasks of a job may start: not before a time, not on hold, and after other jobs.
type Ordering struct {
	Begin    time.Time `json:"begin,omitzero"`    // no task starts before
	Deadline time.Time `json:"deadline,omitzero"` // tasks that have not ended by then are cancelled
	Hold     bool      `json:"hold,omitempty"`    // it is submitted on hold: no task starts before its release
	// After are the jobs to wait for: all of them must be met.
	After []Dependency `json:"after,omitempty"`
	// Unmet says what becomes of tasks whose dependencies can never be met; "" is UnmetCancel.
	Unmet Unmet `json:"unmet,omitempty"`
}

// Dependency is a job that must have ended in some way.
type Dependency struct {
	Kind DependencyKind `json:"kind"`
	Job  string         `json:"job"` // its ID; in a submission it may be its name
}

// DependencyKind is how a job must have ended.
type DependencyKind string

// The kinds, which are Slurm's.
const (
	AfterOK   DependencyKind = "ok"   // all its tasks have succeeded
	AfterAny  DependencyKind = "any"  // it has ended
	AfterFail DependencyKind = "fail" // it has ended, and not all its tasks have succeeded
	// AfterCorr is met for each task on its own: by the success of the task of the same index, or of all tasks if there
	// is none of that index.
	AfterCorr DependencyKind = "corr"
)

// Unmet says what becomes of tasks whose dependencies can never be met.
type Unmet string

// What becomes of them: they are cancelled, or wait until somebody cancels them.
const (
	UnmetCancel Unmet = "cancel"
	UnmetWait   Unmet = "wait"
)

// MaxDependencies bounds the dependencies of one job.
const MaxDependencies = 100

// String writes a dependency as ParseDependency reads it.
func (d Dependency) String() string { return string(d.Kind) + ":" + d.Job }

// ParseDependency reads KIND:JOB, or JOB, which is AfterOK. The job may be a name.
func ParseDependency(text string) (d Dependency, err error) {
	kind, job, both := strings.Cut(text, ":")
	if !both {
		kind, job = string(AfterOK), text
	}
	d = Dependency{DependencyKind(kind), job}
	if !d.Kind.isKnown() || job == "" {
		return d, fault.New(fault.Invalid, fault.CodeJob,
			"a job to wait for is written JOB, or KIND:JOB, where KIND is ok, any, fail or corr, not %.80q", text)
	}
	return d, nil
}

func (k DependencyKind) isKnown() bool {
	return slices.Contains([]DependencyKind{AfterOK, AfterAny, AfterFail, AfterCorr}, k)
}

// checkOrdering refuses what no job can be ordered by. timeout is of one attempt; 0: none.
func (o *Ordering) checkOrdering(timeout time.Duration) error {
	no := func(format string, args ...any) error {
		return fault.New(fault.Invalid, fault.CodeJob, format, args...)
	}
	if n := len(o.After); n > MaxDependencies {
		return no("a job waits for at most %d other jobs, not %d", MaxDependencies, n)
	}
	for _, x := range o.After {
		switch {
		case !x.Kind.isKnown():
			return no("a job waits for others as ok, any, fail or corr, not %.40q", x.Kind)
		case !ValidID(x.Job) && !machine.ValidName(x.Job):
			return no("the job to wait for is named by its id or its name, and %.80q is neither", x.Job)
		}
	}
	switch {
	case o.Unmet != "" && o.Unmet != UnmetCancel && o.Unmet != UnmetWait:
		return no("a job that waits in vain is to cancel or to wait, not %.40q", o.Unmet)
	case !o.Deadline.IsZero() && !o.Begin.IsZero() && o.Deadline.Before(o.Begin.Add(timeout)):
		return no("its tasks begin at %s at the earliest and may take %s, so they cannot end by the deadline %s",
			timeText(o.Begin), timeout, timeText(o.Deadline))
	}
	return nil
}

// checkTimes refuses a job that comes too late, or that waits for itself.
func (s *Spec) checkTimes(now time.Time, id string) error {
	limit := time.Duration(s.TimeoutMS) * time.Millisecond
	switch {
	case slices.ContainsFunc(s.After, func(x Dependency) bool { return !ValidID(x.Job) }):
		return fault.New(fault.Invalid, codeJobID, "jobs to wait for are known by their ids here")
	case slices.ContainsFunc(s.After, func(x Dependency) bool { return x.Job == id }):
		return fault.New(fault.Invalid, fault.CodeJob, "job %s cannot wait for itself", id)
	case s.Deadline.IsZero():
	case !s.Deadline.After(now):
		return fault.New(fault.Invalid, fault.CodeJob, "the deadline %s has passed already; it is %s now",
			timeText(s.Deadline), timeText(now))
	case now.Add(limit).After(s.Deadline):
		return fault.New(fault.Invalid, fault.CodeJob, "a task may take %s, so that none could end by the deadline "+
			"%s if it began now, at %s", limit, timeText(s.Deadline), timeText(now))
	}
	return nil
}

func timeText(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// Outcome is how a job has ended, as far as it has, for the jobs that wait for it.
type Outcome struct {
	Job       string
	Why       string  // why it cannot be told, and never will be; "": it is told
	Ended     bool    // durably
	Succeeded bool    // all its tasks have
	Indices   Array   // of all its tasks
	Done      Indices // of the tasks that have succeeded; only with HasDone
	HasDone   bool    // Done was asked for: it is for AfterCorr
}

// depState is how far a dependency is.
type depState uint8

const (
	depOpen  depState = iota
	depMet            // for good
	depNever          // as it stands; tasks of that job may still be run again
)

// dependency is one Dependency of a job, and what is known of it.
type dependency struct {
	Dependency
	state depState
	why   string   // with depNever
	heard *Outcome // from another member; nil: nothing yet
}

// stateBy returns the state of a dependency by the outcome of its job. That of AfterCorr is for all tasks together.
func (k DependencyKind) stateBy(o *Outcome) (depState, string) {
	switch {
	case o.Why != "":
		return depNever, o.Why
	case !o.Ended:
		return depOpen, ""
	case k == AfterAny, k == AfterFail && !o.Succeeded, k != AfterFail && o.Succeeded:
		return depMet, ""
	case k == AfterFail:
		return depNever, "all tasks of job " + o.Job + " have succeeded, and this one was to run if not"
	}
	return depNever, "not all tasks of job " + o.Job + " have succeeded"
}
