package sim

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/core/scheduler/mincost"
	"github.com/soukhq/souk/core/scheduler/omega"
	cellsim "github.com/soukhq/souk/sim/cell"
	"github.com/soukhq/souk/sim/cellresults"
	"github.com/soukhq/souk/sim/openb"
	"github.com/soukhq/souk/sim/ticks"
	"github.com/soukhq/souk/sim/trace"
	"github.com/soukhq/souk/store/decisionlog"
)

// cmdSimCell returns the commands about workers with several resources.
func cmdSimCell(c *cli.Env) []*cobra.Command {
	return []*cobra.Command{cmdSimOmega(c), cmdSimFGD(c), cmdSimFlow(c), cmdSimCellResults(c)}
}

// omegaRow is a run in the JSON of souk sim omega.
type omegaRow struct {
	Architecture string  `json:"architecture"`
	Seed         uint64  `json:"seed"`
	CPU          float64 `json:"cpu_seconds"`
	cellsim.Report
}

func cmdSimOmega(c *cli.Env) *cobra.Command {
	var file string
	var archs []string
	var cpu, memory float64
	var think [2]time.Duration
	var task, until time.Duration
	var seeds int
	load := 1.0
	cfg := cellsim.Config{}
	cmd := &cobra.Command{
		Use:   "omega",
		Short: "Run jobs on a cell under shared state, offers, requests, one scheduler, or the market",
		Args:  cli.Args(0, 0, "no argument"),
		Long: "Simulate schedulers that think about whole jobs, as Omega's simulator does (EuroSys'13): a decision " +
			"takes " +
			"--think-CLASS\n" +
			"and --think-task for each task, workers are drawn by random first fit, and a job that is not wholly " +
			"placed is " +
			"tried again a\n" +
			"second later. The jobs are a CSV file: job,submit_s,workload,tasks,duration_s,cpu,mem_gb; .gz and .xz " +
			"are read " +
			"as they are.",
		Example: "  souk sim omega --jobs e4_hot_12h.csv.gz --workers 1000 --architecture omega,market " +
			"--think-service " +
			"10s --until 12h",
	}
	f := cmd.Flags()
	f.StringVar(&file, "jobs", "", "the list of jobs, or a file of souk's decision log")
	f.StringSliceVar(&archs, "architecture", []string{"omega",
		"market"}, "monolithic, omega, mesos, requests, market")
	completeWith(cmd, "architecture", "monolithic", "omega", "mesos", "requests", "market")
	f.IntVar(&cfg.Workers, "workers", 1000, "how many workers")
	f.Float64Var(&cpu, "cpu", 4, "cores of each worker")
	f.Float64Var(&memory, "memory", 16, "GB of each worker")
	f.DurationVar(&think[0], "think-batch", time.Second, "time of a decision on a batch job")
	f.DurationVar(&think[1], "think-service", 10*time.Second, "time of a decision on a service job")
	f.DurationVar(&task, "think-task", 5*time.Millisecond, "time of a decision for each task")
	f.IntVar(&cfg.Schedulers[0], "batch-schedulers", 4, "how many schedulers there are for batch jobs")
	f.IntVar(&cfg.Schedulers[1], "service-schedulers", 1, "how many schedulers there are for service jobs")
	f.BoolVar(&cfg.Rules.Coarse, "coarse", false, "omega: any claim on a worker since the view was taken is a conflict")
	f.BoolVar(&cfg.Rules.Gang, "all-or-nothing", false, "omega: one conflict undoes the transaction")
	f.BoolVar(&cfg.Gang, "gang", false, "mesos, requests, market: a job starts whole or not at all")
	age, delay := 100*time.Millisecond, time.Millisecond
	f.DurationVar(&age, "view-age", age, "market: how old the view is when workers are chosen")
	f.DurationVar(&delay, "delay", delay, "market: a round trip to the workers")
	f.DurationVar(&until, "until", 24*time.Hour, "when the run ends")
	f.IntVar(&seeds, "seeds", 1, "how many seeds to run, from 1 on")
	f.Float64Var(&load, "load", 1, "times as many batch jobs in the same time")
	cmd.RunE = func(*cobra.Command, []string) error {
		if file == "" || seeds < 1 || seeds > 10_000 ||
			!(cpu > 0 && cpu <= 1e6 && memory > 0 && memory <= 1e6 && load > 0 && load <= 100) {
			return cli.Usagef(
				"give --jobs FILE, --seeds from 1 to 10000, --load up to 100, and --cpu, --memory and --load above 0")
		}
		jobs, err := cellJobs(file)
		if err != nil {
			return err
		}
		cfg.Each = omega.Amount{CPU: int32(cpu * 1000), Mem: int32(memory * 1024)}
		for k := range think {
			cfg.Think[k] = cellsim.Think{PerJob: ticks.Time(think[k].Microseconds()),
				PerTask: ticks.Time(task.Microseconds())}
		}
		cfg.ViewAge, cfg.Delay, cfg.Until = ticks.Time(age.Microseconds()), ticks.Time(
			delay.Microseconds()), ticks.Time(until.Microseconds())
		return simOmega(c, cfg, archs, seeds, cellsim.Scale(jobs, load))
	}
	return cmd
}

