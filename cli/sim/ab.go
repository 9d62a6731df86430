package sim

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/core/decision"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/core/policy"
	"github.com/soukhq/souk/core/scheduler/registry"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/node"
	"github.com/soukhq/souk/sim/ab"
	"github.com/soukhq/souk/store/decisionlog"
)

// abFlags are the flags of souk sim ab.
type abFlags struct {
	then, old, log, app string
	dir                 string
	failIf              []string
	moves               int
	jobsFlags
}

func cmdSimAB(c *cli.Env) *cobra.Command {
	o := new(abFlags)
	cmd := &cobra.Command{
		Use:   "ab",
		Short: "Replay the decisions of a log with another policy, or its jobs with two schedulers",
		Long: `Replay the decisions that souk recorded, each on the view of its time, with
the policy in force and with another one: which machines would have been placed elsewhere, which nowhere, and what
that does to the room that is left, to regions and to neighbours, with 95 % intervals. Each decision is replayed
alone; the fleet that the new policy would have made by then is not simulated.

A policy is the name of one that is shipped (` + strings.Join(
			builtinPolicies(),
			", ",
		) + `), or a file of one. Without --against the policy
that decided counts where souk knows it, and the default where it does not.

The log is a directory or a file of the decision log, or last-DURATION, such as last-24h, for the log of the agent or
souk dev of this host, or of the one of --dir. Each member of a cluster records the decisions that it makes.

With --jobs: simulate two schedulers of "souk schedulers" on the jobs that the cluster has run and still keeps, those
submitted --since a time, and compare how long the same jobs would have waited and taken. Each task takes one slot for
as long as it ran; the fleet is the cluster's workers, with as many slots as mean tasks fit in one. A job's slowdown is how many times
as long it took as its longest task (or 10 s, where that is shorter). The difference is the mean over the jobs, the
second scheduler's less the first's, with its 95 % interval.`,
		Example: "  souk sim ab --policy binpack --log last-24h\n  souk sim ab --policy binpack " +
			"--dir /var/lib/souk\n  souk sim ab --policy mine.toml --against spread " +
			"--log " +
			"decisions/ --fail-if 'refused > 0' --fail-if 'headroom < 0.9 * old'\n  souk sim ab --jobs --schedulers " +
			"market,sparrow --since 168h",
		Args: cli.Args(0, 0, "no argument"),
	}
	f := cmd.Flags()
	f.StringVar(&o.then, "policy", "", "the new policy: a name or a file")
	f.StringVar(&o.old, "against", "", "the policy to compare with (default the one that decided)")
	f.StringVar(&o.log, "log", "last-24h", "the decision log, or last-DURATION")
	f.StringVar(&o.dir, "dir", "",
		"with last-DURATION: the directory of an agent or a souk dev (default: of this host's)")
	f.StringArrayVar(&o.failIf, "fail-if", nil,
		"exit with 1 if this holds, as 'moved > 0.1', 'refused > 0' or 'headroom < 0.9 * old'; repeatable")
	f.IntVar(&o.moves, "moves", 20, "how many moves to print")
	f.BoolVar(&o.jobs, "jobs", false, "simulate two schedulers on the cluster's own jobs")
	f.StringSliceVar(&o.schedulers, "schedulers", []string{"market", "sparrow"}, "with --jobs: the two schedulers")
	completeWith(cmd, "schedulers", registry.Names()...)
	f.StringVar(&o.since, "since", "24h", "with --jobs: jobs submitted since a time, or a duration before now")
	f.IntVar(&o.workers, "workers", 0, "with --jobs: how many workers (default the cluster's that are ready)")
	f.IntVar(&o.slots, "slots", 0,
		"with --jobs: slots of each worker (default how many mean tasks fit in the cluster's mean one)")
	f.Float64Var(&o.delay, "delay", 0.5, "with --jobs: milliseconds that a message takes")
	f.Uint64Var(&o.seed, "seed", 1, "with --jobs: the seed of what is drawn")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := o.checkKind(cmd); err != nil {
			return err
		}
		if o.jobs {
			return abJobs(cmd.Context(), c, &o.jobsFlags)
		}
		o.app = c.AppGiven()
		return simAB(cmd.Context(), c, o)
	}
	return cmd
}

