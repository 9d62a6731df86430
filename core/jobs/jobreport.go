package jobs

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// JobReport is what a job asked for, waited for and used, as far as its results are kept.
type JobReport struct {
	Job Job `json:"job"` // with Usage; Job.Elapsed is the time from its submission to its end
	// WaitedMS is the time from the job's submission to the start of its first attempt; nil: none is known to have
	// started.
	WaitedMS *float64 `json:"waited_ms,omitempty"`
	// what each task asked for
	Cores       float64 `json:"cores"`
	MemoryBytes int64   `json:"memory_bytes"`
	// CPUEfficiency is the CPU time used, as a part of the cores asked for while attempts ran whose CPU time is known: 1
	// is all of them. nil: none is known.
	CPUEfficiency *float64    `json:"cpu_efficiency,omitempty"`
	Peak          *PeakSpread `json:"peak_memory,omitempty"` // nil: none is known
	OutOfMemory   int         `json:"out_of_memory,omitempty"`
	// Shares are how the job's user and namespace stand at workers, as these have said since they were connected.
	Shares []AccountShare `json:"shares,omitempty"`
	Advice string         `json:"advice,omitempty"` // one sentence; "": nothing is clear
}

// PeakSpread is how much memory tasks had in use at their peaks, of the last attempt of each.
type PeakSpread struct {
	Tasks        int   `json:"tasks"` // whose peak is known
	MedianBytes  int64 `json:"median_bytes"`
	LargestBytes int64 `json:"largest_bytes"`
}

// JobReport returns the report of a job, by its ID or its name.
func (d *Dispatcher) JobReport(now time.Time, ref string) (JobReport, error) {
	j := d.jobNamed(ref)
	if j == nil {
		return JobReport{}, noJob(ref)
	}
	r := j.report(d.statusOf(now, j, true))
	r.Shares = d.sharesOf(j)
	return r, nil
}

// report makes the report of a job in one pass over its tasks. s is its status.
func (j *job) report(s Job) JobReport {
	shape := &j.terms.Shape
	r := JobReport{Job: s, Cores: float64(shape.CPU) / 1000, MemoryBytes: shape.Memory << 20}
	first := j.used.first
	var peaks []int64
	for i := range j.tasks {
		t := &j.tasks[i]
		if t.state == running && t.began > 0 && (first == 0 || t.began < first) {
			first = t.began
		}
		if x := t.result; x != nil && t.state >= finished {
			if x.PeakKiB > 0 {
				peaks = append(peaks, x.PeakKiB<<10)
			}
			if x.OOM {
				r.OutOfMemory++
			}
		}
	}
	if first > 0 {
		waited := max(0, float64(first-j.submitted.UnixMicro())/1000)
		r.WaitedMS = &waited
	}
	if u := s.Usage; u.MeasuredMS > 0 && r.Cores > 0 {
		part := u.CPUMS / (r.Cores * u.MeasuredMS)
		r.CPUEfficiency = &part
	}
	if n := len(peaks); n > 0 {
		slices.Sort(peaks)
		r.Peak = &PeakSpread{n, peaks[(n-1)/2], peaks[n-1]}
	}
	r.Advice = r.advise()
	return r
}

// Advice is given only from these values on.
const (
	enoughTasks   = 10               // of a job that has not ended
	spareMemory   = 1.2              // of what the largest task used
	memoryStep    = 64 << 20         // suggestions are multiples of it
	leastSaving   = 128 << 20        // bytes of a task
	enoughCPU     = 10 * time.Second // that tasks ran, so that starts do not count
	enoughOfATask = 1 * time.Second  // the same, of one attempt on average
	spareCores    = 0.1              // that a task may use on average beyond whole cores
)

// advise returns one sentence that a user can act on; "": nothing is clear.
func (r *JobReport) advise() string {
	asked := r.MemoryBytes >> 20
	if r.OutOfMemory > 0 {
		return fmt.Sprintf("%s more than the %d MiB that each asked for: submit again with more, such as --memory %dm",
			countNoun(r.OutOfMemory, "task wanted", "tasks wanted"), asked, 2*asked)
	}
	ran := r.Job.Succeeded + r.Job.Failed
	if r.Peak == nil || r.Peak.Tasks < ran || !r.Job.State.Final() && ran < enoughTasks {
		return r.adviseCores()
	}
	want := int64(float64(r.Peak.LargestBytes)*spareMemory+memoryStep-1) / memoryStep * memoryStep
	fold := r.MemoryBytes / max(want, 1)
	if fold < 2 || r.MemoryBytes-want < leastSaving {
		return r.adviseCores()
	}
	used := fmt.Sprintf("none used more than %d", (r.Peak.LargestBytes+1<<20-1)>>20)
	return fmt.Sprintf("each task asked for %d MiB of memory and %s: --memory %dm would leave memory for %d times as "+
		"many at once", asked, used, want>>20, fold)
}

// adviseCores is advise, of cores.
func (r *JobReport) adviseCores() string {
	u := r.Job.Usage
	measured := time.Duration(u.MeasuredMS * float64(time.Millisecond))
	if r.CPUEfficiency == nil || measured < enoughCPU || measured < time.Duration(u.Attempts)*enoughOfATask {
		return ""
	}
	used := *r.CPUEfficiency * r.Cores
	want := max(1, int(math.Ceil(used-spareCores)))
	if float64(want) > r.Cores/2 {
		return ""
	}
	return fmt.Sprintf("each task asked for %.4g cores and used %.1f on average: --cpus %d would leave cores for %d "+
		"times as many at once", r.Cores, used, want, int(r.Cores)/want)
}

// OwnerReport is what the jobs of one owner asked for and used together, as far as their results are kept.
type OwnerReport struct {
	Owner string `json:"owner"` // as Owner.Name; "": it is not known
	Jobs  int    `json:"jobs"`
	Tasks int    `json:"tasks"`
	// what attempts asked for, by the time that they ran, and the CPU time that they used
	CoreHours float64 `json:"core_hours_asked"`
	CPUHours  float64 `json:"cpu_hours_used"`
	GiBHours  float64 `json:"gib_hours_asked"`
	Share     float64 `json:"share"` // of the core-hours of all owners in the list; 1 is all
}

// OwnerReports adds up jobs by their owners, the largest first. Jobs without Usage are left out.
func OwnerReports(list []Job) []OwnerReport {
	at := map[string]int{}
	out := []OwnerReport{}
	all := 0.0
	for i := range list {
		j := &list[i]
		if j.Usage == nil {
			continue
		}
		name := j.Spec.Owner.Name()
		if _, there := at[name]; !there {
			at[name] = len(out)
			out = append(out, OwnerReport{Owner: name})
		}
		o := &out[at[name]]
		shape, hours := j.Spec.Shape(), j.Usage.RanMS/time.Hour.Seconds()/1000
		cores := float64(shape.CPU) / 1000 * hours
		o.Jobs++
		o.Tasks += j.Tasks
		o.CoreHours += cores
		o.GiBHours += float64(shape.Memory) / 1024 * hours
		o.CPUHours += j.Usage.CPUMS / time.Hour.Seconds() / 1000
		all += cores
	}
	for i := range out {
		if all > 0 {
			out[i].Share = out[i].CoreHours / all
		}
	}
	slices.SortStableFunc(out, func(a, b OwnerReport) int {
		return cmp.Or(cmp.Compare(b.CoreHours, a.CoreHours), cmp.Compare(a.Owner, b.Owner))
	})
	return out
}
