package cell

import (
	"encoding/csv"
	"errors"
	"io"
	"math"
	"strconv"

	"github.com/soukhq/souk/core/scheduler/omega"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/sim/ticks"
)

// The codes of this package's errors.
const (
	codeCellConfig fault.Code = "cell_config" // the cell's config is wrong
	codeCellTrace  fault.Code = "cell_trace"  // the trace of the cell cannot be read
)

// ReadJobs reads jobs in the format job,submit_s,workload,tasks,duration_s,cpu,mem_gb with a first line of these
// names. It refuses any other file with the number of the wrong line.
func ReadJobs(in io.Reader) ([]Job, error) {
	c := csv.NewReader(in)
	c.FieldsPerRecord, c.ReuseRecord = 7, true
	var jobs []Job
	for {
		f, err := c.Read()
		switch {
		case errors.Is(err, io.EOF) && len(jobs) > 0:
			return jobs, nil
		case err != nil:
			return nil, fault.Wrap(err, fault.Invalid, codeCellTrace, "The list of jobs cannot be read after %d jobs",
				len(jobs))
		}
		line, _ := c.FieldPos(0)
		if line == 1 && f[0] == "job" {
			continue
		}
		j, err := readJob(f)
		if err == nil && len(jobs) > 0 && j.Submit < jobs[len(jobs)-1].Submit {
			err = fault.New(fault.Invalid, codeCellTrace, "the job was submitted before the one above it")
		}
		if err != nil {
			return nil, fault.Wrap(err, fault.Invalid, codeCellTrace, "Line %d of the list of jobs", line)
		}
		jobs = append(jobs, j)
	}
}

func readJob(f []string) (Job, error) {
	var v [4]float64
	for i, k := range []int{1, 4, 5, 6} {
		x, err := strconv.ParseFloat(f[k], 64)
		if err != nil || !(x >= 0) || x > 1e9 {
			return Job{}, fault.New(fault.Invalid, codeCellTrace, "%.40q is not a number from 0 to a thousand million",
				f[k])
		}
		v[i] = x
	}
	tasks, err := strconv.ParseInt(f[3], 10, 32)
	if err != nil || tasks < 1 || tasks > 1<<24 {
		return Job{}, fault.New(fault.Invalid, codeCellTrace,
			"%.40q is not a number of tasks from 1 to %d", f[3], 1<<24)
	}
	j := Job{Submit: secondsToTicks(v[0]), Duration: secondsToTicks(v[1]), Tasks: int32(tasks)}
	if v[2] > 1e6 || v[3] > 1e6 {
		return Job{}, fault.New(fault.Invalid, codeCellTrace, "a task of %g cores and %g GB is larger than any worker",
			v[2], v[3])
	}
	j.Want = omega.Amount{CPU: int32(math.Round(v[2] * 1000)), Mem: int32(math.Round(v[3] * 1024))}
	switch f[2] {
	case "Batch":
	case "Service":
		j.Class = Service
	default:
		return Job{}, fault.New(fault.Invalid, codeCellTrace, "a workload is Batch or Service, and not %.40q", f[2])
	}
	return j, nil
}

func secondsToTicks(s float64) ticks.Time { return ticks.Time(math.Round(s * float64(ticks.Second))) }
