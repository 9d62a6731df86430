// Package jobs has the commands for short tasks: souk submit and souk job.
package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Job makes the command "souk job".
func Job(c *cli.Env) *cobra.Command {
	return cli.Parent(&cobra.Command{Use: "job", Aliases: []string{"jobs"},
		Short:   "Look at jobs, wait for them, end them",
		Example: "  souk job ls --all\n  souk job wait sweep && souk job logs sweep 17",
		Long: "A job is named by its id or its name; of several of one name the newest is meant. \"souk submit\" " +
			"makes one.\nIt is kept by one member, at first where it was submitted, and any member answers for it. " +
			"While that " +
			"member does not answer,\nits tasks run on, and the job is shown from the copy of another member, which " +
			"takes it over when the first is\ngiven up for dead."},
		cmdJobLs(c), cmdJobStatus(c), cmdJobWhy(c), cmdJobTasks(c), cmdJobReport(c), cmdJobWait(c), cmdJobCancel(c),
		cmdJobHold(c), cmdJobRelease(c), cmdJobRequeue(c), cmdJobRerun(c), cmdJobLogs(c),
		cmdJobFetch(c))
}

func jobLabel(j *jobs.Job) string {
	if j.Spec.Name == "" {
		return j.ID
	}
	return fmt.Sprintf("%s (%s)", j.Spec.Name, j.ID)
}

// jobRef is what a user types for a job.
func jobRef(j *jobs.Job) string {
	if j.Spec.Name == "" {
		return j.ID
	}
	return j.Spec.Name
}

// stateText is a state as a sentence ends with it.
func stateText(s jobs.JobState) string {
	switch s {
	case jobs.Succeeded, jobs.Failed:
		return "has " + string(s)
	case jobs.Cancelled:
		return "was cancelled"
	}
	return "is " + string(s)
}

func cmdJobLs(c *cli.Env) *cobra.Command {
	var all bool
	cmd := &cobra.Command{Use: "ls", Aliases: []string{"list"}, Short: "List jobs, oldest first",
		Example: "  souk job ls\n  souk job ls --all --app shop\n  souk job ls --json | jq -r " +
			"'.[].id'", Args: cli.Args(0, 0, "no argument")}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "also jobs that have ended")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cl, err := c.Client()
		if err != nil {
			return err
		}
		ask := cl.UnfinishedJobs
		if all {
			ask = cl.Jobs
		}
		shown, err := ask(cmd.Context(), c.AppNamed())
		if err != nil {
			return err
		}
		switch {
		case c.JSON:
			cli.JSONList(c, shown)
		case len(shown) == 0 && !all:
			c.Printf("no job runs; \"souk job ls --all\" lists those that have ended\n")
		case len(shown) == 0:
			c.Printf("no jobs; \"souk submit -- CMD\" makes one\n")
		default:
			printJobs(c, shown)
		}
		return nil
	}
	return cmd
}

func printJobs(c *cli.Env, list []jobs.Job) {
	now := time.Now()
	rows := make([][]cli.Cell, 0, len(list))
	for _, j := range list {
		cmd := commandText(&j.Spec)
		name := j.Spec.Name
		if name == "" {
			name = "-"
		}
		rows = append(
			rows,
			[]cli.Cell{{Text: j.ID}, {Text: name}, {Text: cmp.Or(j.Spec.Owner.Name(), "-")},
				{Text: j.Spec.App}, heldOr(&j),
				{Text: thousands(j.Tasks)},
				{
					Text: thousands(j.Waiting),
				}, {Text: thousands(j.Running)}, {Text: thousands(j.Succeeded)}, {Text: thousands(j.Failed)},
				{Text: cli.Age(j.Submitted.Format(time.RFC3339Nano), now)}, {Text: cmd}},
		)
	}
	c.Table([]cli.Column{cli.Drop("ID", 4), cli.Keep("NAME").Cut(8), cli.Drop("OWNER", 8).Cut(6),
		cli.Drop("APP", 1).Cut(6),
		cli.Keep("STATE"), cli.Drop("TASKS", 6), cli.Drop("WAITING", 3), cli.Drop("RUNNING", 5),
		cli.Keep("OK"), cli.Keep("FAILED"), cli.Drop("AGE", 7), cli.Drop("COMMAND", 2).Cut(12)},
		rows)
}

// heldOr returns the state of a job in a list: "held" if the job is on hold and none of its tasks runs.
func heldOr(j *jobs.Job) cli.Cell {
	cell := jobStateCell(j.State)
	if j.Held && j.Running == 0 {
		cell.Text = "held"
	}
	return cell
}

func jobStateCell(s jobs.JobState) cli.Cell {
	colour := map[jobs.JobState]string{jobs.Running: "32", jobs.Waiting: "33", jobs.Failed: "31"}[s]
	return cli.Cell{Text: string(s), Colour: colour}
}

