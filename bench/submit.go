package bench

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/soukhq/souk/bench/live"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
)

// SubmitRow is one measurement of souk bench submit.
type SubmitRow struct {
	Name        string   `json:"name"`
	Command     []string `json:"command"`
	Tasks       int      `json:"tasks"`
	Members     int      `json:"members,omitempty"` // agents of one worker each; 0: one souk with all workers
	Workers     int      `json:"workers"`
	Concurrency int      `json:"concurrency"`
	Rounds      int      `json:"rounds"`
	PerSec      float64  `json:"per_second"`           // tasks a second, until the job's durable end: median round
	FloorSec    float64  `json:"floor_per_second"`     // the bare loop's median round
	Ratio       float64  `json:"ratio"`                // per_second / floor_per_second
	OverheadMS  float64  `json:"overhead_ms_per_task"` // extra time per task, against the bare loop
	CPU         float64  `json:"cpu_us_per_task"`      // of the souk that took the job, without its reaper and the tasks
	// Peers are the tasks a second of other programs that ran the same tasks: their median rounds.
	Peers map[string]float64 `json:"peers,omitempty"`
}

// SubmitOptions say what souk bench submit measures.
type SubmitOptions struct {
	Tasks       int
	Members     int  // agents of one worker each; 0: one souk with Workers
	Apart       bool // the job is submitted at a further agent, which has no room for its tasks
	Workers     int
	Concurrency int
	Rounds      int
	Peers       bool // also what else is installed that runs arrays of tasks
}

// taskMemory is the memory of a measured task, in MiB, so that the worker's memory bounds the concurrent tasks.
const taskMemory = 256

// Submit measures arrays of tasks in a souk of its own.
func Submit(ctx context.Context, o *SubmitOptions, to Reporter) error {
	dir, err := os.MkdirTemp("", "souk-bench-*")
	if err != nil {
		return wrapFailure(err, "no temporary directory can be made")
	}
	defer os.RemoveAll(dir)
	if o.Members > 0 {
		o.Workers = o.Members
	}
	each := o.Concurrency / o.Workers
	o.Concurrency = each * o.Workers
	taker, end, err := startTaker(ctx, dir, o, to)
	if err != nil {
		return wrapFailure(err, "it could not begin")
	}
	defer end()
	var peers []jobPeer
	if o.Peers {
		var endPeers func()
		if peers, endPeers, err = findPeers(ctx, dir, o.Concurrency, to); err != nil {
			return err
		}
		defer endPeers()
	}
	for _, r := range []SubmitRow{
		{Name: "submit_sleep_50ms", Command: []string{"/bin/sleep", "0.05"}},
		{Name: "submit_true", Command: []string{"/bin/true"}},
	} {
		done := to.Working("measuring %s", r.Name)
		err := measureSubmit(ctx, taker, peers, o, &r)
		done()
		if err != nil {
			return err
		}
		to.Row(r)
	}
	return nil
}

// taker is the souk that the jobs are submitted at.
type taker struct {
	*client.Client
	pid int
}

// startTaker starts the measured souk; end ends it.
func startTaker(ctx context.Context, dir string, o *SubmitOptions, to Reporter) (t taker, end func(), err error) {
	if o.Members == 0 {
		own, err := live.Start(filepath.Join(dir, "state"), to.Stderr(), "--workers", fmt.Sprint(o.Workers), "--cpus",
			"10000", "--memory", fmt.Sprint(o.Concurrency*taskMemory))
		if err != nil {
			return t, nil, err
		}
		return taker{own.Client, own.Cmd.Process.Pid}, own.End, nil
	}
	defer to.Working("starting %d agents", o.Members)()
	var ids []string
	flags := map[string][]string{}
	if o.Apart {
		ids = append(ids, "taker")
		flags["taker"] = []string{"--cpus", "1", "--memory", fmt.Sprint(taskMemory / 2)}
	}
	for i := range o.Members {
		id := fmt.Sprint("m", i)
		ids = append(ids, id)
		flags[id] = []string{"--cpus", "10000", "--memory", fmt.Sprint(o.Concurrency / o.Members * taskMemory)}
	}
	agents, err := live.StartAgents(ctx, dir, to.Stderr(), ids, nil, flags)
	if err != nil {
		return t, nil, err
	}
	if err := agents.Meet(ctx); err != nil {
		agents.Close()
		return t, nil, err
	}
	first := agents.List[0]
	return taker{first.Client, first.PID()}, agents.Close, nil
}

