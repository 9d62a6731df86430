package sim

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/sim/trace"
)

// Trace makes the command "souk trace".
func Trace(c *cli.Env) *cobra.Command {
	cutoff := 0.0
	info := &cobra.Command{Use: "info FILE", Short: "Tell what is in a trace", Args: cli.Args(1, 1, "the trace's file"),
		Example: "  souk trace info yahoo.tr.gz\n  souk trace info machine_events/part-00000-of-00001.csv.gz\n  souk " +
			"trace info --json gen:google:0.8"}
	info.Flags().Float64Var(&cutoff, "cutoff", 0,
		"seconds of mean task duration above which a job is long (default the 90th percentile)")
	info.RunE = func(_ *cobra.Command, given []string) error { return traceInfo(c, given[0], cutoff) }

	shape := trace.Shape{}
	output := ""
	gen := &cobra.Command{
		Use: "gen SHAPE", ValidArgs: trace.Shapes(),
		Short: "Generate a load in the .tr format",
		Args:  cli.Args(1, 1, "a shape: "+strings.Join(trace.Shapes(), ", ")),
		Long: "Generate a load in the .tr format: " + strings.Join(
			trace.Shapes(),
			", ",
		) + ".\n\nsparrow is the synthetic load of Sparrow's paper (jobs of 100 tasks of 100 ms). The others have " +
			"classes " +
			"of jobs\n" +
			"of the kind published for each company's cluster: their form, not their figures.",
		Example: "  souk trace gen sparrow --jobs 1000 --slots 40000 --load 0.8 -o sparrow.tr\n  souk trace gen " +
			"yahoo " +
			"--slots 4000 > yahoo-like.tr",
	}
	f := gen.Flags()
	f.IntVar(&shape.Jobs, "jobs", 10_000, "how many jobs")
	f.IntVar(&shape.Slots, "slots", 10_000, "slots of the cluster that the load is for")
	f.Float64Var(&shape.Load, "load", 0.8, "share of the slots that is busy on average")
	f.Uint64Var(&shape.Seed, "seed", 1, "the seed")
	f.StringVarP(&output, "output", "o", "", "the file to write (default stdout)")
	_ = gen.MarkFlagFilename("output", "tr")
	gen.RunE = func(_ *cobra.Command, given []string) error {
		shape.Name = given[0]
		return traceGen(c, shape, output)
	}
	return cli.Parent(
		&cobra.Command{
			Use:     "trace",
			Short:   "Look at traces of jobs, and generate them",
			Example: "  souk trace info yahoo.tr.gz",
		},
		info,
		gen,
	)
}

func traceInfo(c *cli.Env, name string, cutoff float64) error {
	if strings.Contains(strings.ReplaceAll(filepath.Base(name), "-", "_"), "machine_events") {
		return machineInfo(c, name)
	}
	open, err := opener(name, 10_000)
	if err != nil {
		return err
	}
	src, done, err := open(1)
	if err != nil {
		return err
	}
	in, err := trace.Scan(src, cutoff)
	if err := cmp.Or(err, done()); err != nil {
		return err
	}
	if c.JSON {
		c.JSONLine(c.Out, in)
		return nil
	}
	fmt.Fprintf(c.Out, "jobs       %d, submitted from %.0f s to %.0f s\n", in.Jobs, in.First, in.Last)
	fmt.Fprintf(c.Out, "tasks      %d, %.4g slot seconds, %d at once if none ever waited\n", in.Tasks, in.SlotSeconds,
		in.Peak)
	fmt.Fprintf(c.Out, "long       above %.6g s: %.2f%% of the jobs, %.2f%% of the work\n", in.Cutoff, 100*in.LongJobs,
		100*in.LongSeconds)
	c.Table(cli.Columns("", "mean", "p50", "p90", "p99", "most"), [][]cli.Cell{
		cli.Cells("mean task, s", figure(in.Means.Mean), figure(in.Means.P50), figure(in.Means.P90),
			figure(in.Means.P99),
			figure(in.Means.Max)),
		cli.Cells("tasks of a job", figure(in.Sizes.Mean), figure(in.Sizes.P50), figure(in.Sizes.P90),
			figure(in.Sizes.P99),
			figure(in.Sizes.Max))})
	if len(in.Load) > 0 {
		most := 0.0
		for _, v := range in.Load {
			most = max(most, v)
		}
		fmt.Fprintf(c.Out, "load       %s  most %.0f tasks at once, on average over a part\n", sparkline(in.Load, most),
			most)
	}
	return nil
}

// machineInfo prints what Google's table of machines contains.
func machineInfo(c *cli.Env, name string) error {
	r, _, err := trace.OpenFile(name)
	if err != nil {
		return err
	}
	m, err := trace.ReadMachines(name, r)
	if err := cmp.Or(err, r.Close()); err != nil {
		return err
	}
	if c.JSON {
		c.JSONLine(c.Out, m)
		return nil
	}
	fmt.Fprintf(c.Out, "machines   %d at the end, %d at most; %d events\n", m.Last, m.Most, m.Events)
	fmt.Fprintf(c.Out, "capacity   %.4g CPU and %.4g memory, in those of the largest machine\n", m.CPU, m.Memory)
	return nil
}

func sparkline(xs []float64, most float64) string {
	bars := []rune("▁▂▃▄▅▆▇█")
	var b strings.Builder
	for _, x := range xs {
		i := 0
		if most > 0 {
			i = min(len(bars)-1, int(x/most*float64(len(bars))))
		}
		b.WriteRune(bars[max(0, i)])
	}
	return b.String()
}

func traceGen(c *cli.Env, shape trace.Shape, path string) error {
	src, err := trace.Generate(shape)
	if err != nil {
		return err
	}
	if path != "" {
		f, err := os.Create(path)
		if err != nil {
			return fault.Wrap(err, fault.Invalid, trace.CodeTrace, "%s cannot be written", path)
		}
		err = trace.WriteTR(f, src)
		return cmp.Or(err, f.Close())
	}
	return trace.WriteTR(c.Out, src)
}