// tellJob prints a job: as JSON, or by a function for people.
func tellJob(ctx context.Context, c *cli.Env, ref string, print func(j *jobs.Job)) error {
	cl, err := c.Client()
	if err != nil {
		return err
	}
	j, err := cl.Job(ctx, ref)
	if err != nil {
		return err
	}
	if c.JSON {
		c.JSONLine(c.Out, j)
		return nil
	}
	print(&j)
	return nil
}

func cmdJobStatus(c *cli.Env) *cobra.Command {
	return &cobra.Command{Use: "status JOB", Short: "Tell of a job, and why its tasks wait",
		Example: "  souk job status sweep\n  souk job status j00c0ffee00 --json | jq " +
			".failed", Args: cli.Args(1, 1, "one job, by id or name"),
		RunE: func(cmd *cobra.Command, refs []string) error {
			return tellJob(cmd.Context(), c, refs[0], func(j *jobs.Job) { printJob(c, j) })
		}}
}

func printJob(c *cli.Env, j *jobs.Job) {
	s := &j.Spec
	line := c.Field
	c.Printf("%s %s\n", jobLabel(j), stateText(j.State))
	line("command", "%s", commandText(s))
	if s.Owner.Name() != "" {
		line("owner", "%s", ownerText(&s.Owner))
	}
	if j.Member != "" {
		line("kept by", "member %s", j.Member)
	}
	switch {
	case j.Heir != "":
		line("copy at", "member %s", j.Heir)
	case j.Member != "" && !j.State.Final():
		line("copy at", "no member: it is lost with that member's disk")
	}
	shape := cli.LineShape(&machine.Line{CPUKind: s.CPUKind, CPUs: s.CPUs, CPUMilli: s.CPUMilli, MemoryMB: s.MemoryMB})
	if s.GPUs > 0 {
		shape += ", " + countOf(s.GPUs, strings.TrimSpace(s.GPUKind+" GPU"), strings.TrimSpace(s.GPUKind+" GPUs"))
	}
	line("tasks", "%s (index %s), each %s", thousands(j.Tasks), s.Indices(), shape)
	if text := s.SchedulerText(); text != "" {
		line("scheduler", "%s", text)
	}
	if s.Class != "" {
		line("class", "%s", s.Class)
	}
	printOrdering(c, s)
	printFiles(c, s)
	if len(s.Require) > 0 {
		line("require", "%s", conditionsText(s.Require))
	}
	if len(s.Prefer) > 0 {
		line("prefer", "%s", conditionsText(s.Prefer))
	}
	line("now", "%s waiting, %s running, %s succeeded, %s failed, %s cancelled", thousands(j.Waiting),
		thousands(j.Running), thousands(j.Succeeded), thousands(j.Failed), thousands(j.Cancelled))
	if j.Retried > 0 {
		line("again", "%s failed and were run again", countOf(j.Retried, "attempt", "attempts"))
	}
	if j.Evicted > 0 {
		line("evicted", "%s made room for a machine or a drain, or were requeued, and ran again",
			countOf(j.Evicted, "attempt", "attempts"))
	}
	if j.Lost > 0 {
		line("lost", "%s ended unseen, as a worker or its reaper died, and ran again",
			countOf(j.Lost, "attempt", "attempts"))
	}
	if j.Why != "" {
		line("why", "%s", j.Why)
	}
	if f := j.FirstFail; f != nil {
		text := fmt.Sprintf("task %d first, with exit code %d", f.Index, f.ExitCode)
		if f.Error != "" {
			text += ": " + f.Error
		}
		line("failed", "%s; its output: souk job logs %s %d", text, jobRef(j), f.Index)
	}
	line("time", "%s", timeText(j))
	if left := leftText(j); left != "" {
		line("left", "%s, if as many go on running", strings.TrimSuffix(left, " left"))
	}
}

func conditionsText(list []cluster.Requirement) string {
	parts := make([]string, len(list))
	for i, q := range list {
		parts[i] = q.String()
	}
	return strings.Join(parts, "; ")
}

// ownerText says whose a job is.
func ownerText(o *jobs.Owner) string {
	if o.User != nil {
		return fmt.Sprintf("user %s (%d): its tasks run as this user", o.User.Name, o.User.UID)
	}
	return "its app; submitted with the token " + o.By
}

