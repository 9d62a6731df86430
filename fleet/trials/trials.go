// Package trials watches comparisons of two schedulers on the jobs that a cluster runs (defaults.Comparison): it reads how
// the jobs fared that take part, and ends a comparison in which one is worse.
package trials

import (
	"context"
	"fmt"
	"math/bits"
	"path"
	"sync"
	"time"

	"github.com/soukhq/souk/core/defaults"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/core/trial"
	"github.com/soukhq/souk/fleet/find"
)

// Jobs are the jobs of all members, as buyers.Jobs has them.
type Jobs interface {
	List(ctx context.Context, app string, ended bool) ([]jobs.Job, []find.Unanswered, error)
	Tasks(ctx context.Context, job string, q jobs.TaskQuery) (out []jobs.Task, next int, err error)
}

// keptWaits bounds the waits that are remembered of one job.
const keptWaits = 64

// Reader reads how the jobs of comparisons fared. Its methods may be called from many goroutines.
type Reader struct {
	jobs Jobs
	mu   sync.Mutex
	// ended are the jobs that have ended and were read before, by ID: they do not change any more
	ended map[string]trial.Job
}

// NewReader makes a reader of jobs.
func NewReader(j Jobs) *Reader { return &Reader{jobs: j, ended: map[string]trial.Job{}} }

// Read compares the jobs of a comparison, as far as members still keep them, and returns the members that could not be
// asked. Jobs that were cancelled, that a user had wait (--after, --begin, --hold), or none of whose tasks ran are left out.
func (r *Reader) Read(ctx context.Context, c *defaults.Comparison) (trial.Apart, []find.Unanswered, error) {
	list, silent, err := r.jobs.List(ctx, "", true)
	if err != nil {
		return trial.Apart{}, silent, err
	}
	kept := map[string]trial.Job{}
	var leftOut [2]int
	var fared [2][]trial.Job
	for i := range list {
		j := &list[i]
		from := j.Spec.SchedulerFrom
		if from == nil || from.Comparison == "" {
			continue
		}
		x, known := r.known(j.ID)
		if known {
			kept[j.ID] = x
		}
		if from.Comparison != c.ID {
			continue
		}
		n := 0
		if from.Candidate {
			n = 1
		}
		if !j.State.Final() && counts(j) {
			fared[n] = append(fared[n], trial.Job{Class: classOf(&j.Spec), Open: true,
				Outcome: trial.Outcome{Runtime: j.Elapsed / 1000}})
			continue
		}
		if !known && counts(j) && j.Ended != nil {
			if x, err = r.readJob(ctx, j); err == nil {
				kept[j.ID] = x
			} else if ctx.Err() != nil {
				return trial.Apart{}, silent, context.Cause(ctx)
			}
		}
		if x.Tasks == 0 {
			leftOut[n]++
			continue
		}
		fared[n] = append(fared[n], x)
	}
	r.mu.Lock()
	r.ended = kept
	r.mu.Unlock()
	out := trial.CompareApart(fared[0], fared[1])
	out.A.LeftOut, out.B.LeftOut = leftOut[0], leftOut[1]
	return out, silent, nil
}

// known returns a job that was read before.
func (r *Reader) known(id string) (x trial.Job, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	x, known = r.ended[id]
	return x, known
}

// counts reports whether the times of a job say something of its scheduler.
func counts(j *jobs.Job) bool {
	o := &j.Spec.Ordering
	return j.State != jobs.Cancelled && len(o.After) == 0 && o.Begin.IsZero() && !o.Hold && !j.Held
}

// readJob reads how a job fared that has ended.
func (r *Reader) readJob(ctx context.Context, j *jobs.Job) (trial.Job, error) {
	x := trial.Job{Class: classOf(&j.Spec), Outcome: trial.Outcome{Runtime: seconds(j.Ended.Sub(j.Submitted))}}
	for from := 0; from >= 0; {
		tasks, next, err := r.jobs.Tasks(ctx, j.ID, jobs.TaskQuery{From: from, Limit: pageTasks})
		if err != nil {
			return trial.Job{}, err
		}
		for i := range tasks {
			t := &tasks[i]
			if t.BeganAt == nil || t.EndedAt == nil {
				continue
			}
			wait := seconds(t.BeganAt.Sub(j.Submitted))
			if x.Tasks == 0 || wait < x.Wait {
				x.Wait = wait
			}
			x.Tasks++
			x.Longest = max(x.Longest, seconds(t.EndedAt.Sub(*t.BeganAt)))
			x.Waits = append(x.Waits, wait)
		}
		from = next
	}
	x.Waits = trial.Sample(x.Waits, keptWaits)
	return x, nil
}

const pageTasks = 10_000

func seconds(d time.Duration) float64 { return max(0, d.Seconds()) }

// classOf returns the class of a job. Jobs of one class are alike as far as can be known before they run: of the same app,
// program and shape, and with about as many tasks.
func classOf(s *jobs.Spec) string {
	program := s.Image
	if len(s.Command) > 0 {
		program += "\x00" + path.Base(s.Command[0])
	}
	shape := s.Shape()
	return fmt.Sprintf("%s\x00%s\x00%d\x00%d\x00%d\x00%s\x00%d", s.App, program, shape.CPU, shape.Memory, s.GPUs,
		s.GPUKind, bits.Len(uint(s.Tasks()))) //nolint:gosec // it is not negative
}
