package jobs

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/cli/machines"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

func cmdJobLogs(c *cli.Env) *cobra.Command {
	var follow bool
	var tail machines.Tail
	cmd := &cobra.Command{Use: "logs JOB [INDEX...]", Short: "Print what tasks wrote",
		Long: `Print what tasks wrote: their stdout on stdout, their stderr on stderr. Of each task the last 64 KiB are kept.
INDEX names a task, and FIRST-LAST several. The lines of several tasks, or of all without INDEX, come in order of index,
each with its index in front. Output of a task that is not kept any more, or that a worker that does not answer has, is
passed over, and the exit code is 66.`,
		Example: "  souk job logs sweep\n  souk job logs sweep 3 10-19\n  souk job logs -f sweep 17",
		Args:    cli.Args(1, -1, "a job, by id or name, and indices of tasks")}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "wait for more while the one task runs")
	tail.Register(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, refs []string) error {
		ctx := cmd.Context()
		cl, err := c.Client()
		if err != nil {
			return err
		}
		j, err := cl.Job(ctx, refs[0])
		if err != nil {
			return err
		}
		if where := outputText(&j.Spec); where != "" {
			c.Note("the tasks of %s write to files: %s", jobLabel(&j), where)
		}
		q := jobs.OutputQuery{Tail: tail.Lines()}
		index, one, err := tasksMeant(&j, refs[1:], &q)
		switch {
		case err != nil:
			return err
		case !one && follow:
			return cli.Usagef("--follow is of one task: say which, as in souk job logs -f %s %d", jobRef(&j), index)
		case !one:
			return printTaskOutput(ctx, c, cl, &j, q)
		}
		out := machines.NewOutput(c)
		p := out.Printer()
		p.Whole = q.Tail == nil
		err = cl.TaskLogs(ctx, j.ID, index, machine.LogQuery{Tail: q.Tail, Follow: follow}, p.Print)
		return cmp.Or(err, out.Close(), p.Err())
	}
	return cmd
}

// tasksMeant reads indices of tasks of a job: first is the first of them, and one whether it is the only one.
func tasksMeant(j *jobs.Job, refs []string, q *jobs.OutputQuery) (first int, one bool, err error) {
	if len(refs) == 0 {
		return j.Spec.First, j.Tasks == 1, nil
	}
	text := strings.Join(refs, ",")
	if q.Tasks, err = jobs.ParseIndices(text); err != nil {
		return 0, false, cli.Usagef("%q is no index of a task; %s has %s", text, jobLabel(j), j.Spec.Indices())
	}
	return q.Tasks[0].First, q.Tasks.Len() == 1, nil
}

// maxMissing is how many tasks are named whose output is missing.
const maxMissing = 10

// printTaskOutput prints the output of several tasks, each line after the index of its task.
func printTaskOutput(ctx context.Context, c *cli.Env, cl *client.Client, j *jobs.Job, q jobs.OutputQuery) error {
	out, width := machines.NewOutput(c), len(strconv.Itoa(j.Spec.Last))
	var p *machines.Printer
	at, missing, cut := -1, 0, error(nil)
	end := func() error {
		if p == nil {
			return nil
		}
		cut = cmp.Or(cut, p.Err())
		return p.EndLine()
	}
	err := cl.JobLogs(ctx, j.ID, q, func(l jobs.TaskLine) error {
		if l.Index != at {
			if err := end(); err != nil {
				return err
			}
			at, p = l.Index, out.Printer()
			p.Before, p.Whole = fmt.Sprintf("%*d | ", width, at), q.Tail == nil
			p.JSON = func(line machine.LogLine) any { return jobs.TaskLine{Index: at, LogLine: line} }
		}
		if l.Missing == "" {
			return p.Print(l.LogLine)
		}
		missing++
		switch {
		case c.JSON:
			return p.PrintJSON(l)
		case missing <= maxMissing:
			return p.Note("task %d: %s", at, l.Missing)
		}
		return nil
	})
	err = cmp.Or(err, end(), out.Close())
	if err == nil && missing > 0 {
		return fault.New(fault.NotFound, fault.CodeOutputGone, "the output of %s of %s is missing",
			countOf(missing, "task", "tasks"), jobLabel(j))
	}
	return cmp.Or(err, cut)
}
