package releases

import (
	"cmp"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/machine"
)

// Trigger makes the command "souk trigger".
func Trigger(c *cli.Env) *cobra.Command {
	cmd := &cobra.Command{Use: "trigger APP JOB", Short: "Run a job of an app now, beside its schedule",
		Long: `Run a job of an app now: a group of its release that runs at times (cron). The run is as a scheduled one, and the schedule
goes on. It answers when the machine is made; "souk logs -f MACHINE" follows what it prints. A job that is scaled to 0
runs, too. While a run of the job goes on it is refused, unless the job says cron.overlap = "allow".`,
		Example: "  souk trigger shop report\n  souk logs -f $(souk trigger shop report --json | jq -r .machine)",
		Args:    cli.Args(2, 2, "an app, and one of its jobs")}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cl, err := c.Client()
		if err != nil {
			return err
		}
		r, err := cl.Trigger(cmd.Context(), args[0], api.Trigger{Group: args[1]})
		if err != nil {
			return known(args[0], err)
		}
		if c.JSON {
			c.JSONLine(c.Out, r)
			return nil
		}
		c.Printf("%s of %s runs as machine %s of worker %s\n", args[1], args[0], r.Machine, r.Worker)
		c.Field("next", "souk logs -f %s", r.Machine)
		return nil
	}
	return cmd
}

// printJobs prints when each job is due, and how its newest runs ended.
func printJobs(c *cli.Env, jobs []api.JobStatus, now time.Time) {
	var rows [][]cli.Cell
	for i := range jobs {
		j := &jobs[i]
		c.Field("job", "%s: %s %s, %s", j.Group, j.Schedule, j.Zone, nextText(j, now))
		if j.Skipped != "" {
			c.Field("skipped", "%s", j.Skipped)
		}
		for k := range j.Runs {
			r := &j.Runs[k]
			rows = append(rows, []cli.Cell{{Text: j.Group}, {Text: r.At.Local().Format(time.DateTime)},
				{Text: string(r.Why)}, {Text: r.Machine}, {Text: string(r.Worker)}, endCell(r)})
		}
	}
	if len(rows) > 0 {
		c.Table([]cli.Column{cli.Keep("JOB"), cli.Keep("DUE"), cli.Drop("WHY", 2), cli.Keep("MACHINE"),
			cli.Drop("WORKER", 1).Cut(10), cli.Reason("ENDED")}, rows)
	}
}

// nextText says when a job is due next.
func nextText(j *api.JobStatus, now time.Time) string {
	switch {
	case j.Off:
		return "off: souk scale " + j.Group + "=1 turns it on"
	case j.Next == nil:
		return "due at no time that is known yet"
	case j.Next.Before(now):
		return "due now"
	}
	return fmt.Sprintf("due in %s, at %s", cli.Age(now.UTC().Format(time.RFC3339), *j.Next),
		j.Next.Local().Format(time.DateTime))
}

// endCell returns how a run ended, or that it still runs.
func endCell(r *api.JobRun) cli.Cell {
	switch {
	case r.Unheard:
		return cli.Cell{Text: "its worker is not heard", Colour: "33"}
	case r.Exit != nil && *r.Exit == 0:
		return cli.Cell{Text: "exit 0", Colour: "32"}
	case r.Exit != nil && *r.Exit > 0:
		return cli.Cell{Text: fmt.Sprintf("exit %d", *r.Exit), Colour: "31"}
	case r.Exit != nil, r.State == machine.Failed, r.State == machine.Stopped:
		return cli.Cell{Text: cmp.Or(r.Ended, "nobody saw how"), Colour: "31"}
	}
	return cli.Cell{Text: string(r.State)}
}