func cmdJobTasks(c *cli.Env) *cobra.Command {
	var states []string
	cmd := &cobra.Command{
		Use:   "tasks JOB",
		Short: "List a job's tasks",
		Long: "List a job's tasks. BEGAN and TOOK are of the attempt that runs, else of the last; CPU (user and " +
			"system time) and MEMORY (at its peak)\nare of the last that ended, and \"souk job report --help\" says " +
			"how they are measured.",
		Args: cli.Args(1, 1, "one job, by id or name"),
		Example: "  souk job tasks sweep --state failed\n  souk job tasks sweep --json | jq -r '.[] | " +
			"select(.exit_code != 0).index'",
	}
	cmd.Flags().StringArrayVar(&states, "state", nil,
		"only those that are waiting, running, succeeded, failed or cancelled; repeatable")
	_ = cmd.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(
		[]string{"waiting", "running", "succeeded", "failed", "cancelled"}, cobra.ShellCompDirectiveNoFileComp))
	cmd.RunE = func(cmd *cobra.Command, refs []string) error {
		cl, err := c.Client()
		if err != nil {
			return err
		}
		tasks, err := cl.JobTasks(cmd.Context(), refs[0], states...)
		if err != nil {
			return err
		}
		if c.JSON {
			cli.JSONList(c, tasks)
			return nil
		}
		printTasks(c, tasks)
		return nil
	}
	return cmd
}

func printTasks(c *cli.Env, tasks []jobs.Task) {
	now := time.Now()
	rows := make([][]cli.Cell, 0, len(tasks))
	for _, t := range tasks {
		code, took, cpu, memory := "-", "-", "-", "-"
		if t.ExitCode != nil {
			code = strconv.Itoa(*t.ExitCode)
		}
		if t.TookMS > 0 {
			took = shortTime(t.TookMS)
		}
		if t.CPUMS > 0 {
			cpu = shortTime(t.CPUMS)
		}
		if t.PeakBytes > 0 {
			memory = memoryText(t.PeakBytes)
		}
		rows = append(rows, []cli.Cell{
			{Text: strconv.Itoa(t.Index)},
			jobStateCell(jobs.JobState(t.State)),
			{Text: strconv.Itoa(t.Attempt)},
			{Text: code},
			{Text: string(t.Worker)},
			{Text: sinceText(t.BeganAt, now)},
			{Text: took},
			{Text: cpu},
			{Text: memory},
			{Text: taskText(&t)},
		})
	}
	c.Table([]cli.Column{cli.Keep("INDEX"), cli.Keep("STATE"), cli.Drop("ATTEMPT", 1), cli.Keep("EXIT"),
		cli.Drop("WORKER", 2).Cut(6), cli.Drop("BEGAN", 3), cli.Drop("TOOK", 5), cli.Drop("CPU", 4),
		cli.Drop("MEMORY", 6), cli.Reason("")}, rows)
}

func cmdJobWait(c *cli.Env) *cobra.Command {
	var limit time.Duration
	cmd := &cobra.Command{Use: "wait JOB...", Short: "Wait until jobs end",
		Long: "Wait until each job has ended, with a progress bar on a terminal. The exit code is that of the task " +
			"that failed first, else 0;\nof several jobs the largest.",
		Example: "  souk job wait sweep || souk job tasks sweep --state " +
			"failed", Args: cli.Args(1, -1, "at least one job, by id or name")}
	cmd.Flags().DurationVar(&limit, "timeout", 0, "how long (default: for ever)")
	cmd.RunE = func(cmd *cobra.Command, refs []string) error {
		if cmd.Flags().Changed("timeout") && limit <= 0 {
			return cli.Usagef("--timeout is more than 0s, not %v; leave it out to wait for ever", limit)
		}
		return waitJobs(cmd.Context(), c, refs, limit)
	}
	return cmd
}

// waitJobs waits for jobs, one after the other. limit is for each; 0: none.
func waitJobs(ctx context.Context, c *cli.Env, refs []string, limit time.Duration) error {
	return eachJob(ctx, c, refs, func(ctx context.Context, cl *client.Client, ref string) error {
		j, err := cl.Job(ctx, ref)
		if err != nil {
			return err
		}
		return waitJob(ctx, c, cl, j, limit)
	})
}

