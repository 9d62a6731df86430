package jobs

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
)

func cmdJobRequeue(c *cli.Env) *cobra.Command {
	var tasks []string
	cmd := &cobra.Command{Use: "requeue JOB", Short: "End the tasks that run, so that they run anew",
		Long: `End the tasks that run, as "souk job cancel" does, and return them to their queue. That uses up no retry, and
SOUK_ATTEMPT grows. With "souk job hold" before it they wait until "souk job release".`,
		Example: "  souk job requeue sweep --task 7\n  souk job hold sweep && souk job requeue sweep",
		Args:    cli.Args(1, 1, "one job, by id or name")}
	cmd.Flags().StringSliceVar(&tasks, "task", nil, "INDEX or FIRST-LAST, only these tasks; repeatable")
	completeTasks(c, cmd)
	cmd.RunE = func(cmd *cobra.Command, refs []string) error {
		var list jobs.Indices
		if len(tasks) > 0 {
			var err error
			if list, err = taskFlag(tasks); err != nil {
				return err
			}
		}
		cl, err := c.Client()
		if err != nil {
			return err
		}
		out, err := cl.RequeueTasks(cmd.Context(), refs[0], list)
		if err != nil {
			return err
		}
		if c.JSON {
			c.JSONLine(c.Out, out)
			return nil
		}
		c.Printf("%s of %s requeued\n", countOf(out.Tasks, "task", "tasks"), jobLabel(&out.Job))
		return nil
	}
	return cmd
}

// taskFlag reads the values of --task.
func taskFlag(tasks []string) (jobs.Indices, error) {
	text := strings.Join(tasks, ",")
	list, err := jobs.ParseIndices(text)
	if err != nil {
		return nil, cli.Usagef("--task is written INDEX or FIRST-LAST, as 7 or 100-199, not %q", text)
	}
	return list, nil
}

func cmdJobRerun(c *cli.Env) *cobra.Command {
	var failed, wait bool
	cmd := &cobra.Command{Use: "rerun JOB", Short: "Submit a job anew, or those of its tasks that did not succeed",
		Long: `Submit a new job of the same name with the command, resources and files of one that has ended; with --failed only
for the tasks that failed or were cancelled. Times and jobs to wait for are left out.`,
		Example: "  souk job rerun sweep --failed --wait", Args: cli.Args(1, 1, "one job, by id or name")}
	cmd.Flags().BoolVar(&failed, "failed", false, "only the tasks that failed or were cancelled")
	cmd.Flags().BoolVar(&wait, "wait", false, "wait for the end, with a progress bar on a terminal")
	cmd.RunE = func(cmd *cobra.Command, refs []string) error {
		return rerun(cmd.Context(), c, refs[0], failed, wait)
	}
	return cmd
}

// rerun submits a job anew.
func rerun(ctx context.Context, c *cli.Env, ref string, failed, wait bool) error {
	cl, err := c.Client()
	if err != nil {
		return err
	}
	old, err := cl.Job(ctx, ref)
	if err != nil {
		return err
	}
	if !old.State.Final() {
		return fault.New(fault.Precondition, fault.CodeJob,
			"%s has not ended; \"souk job requeue %s\" ends what runs of it, so that it runs anew", jobLabel(&old),
			jobRef(&old))
	}
	s := old.Spec
	s.Ordering = jobs.Ordering{}
	s.Scheduler, s.SchedulerFrom = s.NamedScheduler(), nil // a default may be another one by now
	if failed {
		list, err := cl.JobTasks(ctx, old.ID, "failed", "cancelled")
		if err != nil {
			return err
		}
		indices := make([]int, len(list))
		for i := range list {
			indices[i] = list[i].Index
		}
		if len(indices) == 0 {
			return fault.New(fault.Precondition, fault.CodeJob, "all tasks of %s succeeded, so none is to be run again",
				jobLabel(&old))
		}
		s.Array = jobs.NewArray(indices)
	}
	j, err := cl.SubmitJob(ctx, "", s)
	if err != nil {
		return err
	}
	return answerSubmitted(ctx, c, cl, j, wait)
}
