package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/core/scheduler/registry"
	"github.com/soukhq/souk/core/trial"
)

// compareFlags are the flags of souk schedulers compare.
type compareFlags struct {
	namespace     string
	share, margin int
	stop          bool
}

const compareLong = `Compare two schedulers on the jobs of your own cluster, or with --namespace on those of a namespace's apps. Each job that
names no scheduler is run by A or by B from then on, drawn by the job's id: A is the default that is there ("souk
schedulers default"), B the candidate, and --share the percentage of the jobs that go to B. A job that one of the two
cannot run takes no part, nor do the jobs of a namespace with a default or a comparison of its own. Without schedulers: show
how the jobs fared, in the comparison that runs or in the last one.

The table has percentiles of how long tasks waited, from the submission of their job until they began; of how long jobs
took, from their submission until their last task ended; and of slowdowns: how many times as long as its longest task a
job took, or as 10 s, where that is shorter. DIFFERENCE is B less A between jobs of a class, which are those of the same
app, program and resources and of about as many tasks, with an interval that has the truth with 95 %, however often one
looks. It is made of the jobs that members still keep (each the last 1000 that have ended), without those that were
cancelled, or that a user had wait (--after, --begin, --hold).

With --margin the comparison ends by itself once the run time of jobs is worse with one of the two by more percent than
that, the whole interval being beyond it, and says so. Jobs then get A again, also where A is the worse one: to have B from
then on, set it as the default.`

// schedulersCompare makes the command "souk schedulers compare".
func schedulersCompare(c *cli.Env) *cobra.Command {
	o := new(compareFlags)
	cmd := &cobra.Command{
		Use:   "compare [A B]",
		Short: "Compare two schedulers on your own jobs, or show how they compare",
		Long:  compareLong,
		Args: func(cmd *cobra.Command, names []string) error {
			if len(names) != 0 && len(names) != 2 {
				return cli.Usagef("%s wants two schedulers, the default and another one, or nothing; see \"%s --help\"",
					cmd.CommandPath(), cmd.CommandPath())
			}
			return nil
		},
		Example: "  souk schedulers compare market sparrow:4 --share 20\n  souk schedulers compare\n" +
			"  souk schedulers compare market hawk --namespace ml --margin 0\n  souk schedulers compare --stop",
	}
	cmd.ValidArgsFunction = cobra.FixedCompletions(registry.Names(), cobra.ShellCompDirectiveNoFileComp)
	f := cmd.Flags()
	f.StringVar(&o.namespace, "namespace", "", "whose jobs are meant (default: the whole cluster's)")
	f.IntVar(&o.share, "share", 50, "percentage of the jobs that go to B, 1 to 99")
	f.IntVar(&o.margin, "margin", 10, "end it when one is worse by more than this percentage; 0: do not")
	f.BoolVar(&o.stop, "stop", false, "end the comparison that runs")
	cmd.RunE = func(cmd *cobra.Command, names []string) error {
		starts := len(names) == 2
		switch {
		case o.stop && starts:
			return cli.Usagef("%s wants two schedulers or --stop, not both", cmd.CommandPath())
		case !starts && (f.Changed("share") || f.Changed("margin")):
			return cli.Usagef("--share and --margin go with the two schedulers of a new comparison; name them")
		}
		cl, err := c.Client()
		if err != nil {
			return err
		}
		return o.compare(cmd.Context(), c, cl, names)
	}
	return cmd
}

func (o *compareFlags) compare(ctx context.Context, c *cli.Env, cl *client.Client, names []string) (err error) {
	var x api.SchedulerComparison
	switch {
	case len(names) == 2:
		x, err = cl.StartSchedulerComparison(ctx, o.namespace, api.NewSchedulerComparison{A: names[0], B: names[1],
			Share: o.share, Margin: o.margin})
	case o.stop:
		x, err = cl.StopSchedulerComparison(ctx, o.namespace)
	default:
		x, err = cl.SchedulerComparison(ctx, o.namespace)
	}
	switch {
	case err != nil:
		return err
	case c.JSON:
		c.JSONLine(c.Out, x)
	case len(names) == 2:
		printStarted(c, &x)
	default:
		printComparison(c, &x, time.Now())
	}
	return nil
}

func comparedJobs(x *api.SchedulerComparison) string {
	return "jobs of " + defaultOwner(api.SchedulerDefault{Namespace: x.Namespace}) + " that name no scheduler"
}

func printStarted(c *cli.Env, x *api.SchedulerComparison) {
	c.Printf("%s: %d %% go to %s from now on, the others to %s\n", comparedJobs(x), x.Share, x.B, x.A)
	if x.Margin > 0 {
		c.Field("ends", "when jobs take longer with one of them by more than %d %%", x.Margin)
	}
	of := ""
	if x.Namespace != "" {
		of = " --namespace " + x.Namespace
	}
	c.Printf("  next   souk schedulers compare%s\n         souk schedulers compare --stop%s\n", of, of)
}

// printComparison prints how the jobs of a comparison fared.
func printComparison(c *cli.Env, x *api.SchedulerComparison, now time.Time) {
	c.Printf("%s against %s: %s, %d %% to %s\n", x.B, x.A, comparedJobs(x), x.Share, x.B)
	if x.Ended == nil {
		c.Field("runs", "since %s", x.Began.Local().Format(time.DateTime))
	} else {
		c.Field("ended", "%s, begun %s: %s", x.Ended.Local().Format(time.DateTime),
			x.Began.Local().Format(time.DateTime), x.Why)
	}
	printSide(c, x.A, &x.Fared.A)
	printSide(c, x.B, &x.Fared.B)
	c.Printf("\n")
	if x.Fared.A.Compared+x.Fared.B.Compared > 0 {
		printMeasures(c, x)
	}
	c.Printf("%s\n", x.Says)
	hours := int(now.Sub(x.Began).Hours()) + 1
	c.Printf("simulate it: souk sim ab --jobs --schedulers %s,%s --since %dh\n", x.A, x.B, hours)
}

func printMeasures(c *cli.Env, x *api.SchedulerComparison) {
	measures := make([]trial.Measure, len(x.Fared.Measures))
	for i := range x.Fared.Measures {
		measures[i] = x.Fared.Measures[i].Measure
	}
	cli.PrintMeasures(c, x.A, x.B, measures)
	c.Printf("\n")
}

// printSide prints how many jobs a scheduler had.
func printSide(c *cli.Env, name string, s *trial.Side) {
	text := fmt.Sprintf("%s, %s", countOf(s.Jobs, "job", "jobs"), countOf(s.Tasks, "task", "tasks"))
	if n := s.Jobs - s.Compared; n > 0 {
		text += fmt.Sprintf("; %d like none of the other's", n)
	}
	if s.Open > 0 {
		text += fmt.Sprintf("; %d more have not ended", s.Open)
	}
	if s.LeftOut > 0 {
		text += fmt.Sprintf("; %d more left out", s.LeftOut)
	}
	c.Field(name, "%s", text)
}