func simOmega(c *cli.Env, cfg cellsim.Config, archs []string, seeds int, jobs []cellsim.Job) error {
	var rows []omegaRow
	for _, a := range archs {
		cfg.Architecture = cellsim.Architecture(a)
		for seed := range seeds {
			cfg.Seed = uint64(seed + 1)
			before := cellresults.CPU()
			r, err := cellsim.Run(cfg, jobs)
			if err != nil {
				return err
			}
			rows = append(rows, omegaRow{a, cfg.Seed, (cellresults.CPU() - before).Seconds(), r})
		}
	}
	if c.JSON {
		c.JSONLine(c.Out, map[string]any{"rows": rows})
		return nil
	}
	var out [][]cli.Cell
	for _, r := range rows {
		for k, x := range r.Class {
			out = append(
				out,
				cli.Cells(r.Architecture, fmt.Sprint(r.Seed), cellsim.Class(k).String(),
					fmt.Sprintf("%d of %d", x.Placed, x.Jobs),
					fmt.Sprintf("%.3f", x.Wait.Mean), fmt.Sprintf("%.3f", x.FullWait.Mean),
					fmt.Sprintf("%.2f", x.FullWait.P90),
					fmt.Sprintf("%.3f", x.Busy), fmt.Sprintf("%.3f", x.Wasted), fmt.Sprintf("%.4f", x.Conflicts),
					fmt.Sprintf("%.2f", r.CPU)),
			)
		}
	}
	c.Table(cli.Columns("ARCHITECTURE", "SEED", "CLASS", "PLACED", "WAIT", "FULL WAIT", "P90", "BUSY", "WASTED",
		"CONFLICTS", "CPU S"),
		out,
	)
	return nil
}

func cmdSimFGD(c *cli.Env) *cobra.Command {
	var workers, tasks string
	var names []string
	var seeds int
	cmd := &cobra.Command{
		Use:   "fgd",
		Short: "Fill GPU workers with tasks under packing policies",
		Args:  cli.Args(0, 0, "no argument"),
		Long: "Place tasks on workers with GPUs until 130 % of all GPU has arrived, as FGD's evaluation does " +
			"(ATC'23), " +
			"and print the\n" +
			"percent of it allocated when 100 and 130 % have arrived, and the percent wasted when 90 % have; means " +
			"over the " +
			"seeds from 42 on.\n" +
			"Workers are a CSV file sn,cpu_milli,memory_mib,gpu,model; tasks are " +
			"name,cpu_milli,memory_mib,num_gpu,gpu_milli[,gpu_spec].",
		Example: "  souk sim fgd --workers openb_node_list_gpu_node.csv.xz --tasks openb_pod_list_default.csv.xz " +
			"--seeds 10",
	}
	cmd.Flags().StringVar(&workers, "workers", "", "the list of workers")
	cmd.Flags().StringVar(&tasks, "tasks", "", "the list of tasks")
	cmd.Flags().StringSliceVar(&names, "policies", nil,
		"Random, DotProd, GpuClustering, GpuPacking, BestFit, FGD, Priced (default all)")
	completeWith(cmd, "policies", "Random", "DotProd", "GpuClustering", "GpuPacking", "BestFit", "FGD", "Priced")
	cmd.Flags().IntVar(&seeds, "seeds", 1, "how many seeds to run, from 42 on")
	cmd.RunE = func(*cobra.Command, []string) error {
		if workers == "" || tasks == "" || seeds < 1 || seeds > 10_000 {
			return cli.Usagef("give --workers FILE, --tasks FILE and --seeds from 1 to 10000")
		}
		ws, ts, err := cellresults.Lists(workers, tasks)
		if err != nil {
			return err
		}
		typical := openb.TypicalOf(ts)
		type row struct {
			Policy string  `json:"policy"`
			At100  float64 `json:"allocated_at_100"`
			At130  float64 `json:"allocated_at_130"`
			Waste  float64 `json:"wasted_at_90"`
			CPU    float64 `json:"cpu_seconds"`
		}
		var rows []row
		var out [][]cli.Cell
		for _, p := range cellresults.Policies(ws, typical) {
			if len(names) > 0 &&
				!slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, p.Name) }) {
				continue
			}
			before := cellresults.CPU()
			g := cellresults.Evaluate(ws, ts, typical, p, seeds)
			r := row{p.Name, g.At100, g.At130, g.Waste90, (cellresults.CPU() - before).Seconds()}
			rows = append(rows, r)
			out = append(
				out,
				cli.Cells(r.Policy, fmt.Sprintf("%.2f", r.At100), fmt.Sprintf("%.2f", r.At130),
					fmt.Sprintf("%.2f", r.Waste),
					fmt.Sprintf("%.2f", r.CPU)),
			)
		}
		if len(rows) == 0 {
			return cli.Usagef("there is no policy %s; see --help", strings.Join(names, ", "))
		}
		if c.JSON {
			c.JSONLine(c.Out, map[string]any{"rows": rows})
			return nil
		}
		c.Table(cli.Columns("POLICY", "AT 100 %", "AT 130 %", "WASTED AT 90 %", "CPU S"), out)
		return nil
	}
	return cmd
}

