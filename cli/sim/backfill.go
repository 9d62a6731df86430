package sim

import (
	"context"
	"fmt"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/core/backfill"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/sim"
	simbackfill "github.com/soukhq/souk/sim/backfill"
	"github.com/soukhq/souk/sim/cellresults"
	"github.com/soukhq/souk/sim/ticks"
)

const backfillLong = `Run rigid jobs through queues with and without backfill in simulated time.

A job of a trace is a gang: it needs one processor for each of its tasks, all at once, until its longest task has
ended. "fcfs" starts jobs in the order in which they came. "easy" starts a job before those in front of it if, by the
estimates, the first of them starts no later for it. "conservative" reserves a time for each job, which no later job
may delay, and moves reservations to earlier times when jobs end before their estimate.

Estimates are those of the trace, or the run times where it has none; --estimates exact takes run times only, and
--estimates F draws each between a job's run time and 1+F times it. Times are whole seconds, a run time one at least.
A job past its estimate goes on, and is expected to end at any moment. A job that needs more processors than there
are is refused.

At the submission of one of --intervals jobs its end is forecast, and its start unless it starts at once: by going through
the policy with the run times that jobs of this user with such estimates had. What came of earlier forecasts makes
intervals of them that are to hold 90 % of the time; how many did is printed below the table.

A bounded slowdown is (wait + run) / run with 10 s for a shorter run, at least 1; the mean is over jobs.`

type backfillFlags struct {
	trace, estimates, swf, compat string
	policies                      []string
	processors, intervals         int
	reading                       simbackfill.Reading
}

// backfillRow is one policy's result.
type backfillRow struct {
	Policy string `json:"policy"`
	simbackfill.Report
	CPU float64 `json:"cpu_seconds"`
}

func cmdSimBackfill(c *cli.Env) *cobra.Command {
	o := new(backfillFlags)
	all := []string{"fcfs", "easy", "conservative"}
	cmd := &cobra.Command{
		Use:   "backfill",
		Short: "Compare FCFS, EASY and conservative backfill on rigid jobs",
		Long:  backfillLong,
		Args:  cli.Args(0, 0, "no argument"),
		Example: "  souk sim backfill --trace NASA-iPSC-1993-3.1-cln.swf.zip --processors 128 --load 1.8\n" +
			"  souk sim backfill --trace LCG.swf.gz --processors 1700 --policies easy --swf easy.swf",
	}
	f := cmd.Flags()
	f.StringVar(&o.trace, "trace", "", "the trace file, or gen:SHAPE:LOAD")
	f.IntVar(&o.processors, "processors", 0, "how many processors")
	f.StringSliceVar(&o.policies, "policies", all, "the policies: fcfs, easy, conservative")
	completeWith(cmd, "policies", all...)
	f.StringVar(&o.estimates, "estimates", "trace",
		"estimates: trace, exact, or a number F for run times times 1 to 1+F")
	completeWith(cmd, "estimates", "trace", "exact")
	f.Float64Var(&o.reading.Load, "load", 1, "times as many jobs in the same time")
	f.IntVar(&o.reading.Every, "every", 1, "read only one of so many jobs of the trace")
	f.Uint64Var(&o.reading.Seed, "seed", 1, "the seed of --estimates F")
	f.StringVar(&o.compat, "compat", "",
		"pyss: a pass of the policy for each arrival and early end of one moment, as that simulator has it")
	completeWith(cmd, "compat", "pyss")
	f.IntVar(&o.intervals, "intervals", 100,
		"forecast start and end of one of so many jobs at its submission, as an interval; 0: of none")
	f.StringVar(&o.swf, "swf", "", "write jobs and waits, under the last of the policies, to this file in SWF")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return simBackfill(cmd.Context(), c, o) }
	return cmd
}