// checkKind refuses flags of the other kind of comparison, which would change nothing.
func (o *abFlags) checkKind(cmd *cobra.Command) error {
	others, which := []string{"schedulers", "since", "workers", "slots", "delay", "seed"}, "goes with --jobs only"
	if o.jobs {
		others, which = []string{"policy", "against", "log", "dir", "fail-if", "moves"}, "does not go with --jobs"
	}
	for _, name := range others {
		if cmd.Flags().Changed(name) {
			return cli.Usagef("--%s %s; leave it out", name, which)
		}
	}
	return nil
}

func builtinPolicies() []string {
	var names []string
	for _, s := range policy.Builtins() {
		names = append(names, s.Name)
	}
	return names
}

// policyNamed returns a shipped policy by its name, or one of a file.
func policyNamed(name string) (placement.Policy, error) {
	for _, s := range policy.Builtins() {
		if s.Name == name {
			return s.Bind(policy.NewEvaluator()), nil
		}
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return placement.Policy{}, fault.Wrap(err, fault.NotFound, fault.CodePolicy,
			"%q is neither a shipped policy (%s) nor a file that can be read", name,
			strings.Join(builtinPolicies(), ", "))
	}
	s, err := policy.Load(text)
	if err != nil {
		return placement.Policy{}, err
	}
	return s.Bind(policy.NewEvaluator()), nil
}

func simAB(ctx context.Context, c *cli.Env, o *abFlags) error {
	if o.then == "" {
		return cli.Usagef("a policy is missing; give --policy NAME or --policy FILE")
	}
	var gates []ab.Gate
	for _, text := range o.failIf {
		g, err := ab.ParseGate(text)
		if err != nil {
			return err
		}
		gates = append(gates, g)
	}
	then, err := policyNamed(o.then)
	if err != nil {
		return err
	}
	path, since, err := logOf(c, o)
	if err != nil {
		return err
	}
	r, notes, err := replayLog(ctx, path, since, o, then)
	if err != nil {
		return err
	}
	for _, n := range notes {
		fmt.Fprintf(c.Err, "note: %s\n", n)
	}
	if r.Decisions == 0 {
		return fault.New(fault.NotFound, cli.CodeDecisions,
			"the log %s has no decisions of that time that can be replayed (%d cannot)", path, r.Skipped)
	}
	printAB(c, r, o)
	for _, g := range gates {
		if v, limit, fails := g.Fails(r); fails {
			return fault.New(fault.Internal, cli.CodeGate,
				"%s fails %q: it has %.6g, and the limit is %.6g", o.then, g, v,
				limit)
		}
	}
	return nil
}

// logOf returns the path of a named log, and its start time.
func logOf(c *cli.Env, o *abFlags) (path string, since time.Time, err error) {
	m := regexp.MustCompile(`^last-(.+)$`).FindStringSubmatch(o.log)
	switch {
	case m == nil && o.dir != "":
		return "", since, cli.Usagef("--dir says whose log --log last-DURATION is of, and --log %s is one itself: "+
			"leave one of them out", o.log)
	case m == nil:
		return o.log, since, nil
	}
	d, err := time.ParseDuration(m[1])
	if err != nil || d <= 0 {
		return "", since, cli.Usagef("--log last-DURATION is written as last-24h or last-30m, not %q", o.log)
	}
	dir, err := c.HomeWith(o.dir, node.DecisionsDir, "decision log")
	if err != nil {
		return "", since, err
	}
	return filepath.Join(dir, node.DecisionsDir), time.Now().Add(-d), nil
}

