package releases

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/fault"
)

// Rebalance makes the command "souk rebalance".
func Rebalance(c *cli.Env) *cobra.Command {
	var yes, dry bool
	patience := movePatience
	cmd := &cobra.Command{Use: "rebalance", Short: "Spread the machines of services evenly again",
		Long: `Spread the machines of services evenly again, those of all apps or of --app. After a host was lost and came back, or was
drained and opened again, it has fewer machines of a group than others; they stay where they are until the next release
of the group. This lists the machines that would have to move so that no host has two more than another that has room,
and moves them: of each group one after the other, each as "souk move" does. No more are moved than have to.

The list is printed first. Without --yes nothing is done. Where all are spread evenly the exit code is 0, too.`,
		Example: "  souk rebalance --plan\n  souk rebalance --app shop --yes",
		Args:    cli.Args(0, 0, "no argument")}
	cmd.Flags().BoolVar(&yes, "yes", false, "do it")
	cmd.Flags().BoolVar(&dry, "plan", false, "print the list only")
	cmd.Flags().DurationVar(&patience, "timeout", patience, "how long each machine may take; then it stays")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if patience <= 0 {
			return cli.Usagef("--timeout is more than 0s, not %v", patience)
		}
		cl, err := c.Client()
		if err != nil {
			return err
		}
		plans, err := planRebalance(cmd.Context(), c, cl)
		if err != nil {
			return err
		}
		n := printRebalance(c, plans, dry || !yes)
		switch {
		case n == 0 || dry:
			return nil
		case !yes:
			return cli.Usagef("nothing was done; say --yes to do it, or --plan to see the list only")
		}
		var errs []error
		for _, p := range plans {
			failed, err := rebalance(cmd.Context(), moving{c: c, cl: cl, app: p.App}, patience)
			if err != nil {
				return err
			}
			errs = append(errs, failed...)
		}
		if len(errs) > 0 {
			return cli.Several{Errs: errs}
		}
		return nil
	}
	return cmd
}

// planRebalance lists the moves that would spread services evenly, without services that are.
func planRebalance(ctx context.Context, c *cli.Env, cl *client.Client) ([]api.Rebalancing, error) {
	apps := []string{c.AppGiven()}
	if apps[0] == "" {
		all, err := cl.Apps(ctx)
		if err != nil {
			return nil, err
		}
		apps = nil
		for i := range all {
			apps = append(apps, all[i].Name)
		}
	}
	var out []api.Rebalancing
	for _, app := range apps {
		p, err := cl.PlanRebalance(ctx, app)
		switch {
		case err != nil && c.AppGiven() == "" && fault.Is(err, fault.NotFound): // no service, or gone meanwhile
		case err != nil:
			return nil, known(app, err)
		case len(p.Moves) > 0:
			out = append(out, p)
		}
	}
	return out, nil
}

// printRebalance prints a list, and returns how many machines it moves.
func printRebalance(c *cli.Env, plans []api.Rebalancing, alone bool) (n int) {
	var rows [][]cli.Cell
	for _, p := range plans {
		for _, m := range p.Moves {
			n++
			rows = append(rows, cli.Cells(p.App, release.Slot{Group: m.Group, Index: m.Index}.String(), m.Machine,
				string(m.Worker), string(m.To), m.Why))
		}
	}
	switch {
	case c.JSON && (alone || n == 0):
		cli.JSONList(c, plans)
	case c.JSON:
	case n == 0:
		c.Printf("each group is spread evenly over the hosts that have room\n")
	default:
		c.Table([]cli.Column{cli.Keep("APP"), cli.Keep("REPLICA"), cli.Drop("MACHINE", 2), cli.Keep("FROM"),
			cli.Keep("TO"), cli.Drop("WHY", 3).Cut(12)}, rows)
	}
	return n
}

// rebalance moves the machines of a service, and prints each result. It returns why some stay.
func rebalance(ctx context.Context, w moving, patience time.Duration) (failed []error, err error) {
	c := w.c
	p, err := w.cl.Rebalance(ctx, w.app)
	if err != nil {
		return nil, err
	}
	for i, m := range p.Moves {
		w.slot, w.machine, w.from, w.to = release.Slot{Group: m.Group, Index: m.Index}, m.Machine, m.Worker, m.To
		now, err := w.await(ctx, patience)
		if ctx.Err() != nil {
			return failed, context.Cause(ctx)
		}
		if err != nil {
			failed = append(failed, err)
		}
		switch {
		case c.JSON:
			c.JSONLine(c.Out, w.line(now, err))
		case err != nil:
			c.PrintError(err)
		default:
			c.Printf("[%d/%d] %s of %s is at %s now (%s)\n", i+1, len(p.Moves), w.slot, w.app, m.To, now)
		}
	}
	return failed, nil
}
