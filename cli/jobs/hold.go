package jobs

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/core/jobs"
)

func cmdJobHold(c *cli.Env) *cobra.Command {
	cmd := &cobra.Command{Use: "hold JOB...", Short: "Keep the tasks that wait from starting",
		Long: `Keep the tasks that wait from starting, until "souk job release". Those that run go on. A job is submitted on hold
with "souk submit --hold".`,
		Example: "  souk job hold sweep\n  souk submit --hold --name later -- /bin/true && souk job release later",
		Args:    cli.Args(1, -1, "at least one job, by id or name")}
	cmd.RunE = func(cmd *cobra.Command, refs []string) error {
		return setHold(cmd.Context(), c, refs, "on hold", (*client.Client).HoldJob)
	}
	return cmd
}

func cmdJobRelease(c *cli.Env) *cobra.Command {
	cmd := &cobra.Command{Use: "release JOB...", Short: "Let the tasks of jobs on hold start",
		Long:    `Let the tasks of jobs start that are on hold, by "souk job hold" or since their submission with --hold.`,
		Example: "  souk job release sweep", Args: cli.Args(1, -1, "at least one job, by id or name")}
	cmd.RunE = func(cmd *cobra.Command, refs []string) error {
		return setHold(cmd.Context(), c, refs, "released", (*client.Client).ReleaseJob)
	}
	return cmd
}

// setHold holds or releases jobs, and says of each what it is now.
func setHold(ctx context.Context, c *cli.Env, refs []string, is string,
	set func(cl *client.Client, ctx context.Context, ref string) (jobs.Job, error)) error {
	return eachJob(ctx, c, refs, func(ctx context.Context, cl *client.Client, ref string) error {
		j, err := set(cl, ctx, ref)
		if err != nil {
			return err
		}
		if c.JSON {
			c.JSONLine(c.Out, j)
			return nil
		}
		c.Printf("%s is %s: %s waiting, %s running\n", jobLabel(&j), is, thousands(j.Waiting), thousands(j.Running))
		return nil
	})
}
