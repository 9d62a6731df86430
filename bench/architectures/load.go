package architectures

import (
	"errors"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/sim"
	"github.com/soukhq/souk/sim/trace"
)

// Bounds of a load.
const (
	maxJobs = 5000
	// maxArgs bounds the durations that a job's command has, in bytes; a spec takes 64 KiB.
	maxArgs = 60 << 10
)

// job is one job of a load.
type job struct {
	at    time.Duration // after the first
	mean  float64       // seconds, of its tasks: the estimate
	tasks []float64     // seconds, of each
}

func (j *job) work() (sum float64) {
	for _, d := range j.tasks {
		sum += d
	}
	return sum
}

// load is the jobs of a trace, with all times scaled.
type load struct {
	name   string // of the trace's file, without its endings
	jobs   []job
	cutoff float64 // seconds: a job of a larger mean is long
}

// readLoad reads the first jobs of a trace, and multiplies all times by scale. cutoff is the trace's, in seconds before
// that; 0: its 90th percentile.
func readLoad(path string, jobs int, scale, cutoff float64) (load, error) {
	l := load{name: strings.SplitN(filepath.Base(path), ".", 2)[0]}
	src, done, err := sim.FromFile(path)(1)
	if err != nil {
		return l, err
	}
	defer done() //nolint:errcheck // it was only read
	var means []float64
	for len(l.jobs) < jobs {
		in, err := src.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return l, err
		}
		j := job{at: time.Duration(in.Submit * scale * float64(time.Second)), mean: in.Mean * scale}
		for _, d := range in.Durations {
			j.tasks = append(j.tasks, d*scale)
		}
		if argBytes(&j) > maxArgs {
			return l, fault.New(fault.Invalid, trace.CodeTrace,
				"job %d of %s has %d tasks, whose durations are too many for one command; take fewer jobs",
				len(l.jobs)+1, path, len(j.tasks))
		}
		l.jobs, means = append(l.jobs, j), append(means, j.mean)
	}
	if len(l.jobs) < 2 {
		return l, fault.New(fault.Invalid, trace.CodeTrace, "%s has %d jobs; at least 2 make a load", path, len(l.jobs))
	}
	if l.cutoff = cutoff * scale; cutoff == 0 {
		slices.Sort(means)
		l.cutoff = means[int(math.Ceil(0.9*float64(len(means))))-1]
	}
	return l, nil
}

// work returns the slot seconds of all tasks.
func (l *load) work() (sum float64) {
	for i := range l.jobs {
		sum += l.jobs[i].work()
	}
	return sum
}

// tasks returns the number of all tasks.
func (l *load) tasks() (n int) {
	for i := range l.jobs {
		n += len(l.jobs[i].tasks)
	}
	return n
}

// space returns when each job comes, after the first, if they are to offer a share of the work that so many slots do.
// The times between arrivals keep their proportions.
func (l *load) space(share float64, slots int) []time.Duration {
	first, last := l.jobs[0].at, l.jobs[len(l.jobs)-1].at
	want := l.work() / (share * float64(slots)) // seconds
	times := want / max(last-first, 1).Seconds()
	out := make([]time.Duration, len(l.jobs))
	for i := range l.jobs {
		out[i] = time.Duration(float64(l.jobs[i].at-first) * times)
	}
	return out
}