// check refuses invalid flags.
func (o *backfillFlags) check() ([]backfill.Policy, error) {
	if o.trace == "" || o.processors < 1 || o.processors > 1<<22 || len(o.policies) == 0 || o.reading.Every < 1 ||
		o.intervals < 0 || !(o.reading.Load > 0 && o.reading.Load <= 1000) {
		return nil, cli.Usagef("give --trace FILE and --processors from 1 to %d; --load is above 0 and up to 1000, "+
			"--every 1 or more, --intervals 0 or more", 1<<22)
	}
	if o.compat != "" && o.compat != "pyss" {
		return nil, cli.Usagef("--compat knows pyss, not %q", o.compat)
	}
	switch o.estimates {
	case "trace":
	case "exact":
		o.reading.Estimates = simbackfill.Exact
	default:
		over, err := strconv.ParseFloat(o.estimates, 64)
		if err != nil || !(over >= 0 && over <= 1e4) {
			return nil, cli.Usagef("--estimates is %q; give trace, exact, or a number from 0 to 10000", o.estimates)
		}
		o.reading.Estimates, o.reading.Over = simbackfill.ByFactor, over
	}
	var out []backfill.Policy
	for _, name := range o.policies {
		p, err := backfill.ParsePolicy(name)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

func simBackfill(ctx context.Context, c *cli.Env, o *backfillFlags) error {
	policies, err := o.check()
	if err != nil {
		return err
	}
	open, err := opener(o.trace, o.processors)
	if err != nil {
		return err
	}
	jobs, err := readRigid(open, o.reading)
	if err != nil {
		return err
	}
	var rows []backfillRow
	var waits []ticks.Time
	for _, p := range policies {
		before := cellresults.CPU()
		done := c.Progress("running %d jobs under %v", len(jobs), p)
		var r simbackfill.Report
		r, waits, err = simbackfill.Run(ctx, simbackfill.Config{Policy: p, Processors: int64(o.processors),
			Singly: o.compat != "", Foretell: o.intervals}, jobs)
		done()
		if err != nil {
			return err
		}
		rows = append(rows, backfillRow{p.String(), r, (cellresults.CPU() - before).Seconds()})
	}
	if o.swf != "" {
		if err := writeRigid(o.swf, jobs, waits, int64(o.processors)); err != nil {
			return err
		}
	}
	if c.JSON {
		c.JSONLine(c.Out, map[string]any{"rows": rows})
		return nil
	}
	var out [][]cli.Cell
	for _, r := range rows {
		out = append(out, cli.Cells(r.Policy, fmt.Sprint(r.Jobs), fmt.Sprint(r.Refused),
			fmt.Sprintf("%.1f", r.MeanWait), fmt.Sprintf("%.0f", r.MaxWait), fmt.Sprintf("%.3f", r.Bounded),
			fmt.Sprintf("%.1f %%", 100*r.Utilisation), fmt.Sprint(r.Backfilled), fmt.Sprint(r.Longest),
			fmt.Sprintf("%.2f", r.CPU)))
	}
	c.Table(cli.Columns("POLICY", "JOBS", "REFUSED", "MEAN WAIT", "MAX WAIT", "BOUNDED SLOWDOWN", "UTILISATION",
		"BACKFILLED", "LONGEST QUEUE", "CPU S"), out)
	for _, r := range rows {
		printIntervals(c, r.Policy, "start", r.Starts)
		printIntervals(c, r.Policy, "end", r.Ends)
	}
	return nil
}

// printIntervals says how many intervals held.
func printIntervals(c *cli.Env, policy, what string, i *simbackfill.Intervals) {
	if i == nil || i.Of == 0 {
		return
	}
	c.Printf("%s: 90 %% intervals of the %s held %.1f %% of %d; median width %.0f s, from 1 to %.2f; half to double "+
		"the forecast holds %.1f %%\n", policy, what, 100*float64(i.Held)/float64(i.Of), i.Of, i.Width, i.Ratio,
		100*i.Naive)
}

func readRigid(open sim.Opener, o simbackfill.Reading) ([]simbackfill.Job, error) {
	src, done, err := open(o.Seed)
	if err != nil {
		return nil, err
	}
	jobs, err := simbackfill.Read(src, o)
	if ended := done(); err == nil {
		err = ended
	}
	return jobs, err
}

func writeRigid(path string, jobs []simbackfill.Job, waits []ticks.Time, processors int64) error {
	f, err := os.Create(path)
	if err == nil {
		err = simbackfill.WriteSWF(f, jobs, waits, processors)
		if closed := f.Close(); err == nil {
			err = closed
		}
	}
	if err != nil {
		return fault.Wrap(err, fault.Invalid, codeSim, "the jobs cannot be written to %s", path)
	}
	return nil
}
