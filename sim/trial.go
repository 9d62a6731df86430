package sim

import (
	"io"
	"slices"

	"github.com/soukhq/souk/core/trial"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/sim/slots"
	"github.com/soukhq/souk/sim/ticks"
	"github.com/soukhq/souk/sim/trace"
)

// FromJobs opens a list of jobs, in order of their submission, as a trace.
func FromJobs(list []trace.Job) Opener {
	return func(uint64) (trace.Source, func() error, error) {
		left := memory(list)
		return &left, func() error { return nil }, nil
	}
}

// memory is the jobs of a trace that are left.
type memory []trace.Job

// Next implements trace.Source.
func (m *memory) Next() (trace.Job, error) {
	if len(*m) == 0 {
		return trace.Job{}, io.EOF
	}
	j := (*m)[0]
	*m = (*m)[1:]
	j.Durations = slices.Clone(j.Durations)
	return j, nil
}

// Try runs a scheduler on the jobs of a trace, and returns how each fared, in their order.
func Try(open Opener, s Setup) ([]trial.Outcome, error) {
	var out []trial.Outcome
	s.Each = func(r slots.Result) {
		for len(out) < int(r.Job) {
			out = append(out, trial.Outcome{})
		}
		out[r.Job-1] = trial.Outcome{Wait: ticks.Seconds(r.Began - r.Submitted),
			Runtime: ticks.Seconds(r.Ended - r.Submitted), Longest: ticks.Seconds(r.Longest)}
	}
	row, err := runOnce(open, s)
	if err == nil && row.Unfinished > 0 {
		err = fault.New(fault.Internal, codeUnfinished, "%s did not end %d jobs", s.Scheduler, row.Unfinished)
	}
	return out, err
}
