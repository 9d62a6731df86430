package cluster

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/fault"
)

// drainFlags are those of souk node drain.
type drainFlags struct {
	cordonFlags
	yes, dry bool
	atOnce   int
}

const maxMovesAtOnce = 32

func cmdNodeDrain(c *cli.Env) *cobra.Command {
	o := new(drainFlags)
	cmd := &cobra.Command{Use: "drain NODE", Short: "Cordon a host and make its machines anew elsewhere",
		Long: `Empty a host: it is cordoned, and each of its machines is stopped, made
anew at another worker, and destroyed here. The new machine has another id and the same name, config, region and
metadata (and souk_moved_from, the id before). Its files and what it has in memory do not go along. One that is
stopped stays stopped. Where no worker takes a machine, it stays.

What is never moved: a machine with a volume, whose lease somebody holds, or that goes by itself when it ends.

The plan is printed first. Without --yes nothing is done. A drain that was interrupted goes on when it is asked for
again. The exit code is 0 when nothing is left, 65 when something stays.`,
		Example: "  souk node drain fra-2 --dry-run\n  souk node drain fra-2 --reason 'new disks' --for 4h " +
			"--yes", Args: cli.Args(1, 1, "the id of a node")}
	o.add(cmd)
	cmd.Flags().BoolVar(&o.yes, "yes", false, "do it")
	cmd.Flags().BoolVar(&o.dry, "dry-run", false, "print the plan only")
	cmd.Flags().IntVar(&o.atOnce, "at-once", 4, "machines that are moved side by side")
	cmd.RunE = func(cmd *cobra.Command, argv []string) error { return doDrain(cmd.Context(), c, argv[0], o) }
	return cmd
}

func doDrain(ctx context.Context, c *cli.Env, node string, o *drainFlags) error {
	if o.atOnce < 1 || o.atOnce > maxMovesAtOnce {
		return cli.Usagef("--at-once is from 1 to %d, not %d", maxMovesAtOnce, o.atOnce)
	}
	k, err := o.cordon()
	if err != nil && !o.dry && o.yes {
		return err
	}
	cl, err := c.Client()
	if err != nil {
		return err
	}
	if o.yes && !o.dry { // first, so that nothing comes while it is planned
		k.Drain = true
		if _, err := cl.CordonWorker(ctx, node, k); err != nil {
			return err
		}
	}
	plan, err := cl.DrainPlan(ctx, node)
	if err != nil {
		return err
	}
	printDrain(c, plan)
	switch {
	case o.dry:
		return leftovers(node, plan)
	case !o.yes:
		return cli.Usagef("nothing was done; say --yes to do it, or --dry-run to see the plan only")
	}
	failed := moveAll(ctx, c, cl, plan, o.atOnce)
	if plan, err = cl.DrainPlan(ctx, node); err != nil {
		return err
	}
	if err := leftovers(node, plan); err != nil {
		return err
	}
	if failed == 0 && !c.JSON {
		c.Printf("%s is empty\n", node)
	}
	return nil
}

// leftovers says what does not move, as an error.
func leftovers(node string, plan api.DrainPlan) error {
	left := 0
	for _, m := range plan.Moves {
		if m.Fate != "moves" {
			left++
		}
	}
	if left == 0 {
		return nil
	}
	return fault.New(fault.Precondition, "not_empty", "%d machines stay at %s; the plan says why of each", left, node)
}

func printDrain(c *cli.Env, plan api.DrainPlan) {
	if c.JSON {
		c.JSONLine(c.Out, plan)
		return
	}
	if len(plan.Moves) == 0 {
		c.Printf("%s has no machines\n", plan.Worker)
		return
	}
	rows := make([][]cli.Cell, len(plan.Moves))
	for i, m := range plan.Moves {
		rows[i] = cli.Cells(m.App+"/"+m.Name, m.Machine, string(m.State), string(m.Fate), m.To, m.Reason)
	}
	c.Table([]cli.Column{cli.Keep("MACHINE").Cut(8), cli.Drop("ID", 2), cli.Drop("STATE", 1), cli.Keep("FATE"),
		cli.Keep("TO").Cut(6), cli.Drop("WHY", 3).Cut(12)}, rows)
}

// moveAll moves what the plan moves, some at once, and says what became of each. It gives how many failed.
func moveAll(ctx context.Context, c *cli.Env, cl *client.Client, plan api.DrainPlan, atOnce int) (failed int) {
	var mu sync.Mutex
	var all sync.WaitGroup
	slots, done, total := make(chan struct{}, atOnce), 0, 0
	for _, m := range plan.Moves {
		if m.Fate == "moves" {
			total++
		}
	}
	for _, m := range plan.Moves {
		if m.Fate != "moves" || ctx.Err() != nil {
			continue
		}
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			out, err := cl.Move(ctx, m.App, m.Machine)
			mu.Lock()
			defer mu.Unlock()
			done++
			if err != nil {
				failed++
			}
			printMove(c, m, out, err, done, total)
		})
	}
	all.Wait()
	return failed
}

func printMove(c *cli.Env, m api.DrainMove, out api.Moved, err error, done, total int) {
	switch {
	case c.JSON && err != nil:
		c.JSONLine(c.Out, map[string]any{"machine": m.Machine, "error": err.Error(), "done": done, "of": total})
	case c.JSON:
		c.JSONLine(c.Out, map[string]any{
			"machine": m.Machine,
			"now":     out.Machine.ID,
			"worker":  out.Machine.Worker,
			"down_ms": out.DownMS,
			"done":    done,
			"of":      total,
		})
	case err != nil:
		fmt.Fprintf(c.Err, "[%d/%d] %s/%s stays: %v\n", done, total, m.App, m.Name, err)
	default:
		down := ""
		if out.DownMS > 0 {
			down = ", down for " + cli.Millis(time.Duration(out.DownMS*float64(time.Millisecond)))
		}
		c.Printf("[%d/%d] %s/%s is at %s now (%s)%s\n", done, total, m.App, m.Name, out.Machine.Worker,
			out.Machine.ID, down)
	}
}
