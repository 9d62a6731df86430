package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/jobs"
)

// submitRow is one measurement of souk bench submit.
type submitRow struct {
	Name        string   `json:"name"`
	Command     []string `json:"command"`
	Tasks       int      `json:"tasks"`
	Workers     int      `json:"workers"`
	Concurrency int      `json:"concurrency"`
	Rounds      int      `json:"rounds"`
	PerSec      float64  `json:"per_second"`           // tasks, from the submission to the durable end of the job: the median round
	FloorSec    float64  `json:"floor_per_second"`     // the bare loop's median round
	Ratio       float64  `json:"ratio"`                // per_second / floor_per_second
	OverheadMS  float64  `json:"overhead_ms_per_task"` // for how much longer than in the bare loop a task occupies its place
}

type benchSubmitFlags struct {
	tasks       int
	workers     int
	concurrency int
	rounds      int
}

const benchSubmitLong = `Start a souk of its own in a temporary directory and submit arrays of short tasks to it, end to end: from the submission
until the answer that the job has ended, all results durable. The floor is a bare fork, exec and wait loop of the same program
with the same concurrency, in this process, in turns with souk; both tell their median round.

  submit_sleep_50ms   tasks of 50 ms that use no CPU
  submit_true         tasks that end at once: nothing but overhead`

func (c *cli) cmdBenchSubmit() *cobra.Command {
	o := new(benchSubmitFlags)
	cmd := &cobra.Command{Use: "submit", Short: "Measure how fast arrays of short tasks run", Long: benchSubmitLong,
		Example: "  souk bench submit\n  souk bench submit --tasks 500 --json", Args: args(0, 0, "no argument")}
	f := cmd.Flags()
	f.IntVar(&o.tasks, "tasks", 2000, "how many tasks an array has")
	f.IntVar(&o.workers, "workers", 3, "on how many workers of this host")
	f.IntVar(&o.concurrency, "concurrency", 48, "how many tasks have room at once, on all workers together")
	f.IntVar(&o.rounds, "rounds", 3, "how often each is measured")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.tasks < 1 || o.tasks > jobs.MaxTasks || o.workers < 1 || o.workers > maxWorkers || o.concurrency < o.workers || o.rounds < 1 {
			return usagef("--tasks is 1 to %d, --workers 1 to %d, --concurrency at least one for each worker, --rounds at least 1", jobs.MaxTasks, maxWorkers)
		}
		return c.benchSubmit(cmd.Context(), o)
	}
	return cmd
}

// benchMemory is what a task of the measurement asks for, so that room for so many is room for no more.
const benchMemory = 256

func (c *cli) benchSubmit(ctx context.Context, o *benchSubmitFlags) error {
	dir, err := os.MkdirTemp("", "souk-bench-*")
	if err != nil {
		return benchFault(err, "no temporary directory can be made")
	}
	defer os.RemoveAll(dir)
	each := o.concurrency / o.workers
	o.concurrency = each * o.workers
	own, err := startOwn(filepath.Join(dir, "state"), c.err, "--workers", fmt.Sprint(o.workers), "--cpus", "10000",
		"--memory", fmt.Sprint(o.concurrency*benchMemory))
	if err != nil {
		return benchFault(err, "it could not begin")
	}
	defer own.end()
	if !c.json {
		fmt.Fprintf(c.out, "%-18s %6s %8s %6s %9s %9s %7s %12s\n", "NAME", "TASKS", "WORKERS", "AT", "PER S", "FLOOR/S", "RATIO", "OVERHEAD MS")
	}
	for _, r := range []submitRow{{Name: "submit_sleep_50ms", Command: []string{"/bin/sleep", "0.05"}}, {Name: "submit_true", Command: []string{"/bin/true"}}} {
		done := c.progress("measuring %s", r.Name)
		err := measureSubmit(ctx, own, o, &r)
		done()
		if err != nil {
			return err
		}
		if c.json {
			c.jsonLine(c.out, r)
			continue
		}
		fmt.Fprintf(c.out, "%-18s %6d %8d %6d %9.0f %9.0f %7.2f %12.2f\n", r.Name, r.Tasks, r.Workers, r.Concurrency, r.PerSec, r.FloorSec, r.Ratio, r.OverheadMS)
	}
	return nil
}

func measureSubmit(ctx context.Context, own *ownSouk, o *benchSubmitFlags, r *submitRow) error {
	r.Tasks, r.Workers, r.Concurrency, r.Rounds = o.tasks, o.workers, o.concurrency, o.rounds
	var took, floor []time.Duration
	for round := range o.rounds + 1 {
		bare, err := timed(o.concurrency, o.tasks, func(int) error { return exec.CommandContext(ctx, r.Command[0], r.Command[1:]...).Run() })
		if err != nil {
			return benchFault(err, "the bare loop failed")
		}
		d, err := runArray(ctx, own, o.tasks, r.Command)
		if err != nil {
			return err
		}
		if round > 0 { // the first only warms up
			took, floor = append(took, d), append(floor, bare)
		}
	}
	median := func(ds []time.Duration) float64 {
		slices.Sort(ds)
		return ds[len(ds)/2].Seconds()
	}
	t, f := median(took), median(floor)
	r.PerSec, r.FloorSec, r.Ratio = float64(o.tasks)/t, float64(o.tasks)/f, f/t
	r.OverheadMS = 1000 * (t - f) * float64(o.concurrency) / float64(o.tasks)
	return nil
}

// runArray submits an array and waits for its end.
func runArray(ctx context.Context, own *ownSouk, tasks int, command []string) (time.Duration, error) {
	spec := jobs.Spec{App: benchApp, Command: command, First: 1, Last: tasks, MemoryMB: benchMemory}
	begin := time.Now()
	j, err := own.cl.SubmitJob(ctx, "", spec)
	for err == nil && !j.State.Final() {
		j, err = own.cl.WaitJob(ctx, j.ID, jobs.MaxTasks, time.Minute)
	}
	took := time.Since(begin)
	if err == nil && j.State != jobs.Succeeded {
		err = fault.New(fault.Internal, "bench", "the job has %s: %d of its %d tasks did not succeed", j.State, j.Tasks-j.Succeeded, j.Tasks)
	}
	return took, err
}
