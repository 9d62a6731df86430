package bench

import (
	"github.com/spf13/cobra"

	"github.com/soukhq/souk/bench/architectures"
	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/core/scheduler/registry"
)

const benchArchitecturesLong = `Start a cluster of agents on this host, submit the jobs of traces to it by each
scheduler, and run the same jobs in the simulator with the delays that were measured in the same run.

Tasks are sleep processes: they take no CPU but for their launch. Each agent is a worker of --slots slots and a buyer;
jobs are submitted at one after the other. A trace's first --jobs jobs keep their tasks and the proportions of the times
between them; --load says what share of all slots they need. --scale multiplies all times.

The table has the times from a job's submission to its end, live, each with its ratio to the simulated one. Before it
stand the delays that the simulator is given: of a message, one way between members; of a job, to accept it and to
record its end; the idle time of a slot, from the end of a task to the start of the next; and of each start where many
tasks start at once, as the workers share the host's processors. How much longer than its sleep a task takes is measured
in each run.`

func cmdBenchArchitectures(c *cli.Env) *cobra.Command {
	o := new(architectures.Options)
	var percents []float64
	page := false
	cmd := &cobra.Command{Use: "architectures", Short: "Run a trace by each scheduler, live and simulated",
		Long: benchArchitecturesLong,
		Example: "  souk bench architectures --trace yahoo.tr.gz --scale 0.01\n" +
			"  souk bench architectures --trace a.csv --schedulers market,sparrow --load 60,90 --rounds 3",
		Args: cli.Args(0, 0, "no argument")}
	f := cmd.Flags()
	f.StringArrayVar(&o.Traces, "trace", nil, "a trace's file, as souk sim reads it; repeatable")
	f.StringSliceVar(&o.Schedulers, "schedulers", []string{"all"}, "NAME or NAME:N of souk schedulers, or all")
	_ = cmd.RegisterFlagCompletionFunc("schedulers", cobra.FixedCompletions(append(registry.Names(), "all"),
		cobra.ShellCompDirectiveNoFileComp))
	f.Float64SliceVar(&percents, "load", []float64{60, 90}, "percent of all slots that the jobs need")
	f.IntVar(&o.Members, "members", 12, "agents, each a worker and a buyer")
	f.IntVar(&o.Slots, "slots", 10, "tasks that a worker runs at once")
	f.IntVar(&o.Jobs, "jobs", 500, "jobs of each trace, from its beginning")
	f.Float64SliceVar(&o.Scales, "scale", []float64{1},
		"what all times of the traces are multiplied by: one for all, or one for each")
	f.Float64Var(&o.Cutoff, "cutoff", 0,
		"seconds of mean task duration, before --scale, above which a job is long (default the 90th percentile)")
	f.IntVar(&o.Rounds, "rounds", 1, "how often each is run live; figures are medians")
	f.IntVar(&o.Seeds, "seeds", 5, "of the simulator, for each round")
	f.BoolVar(&page, "markdown", false, "print a page of docs, and the table's rows on stderr as they come")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		for _, p := range percents {
			if !(p > 0 && p < 100) {
				return cli.Usagef("--load is a percentage above 0 and below 100 of all slots; got %g", p)
			}
			o.Loads = append(o.Loads, p/100)
		}
		if err := o.Check(); err != nil {
			return cli.Usagef("%v", err)
		}
		if !page {
			return architectures.Measure(cmd.Context(), o, &reporter{c: c})
		}
		to := &architectures.Recorder{Reporter: &reporter{c: c}}
		if err := architectures.Measure(cmd.Context(), o, to); err != nil {
			return err
		}
		return to.WritePage(c.Out, o)
	}
	return cmd
}