func cmdJobCancel(c *cli.Env) *cobra.Command {
	var tasks []string
	cmd := &cobra.Command{Use: "cancel JOB...", Short: "Drop the tasks that wait and end those that run",
		Long: `Drop the tasks that wait. All processes of those that run get SIGTERM, and SIGKILL after 5 s. What has ended
stays as it is.

With --task only these tasks of the one job are cancelled, and the others go on. A job some of whose tasks were
cancelled, while none failed, is cancelled at its end, and "souk job wait" ends with 65.`,
		Example: "  souk job cancel sweep\n  souk job cancel sweep --task 7 --task 100-199",
		Args:    cli.Args(1, -1, "at least one job, by id or name")}
	cmd.Flags().StringSliceVar(&tasks, "task", nil, "INDEX or FIRST-LAST, cancel these tasks only; repeatable")
	completeTasks(c, cmd)
	cmd.RunE = func(cmd *cobra.Command, refs []string) error {
		if cmd.Flags().Changed("task") {
			return cancelTasks(cmd.Context(), c, refs, tasks)
		}
		if err := allJobs(cmd.Context(), c, refs); err != nil {
			return err
		}
		return eachJob(cmd.Context(), c, refs, func(ctx context.Context, cl *client.Client, ref string) error {
			j, err := cl.CancelJob(ctx, ref)
			switch {
			case err != nil:
				return err
			case c.JSON:
				c.JSONLine(c.Out, j)
			case j.State.Final() && j.State != jobs.Cancelled:
				c.Printf("%s %s before that\n", jobLabel(&j), stateText(j.State))
			default:
				c.Printf("%s is cancelled; %s still ending\n", jobLabel(&j), countOf(j.Running, "task is", "tasks are"))
			}
			return nil
		})
	}
	return cmd
}

// completeTasks completes --task by the unended tasks of the job.
func completeTasks(c *cli.Env, cmd *cobra.Command) {
	_ = cmd.RegisterFlagCompletionFunc("task", func(cmd *cobra.Command, refs []string, _ string) ([]string,
		cobra.ShellCompDirective) {
		return unendedTasks(cmd.Context(), c, refs), cobra.ShellCompDirectiveNoFileComp |
			cobra.ShellCompDirectiveKeepOrder
	})
}

// unendedTasks completes the running and waiting tasks of the one named job.
func unendedTasks(ctx context.Context, c *cli.Env, refs []string) (out []string) {
	if len(refs) != 1 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	cl, err := c.Client()
	if err != nil {
		return nil
	}
	list, err := cl.JobTasks(ctx, refs[0], "running", "waiting")
	if err != nil {
		return nil
	}
	for i := range list {
		out = append(out, fmt.Sprintf("%d\t%s", list[i].Index, list[i].State))
	}
	return out
}

// cancelTasks cancels some tasks of one job.
func cancelTasks(ctx context.Context, c *cli.Env, refs, tasks []string) error {
	if len(refs) != 1 {
		return cli.Usagef("--task is of one job: give %s alone, and nothing was cancelled", refs[0])
	}
	list, err := taskFlag(tasks)
	if err != nil {
		return err
	}
	cl, err := c.Client()
	if err != nil {
		return err
	}
	out, err := cl.CancelTasks(ctx, refs[0], list)
	if err != nil {
		return err
	}
	if c.JSON {
		c.JSONLine(c.Out, out)
		return nil
	}
	c.Printf("%s of %s cancelled", countOf(out.Tasks, "task", "tasks"), jobLabel(&out.Job))
	if out.Ending > 0 {
		c.Printf("; %s still ending", countOf(out.Ending, "of them is", "of them are"))
	}
	if before := out.Job.Spec.Indices().LenOf(list) - out.Tasks; before > 0 {
		c.Printf("; %s ended or cancelled before", countOf(before, "was", "were"))
	}
	c.Printf("\n")
	return nil
}

// allJobs returns an error if one of the named jobs does not exist, so that nothing is done to the others. A number
// after a job is a task's index, as in souk job logs.
func allJobs(ctx context.Context, c *cli.Env, refs []string) error {
	cl, err := c.Client()
	if err != nil || len(refs) == 1 {
		return err // one job is cancelled at once: the server says if there is none
	}
	for i, ref := range refs {
		_, err := cl.Job(ctx, ref)
		if _, no := strconv.Atoi(ref); i > 0 && no == nil && fault.Is(err, fault.NotFound) {
			return cli.Usagef("%s is no job, so nothing was cancelled; one task is cancelled by: souk job "+
				"cancel %s --task %[1]s", ref, refs[0])
		}
		if err != nil {
			return fmt.Errorf("nothing was cancelled: %w", err)
		}
	}
	return nil
}

// eachJob does f for each job and passes on the largest exit code. Errors are printed as they come.
func eachJob(ctx context.Context, c *cli.Env, refs []string,
	f func(ctx context.Context, cl *client.Client, ref string) error) error {
	cl, err := c.Client()
	if err != nil {
		return err
	}
	if len(refs) == 1 {
		return f(ctx, cl, refs[0])
	}
	worst := 0
	var failed []error
	for _, ref := range refs {
		err := f(ctx, cl, ref)
		if t, ok := errors.AsType[cli.TaskCode](err); ok {
			worst = max(worst, int(t)&0xff)
		} else if err != nil {
			c.PrintError(err)
			failed = append(failed, err)
		}
		if ctx.Err() != nil {
			break
		}
	}
	switch {
	case len(failed) > 0:
		return cli.Several{Errs: failed}
	case worst > 0:
		return cli.TaskCode(worst)
	}
	return nil
}