// SubmitHead is the line above the rows of souk bench submit.
func SubmitHead() string {
	return fmt.Sprintf("%-18s %6s %8s %6s %9s %9s %7s %12s %8s", "NAME", "TASKS", "WORKERS", "AT", "PER S", "FLOOR/S",
		"RATIO", "OVERHEAD MS", "CPU US")
}

// Text returns the row as it is printed for people.
func (r SubmitRow) Text() string {
	text := fmt.Sprintf("%-18s %6d %8d %6d %9.0f %9.0f %7.2f %12.2f %8.0f", r.Name, r.Tasks, r.Workers, r.Concurrency,
		r.PerSec, r.FloorSec, r.Ratio, r.OverheadMS, r.CPU)
	for _, name := range slices.Sorted(maps.Keys(r.Peers)) {
		text += fmt.Sprintf("  %s %.0f/s (%.1fx)", name, r.Peers[name], r.PerSec/r.Peers[name])
	}
	return text
}

func measureSubmit(ctx context.Context, at taker, peers []jobPeer, o *SubmitOptions, r *SubmitRow) error {
	r.Tasks, r.Members, r.Workers, r.Concurrency, r.Rounds = o.Tasks, o.Members, o.Workers, o.Concurrency, o.Rounds
	var took, floor, used []time.Duration
	beside := make(map[string][]time.Duration, len(peers)) // for one task
	for round := range o.Rounds + 1 {
		bare, err := timeConcurrent(o.Concurrency, o.Tasks,
			func(int) error { return exec.CommandContext(ctx, r.Command[0], r.Command[1:]...).Run() })
		if err != nil {
			return wrapFailure(err, "the bare loop failed")
		}
		before, err := live.CPU(at.pid)
		if err != nil {
			return wrapFailure(err, "the CPU time of souk could not be read")
		}
		d, err := runArray(ctx, at.Client, o.Tasks, r.Command)
		if err != nil {
			return err
		}
		after, err := live.CPU(at.pid)
		if err != nil {
			return wrapFailure(err, "the CPU time of souk could not be read")
		}
		for _, p := range peers {
			n := o.Tasks
			if p.tasks > 0 {
				n = min(n, p.tasks)
			}
			begin := time.Now()
			if err := p.run(ctx, n, o.Concurrency, r.Command); err != nil {
				return err
			}
			if round > 0 {
				beside[p.name] = append(beside[p.name], time.Since(begin)/time.Duration(n))
			}
		}
		if round > 0 { // the first round is a warm-up
			took, floor, used = append(took, d), append(floor, bare), append(used, after-before)
		}
	}
	median := func(ds []time.Duration) float64 {
		slices.Sort(ds)
		return ds[len(ds)/2].Seconds()
	}
	t, f := median(took), median(floor)
	r.PerSec, r.FloorSec, r.Ratio = float64(o.Tasks)/t, float64(o.Tasks)/f, f/t
	r.CPU = 1e6 * median(used) / float64(o.Tasks)
	for name, each := range beside {
		if r.Peers == nil {
			r.Peers = map[string]float64{}
		}
		r.Peers[name] = 1 / median(each)
	}
	r.OverheadMS = 1000 * (t - f) * float64(o.Concurrency) / float64(o.Tasks)
	return nil
}

// runArray submits an array and waits for its end.
func runArray(ctx context.Context, at *client.Client, tasks int, command []string) (time.Duration, error) {
	spec := jobs.Spec{App: live.App, Command: command, First: 1, Last: tasks, MemoryMB: taskMemory}
	begin := time.Now()
	j, err := at.SubmitJob(ctx, "", spec)
	for err == nil && !j.State.Final() {
		j, err = at.WaitJob(ctx, j.ID, jobs.MaxTasks, time.Minute)
	}
	took := time.Since(begin)
	if err == nil && j.State != jobs.Succeeded {
		err = fault.New(fault.Internal, fault.CodeBench, "the job has %s: %d of its %d tasks did not succeed", j.State,
			j.Tasks-j.Succeeded, j.Tasks)
	}
	return took, err
}