func cmdSimFlow(c *cli.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "flow FILE...",
		Short: "Solve min-cost-flow networks in DIMACS format",
		Args:  cli.Args(1, 1000, "files"),
		Long: "Solve networks exactly, prove each answer optimal, and print its cost. .gz and .xz are read as " +
			"they are.",
		Example: "  souk sim flow graph_1000m_64j_100t_10p.in.xz --json",
	}
	cmd.RunE = func(_ *cobra.Command, files []string) error {
		type row struct {
			File  string  `json:"file"`
			Nodes int     `json:"nodes"`
			Arcs  int     `json:"arcs"`
			Cost  int64   `json:"cost"`
			CPU   float64 `json:"cpu_seconds"`
		}
		var rows []row
		var out [][]cli.Cell
		for _, name := range files {
			in, err := cellresults.Open(name)
			if err != nil {
				return err
			}
			g, err := mincost.ReadDIMACS(in)
			in.Close()
			if err != nil {
				return err
			}
			before := cellresults.CPU()
			r, err := g.Solve()
			if err != nil {
				return err
			}
			took := (cellresults.CPU() - before).Seconds()
			if err := g.Verify(); err != nil {
				return err
			}
			rows = append(rows, row{name, g.Nodes(), g.Arcs(), r.Cost, took})
			out = append(out,
				cli.Cells(name, fmt.Sprint(g.Nodes()), fmt.Sprint(g.Arcs()), fmt.Sprint(r.Cost),
					fmt.Sprintf("%.3f", took)))
		}
		if c.JSON {
			c.JSONLine(c.Out, map[string]any{"rows": rows})
			return nil
		}
		c.Table(cli.Columns("FILE", "NODES", "ARCS", "COST", "CPU S"), out)
		return nil
	}
	return cmd
}

func cmdSimCellResults(c *cli.Env) *cobra.Command {
	dir, seeds := "", 5
	cmd := &cobra.Command{
		Use:     "cell-results",
		Short:   "Write docs/results-cell.md: cells, GPUs and flows on the papers' traces",
		Args:    cli.Args(0, 0, "no argument"),
		Example: "  souk sim cell-results --traces DIR > docs/results-cell.md",
	}
	cmd.Flags().StringVar(&dir, "traces", "", "the directory that has omega/ and openb/ (default $SOUK_TRACES)")
	cmd.Flags().IntVar(&seeds, "seeds", 5, "how many seeds to run")
	cmd.RunE = func(*cobra.Command, []string) error {
		if dir == "" {
			dir = c.Getenv("SOUK_TRACES")
		}
		if dir == "" || seeds < 1 {
			return cli.Usagef("give --traces DIR or set SOUK_TRACES, and --seeds of at least 1")
		}
		began := time.Now()
		tell := func(what string) { fmt.Fprintf(c.Err, "%5.0f s  %s\n", time.Since(began).Seconds(), what) }
		return cellresults.Write(c.Out, dir, seeds, runtime.Version()+" on "+runtime.GOARCH, tell)
	}
	return cmd
}

// cellJobs reads a list of jobs, or a file of souk's own decision log.
func cellJobs(file string) ([]cellsim.Job, error) {
	if strings.HasSuffix(file, decisionlog.Suffix) {
		in, _, err := trace.OpenFile(file)
		if err != nil {
			return nil, err
		}
		defer in.Close()
		placed, err := trace.ReadDecisions(file, in)
		if err != nil {
			return nil, err
		}
		return cellsim.FromDecisions(placed)
	}
	in, err := cellresults.Open(file)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	return cellsim.ReadJobs(in)
}