func replayLog(ctx context.Context, path string, since time.Time, o *abFlags,
	then placement.Policy) (ab.Report, []string, error) {
	old := map[string]placement.Policy{} // by name
	byName := func(name string) placement.Policy {
		p, known := old[name]
		if !known {
			var err error
			if p, err = policyNamed(name); err != nil {
				p = placement.Default()
			}
			old[name] = p
		}
		return p
	}
	if o.old != "" {
		p, err := policyNamed(o.old)
		if err != nil {
			return ab.Report{}, nil, err
		}
		byName = func(string) placement.Policy { return p }
	}
	decided := ""
	run := ab.New(func(*placement.Request) placement.Policy { return byName(decided) },
		func(*placement.Request) placement.Policy { return then })
	torn, err := decisionlog.Scan(path, func(l *decision.Line, records *decision.RecordCache) error {
		d := l.Decision
		if d == nil || d.At.Before(since) || (o.app != "" && d.Request.App != o.app) {
			return context.Cause(ctx)
		}
		decided = d.Policy.Name
		run.Add(d, records.Get)
		return context.Cause(ctx)
	})
	var notes []string
	for _, t := range torn {
		notes = append(notes,
			fmt.Sprintf("the last %d bytes of %s were not written whole and are passed over", t.Bytes, t.File))
	}
	if fault.CodeOf(err) == decisionlog.CodeLogDamaged {
		notes, err = append(notes, err.Error()), nil
	}
	return run.Report(), notes, err
}

func printAB(c *cli.Env, r ab.Report, o *abFlags) {
	if c.JSON {
		c.JSONLine(c.Out, r)
		return
	}
	against := o.old
	if against == "" {
		against = "what decided"
	}
	fmt.Fprintf(c.Out, "%s against %s: %s, from %s to %s\n", o.then, against,
		cli.NumberOf(r.Decisions, "decision", "decisions"), r.From.Local().Format(time.DateTime),
		r.To.Local().Format(time.DateTime))
	if r.Skipped > 0 {
		fmt.Fprintf(c.Out, "  %d more could not be replayed: their records are no longer in the log, or they evicted\n",
			r.Skipped)
	}
	if r.Partial > 0 {
		fmt.Fprintf(c.Out, "  %d were made on fleets of which only the best workers and examples are in the log\n",
			r.Partial)
	}
	shareText := func(s ab.Share) string {
		return fmt.Sprintf("%d (%.1f%%, from %.1f%% to %.1f%%)", s.N, 100*s.Of, 100*s.Low, 100*s.High)
	}
	fmt.Fprintf(c.Out, "  placed elsewhere   %s\n", shareText(r.Moved))
	fmt.Fprintf(c.Out, "  refused by it only %s\n", shareText(r.OnlyBy.New))
	fmt.Fprintf(c.Out, "  placed by it only  %s\n\n", shareText(r.OnlyBy.Old))
	var rows [][]cli.Cell
	for _, p := range []struct {
		name string
		ab.Paired
	}{{"headroom left", r.Headroom}, {"region, 0 is first", r.Region}, {"neighbours of its app", r.Mates},
		{"score by " + o.then, r.Score}} {
		rows = append(
			rows,
			cli.Cells(p.name, fmt.Sprintf("%.4f", p.Old), fmt.Sprintf("%.4f", p.New),
				fmt.Sprintf("%+.4f ±%.4f", p.Diff, p.Half)),
		)
	}
	c.Table(cli.Columns("MEAN OF", "OLD", "NEW", "DIFFERENCE, 95%"), rows)
	moves := slices.Concat(r.Lost, r.Moves)
	if len(moves) == 0 || o.moves <= 0 {
		return
	}
	fmt.Fprintln(c.Out)
	rows = nil
	for _, m := range moves[:min(len(moves), o.moves)] {
		why := fmt.Sprintf("%+.3f, most by %s", m.Gain, m.Term)
		switch {
		case m.Term == "":
			why = "both score the same"
		case m.To == "":
			why = m.Why
		case m.From == "":
			why = "only the new policy places it"
		}
		rows = append(rows,
			cli.Cells(m.At.Local().Format(time.DateTime), m.App, m.Machine, orDash(string(m.From)),
				orDash(string(m.To)), why))
	}
	c.Table([]cli.Column{cli.Drop("WHEN", 2), cli.Drop("APP", 1).Cut(6), cli.Keep("MACHINE").Cut(8),
		cli.Keep("OLD").Cut(6), cli.Keep("NEW").Cut(6), cli.Reason("WHY")}, rows)
	if left := r.Moved.N + r.OnlyBy.New.N + r.OnlyBy.Old.N - len(rows); left > 0 {
		fmt.Fprintf(c.Out, "and %s; --moves and --json tell of more\n", cli.NumberOf(left, "other", "others"))
	}
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
