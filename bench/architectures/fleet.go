package architectures

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/soukhq/souk/bench/live"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
)

// taskMemory is the memory of a task, in MiB: a worker's memory bounds how many run at once.
const taskMemory = 64

// fleet is a cluster of agents of this host. Each is a worker of equal slots, and a buyer.
type fleet struct {
	agents *live.Agents
	slots  int // of each
}

// startFleet starts a cluster, and returns when every agent knows all others.
func startFleet(ctx context.Context, dir string, members, slots int, stderr io.Writer) (*fleet, error) {
	ids := make([]string, members)
	for i := range ids {
		ids[i] = fmt.Sprintf("m%02d", i+1)
	}
	agents, err := live.StartAgents(ctx, dir, stderr, ids, []string{"--cpus", "10000", "--memory",
		strconv.Itoa(slots * taskMemory)}, nil)
	if err != nil {
		return nil, err
	}
	if err := agents.Meet(ctx); err != nil {
		agents.Close()
		return nil, err
	}
	return &fleet{agents, slots}, nil
}

func (f *fleet) allSlots() int { return len(f.agents.List) * f.slots }

func (f *fleet) member(i int) *client.Client { return f.agents.List[i%len(f.agents.List)].Client }

// commandOf returns the program of a job's tasks, which sleep.
func commandOf(j *job) []string {
	seconds := func(d float64) string { return strconv.FormatFloat(d, 'f', 4, 64) }
	if !slices.ContainsFunc(j.tasks, func(d float64) bool { return seconds(d) != seconds(j.tasks[0]) }) {
		return []string{"/bin/sleep", seconds(j.tasks[0])}
	}
	argv := []string{"/bin/sh", "-c", `shift "$SOUK_INDEX"; exec /bin/sleep "$1"`, "sh"}
	for _, d := range j.tasks {
		argv = append(argv, seconds(d))
	}
	return argv
}

func argBytes(j *job) (n int) {
	for _, a := range commandOf(j) {
		n += len(a) + 1
	}
	return n
}

// ran is a job that has run. Its keeper's clock has read the times.
type ran struct {
	submitted, ended time.Time
	member           int // that keeps it
	tasks            []jobs.Task
}

func (r *ran) took() float64 { return r.ended.Sub(r.submitted).Seconds() }

// submit has a job's tasks scheduled by a scheduler, and returns its id.
func (f *fleet) submit(ctx context.Context, member int, scheduler string, j *job, cutoff float64) (string, error) {
	spec := jobs.Spec{App: live.App, Command: commandOf(j), Last: len(j.tasks) - 1, MemoryMB: taskMemory,
		EstimateMS: max(1, int64(j.mean*1000)), Scheduler: scheduler, Class: jobs.Short}
	if j.mean > cutoff {
		spec.Class = jobs.Long
	}
	got, err := f.member(member).SubmitJob(ctx, "", spec)
	return got.ID, err
}

// wait returns a job once it has ended.
func (f *fleet) wait(ctx context.Context, member int, id string) (ran, error) {
	at := f.member(member)
	got, err := at.WaitJob(ctx, id, jobs.MaxTasks, time.Minute)
	for err == nil && !got.State.Final() {
		got, err = at.WaitJob(ctx, id, jobs.MaxTasks, time.Minute)
	}
	if err != nil {
		return ran{}, err
	}
	if got.State != jobs.Succeeded || got.Lost+got.Evicted+got.Retried > 0 {
		return ran{}, fault.New(fault.Internal, fault.CodeBench,
			"job %s has %s: %d of %d tasks succeeded, and %d were repeated", id, got.State, got.Succeeded, got.Tasks,
			got.Lost+got.Evicted+got.Retried)
	}
	list, err := at.JobTasks(ctx, id)
	return ran{got.Submitted, *got.Ended, member, list}, err
}

// messages returns how many messages a scheduler's parties have sent since the fleet began.
func (f *fleet) messages(ctx context.Context, scheduler string) (sum int64, err error) {
	name, _, _ := strings.Cut(scheduler, ":")
	prefix := fmt.Sprintf("souk_scheduler_messages_total{scheduler=%q} ", name)
	for _, a := range f.agents.List {
		text, err := a.Get(ctx, "/metrics")
		if err != nil {
			return 0, err
		}
		for line := range strings.Lines(string(text)) {
			if value, is := strings.CutPrefix(line, prefix); is {
				n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
				if err != nil {
					return 0, fault.Wrap(err, fault.Internal, fault.CodeBench, "%s has a metric that is no number",
						a.ID())
				}
				sum += int64(n)
			}
		}
	}
	return sum, nil
}

// replay submits the jobs of a load at their times, each at the next member, and returns what became of them.
func (f *fleet) replay(ctx context.Context, scheduler string, l *load, at []time.Duration) ([]ran, error) {
	ids := make([]string, len(l.jobs))
	begin := time.Now()
	group, all := errgroup.WithContext(ctx)
	for i := range l.jobs {
		select {
		case <-all.Done():
			return nil, group.Wait()
		case <-time.After(time.Until(begin.Add(at[i]))):
		}
		group.Go(func() (err error) {
			ids[i], err = f.submit(all, i, scheduler, &l.jobs[i], l.cutoff)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	out := make([]ran, len(ids))
	for i, id := range ids {
		var err error
		if out[i], err = f.wait(ctx, i, id); err != nil {
			return nil, err
		}
	}
	return out, nil
}
