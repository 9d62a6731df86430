package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
)

// drainFlags are the flags of souk node drain.
type drainFlags struct {
	cordonFlags
	yes, dry, endTasks bool
	atOnce             int
	patience           time.Duration
}

// Bounds and times of a drain.
const (
	maxMovesAtOnce = 32
	drainPatience  = time.Hour
	drainEvery     = time.Second     // between two looks while it waits
	drainSays      = 5 * time.Second // between two lines that say what it waits for
)

func cmdNodeDrain(c *cli.Env) *cobra.Command {
	o := new(drainFlags)
	cmd := &cobra.Command{Use: "drain NODE", Short: "Cordon a host, move its machines, and wait for its tasks",
		Long: `Empty a host: it is cordoned, and each of its machines is stopped, made
anew at another worker, and destroyed here. The new machine has another id and the same name, config, region and
metadata (and souk_moved_from, the id before). Its files and what it has in memory do not go along. One that is
stopped stays stopped; one that crashes again and again is moved, and goes on with its restarts there. Where no
worker takes a machine, it stays. A replica of a service is not stopped first: its service makes another, and
removes it once that one is ready.

What is never moved: a machine with a volume, whose lease somebody holds, or that goes by itself when it ends.

Tasks (souk submit) are not moved: no new one begins, and the drain waits until those that run have ended. With
--end-tasks they get SIGTERM, SIGKILL after 5 s, and go back to their job's queue: they run again from their
beginning, and do not count as failed: at another worker, or here once the host is uncordoned.

The plan is printed first. Without --yes nothing is done. A drain that was interrupted goes on when it is asked for
again. The exit code is 0 when nothing is left, 65 when something stays.`,
		Example: "  souk node drain fra-2 --dry-run\n  souk node drain fra-2 --reason 'new disks' --for 4h " +
			"--yes", Args: cli.Args(1, 1, "the id of a node")}
	o.add(cmd)
	cmd.Flags().BoolVar(&o.yes, "yes", false, "do it")
	cmd.Flags().BoolVar(&o.dry, "dry-run", false, "print the plan only")
	cmd.Flags().IntVar(&o.atOnce, "at-once", 4, "machines that are moved side by side")
	cmd.Flags().BoolVar(&o.endTasks, "end-tasks", false, "end the tasks that run there, to run again from their queue")
	cmd.Flags().DurationVar(&o.patience, "timeout", drainPatience,
		"how long to wait for tasks, and for machines to which something is being done")
	cmd.RunE = func(cmd *cobra.Command, argv []string) error { return doDrain(cmd.Context(), c, argv[0], o) }
	return cmd
}

func doDrain(ctx context.Context, c *cli.Env, node string, o *drainFlags) error {
	if o.atOnce < 1 || o.atOnce > maxMovesAtOnce {
		return cli.Usagef("--at-once is from 1 to %d, not %d", maxMovesAtOnce, o.atOnce)
	}
	if o.patience <= 0 {
		return cli.Usagef("--timeout is more than 0s, not %v", o.patience)
	}
	k, err := o.cordon()
	if err != nil && !o.dry && o.yes {
		return err
	}
	cl, err := c.Client()
	if err != nil {
		return err
	}
	if o.yes && !o.dry { // cordon first, so that no machine arrives while the drain is planned
		k.Drain = true
		if _, err := cl.CordonWorker(ctx, node, k); err != nil {
			return err
		}
	}
	plan, err := cl.DrainPlan(ctx, node)
	if err != nil {
		return err
	}
	printDrain(c, &plan, o.endTasks)
	switch {
	case o.dry:
		return stays(&plan)
	case !o.yes:
		return cli.Usagef("nothing was done; say --yes to do it, or --dry-run to see the plan only")
	}
	if k.EndTasks = o.endTasks; o.endTasks && len(plan.Tasks) > 0 {
		if _, err := cl.CordonWorker(ctx, node, k); err != nil {
			return err
		}
	}
	d := &draining{c: c, cl: cl, flags: o, tried: map[string]bool{}}
	if plan, err = d.run(ctx, plan); err != nil {
		return err
	}
	if err := notEmpty(&plan); err != nil {
		return err
	}
	if !c.JSON {
		c.Printf("%s is empty%s\n", node, volumesText(&plan, ", but for %s"))
	}
	return nil
}

// stays returns an error with what a drain would leave at the node; nil: nothing.
func stays(plan *api.DrainPlan) error {
	left := 0
	for _, m := range plan.Moves {
		if m.Fate == api.FateStays || m.Fate == api.FateStuck {
			left++
		}
	}
	if left == 0 {
		return nil
	}
	verb := "stay"
	if left == 1 {
		verb = "stays"
	}
	return fault.New(fault.Precondition, fault.CodeNotEmpty, "%s %s at %s; the plan gives the reason for each",
		cli.NumberOf(left, "machine", "machines"), verb, plan.Worker)
}

// notEmpty returns an error with what is left at the node in the end; nil: nothing.
func notEmpty(plan *api.DrainPlan) error {
	var left []string
	if n := len(plan.Moves); n > 0 {
		left = append(left, cli.NumberOf(n, "machine", "machines"))
	}
	if n := plan.Running(); n > 0 {
		left = append(left, cli.NumberOf(n, "task", "tasks"))
	}
	if len(left) == 0 {
		return nil
	}
	advice := "ask again to go on waiting, or with --end-tasks"
	if len(plan.Moves) > 0 {
		advice = fmt.Sprintf("\"souk node drain %s --dry-run\" says why", plan.Worker)
	}
	return fault.New(fault.Precondition, fault.CodeNotEmpty,
		"%s still has %s; %s", plan.Worker, strings.Join(left, " and "),
		advice)
}

func printDrain(c *cli.Env, plan *api.DrainPlan, endTasks bool) {
	if c.JSON {
		c.JSONLine(c.Out, plan)
		return
	}
	switch {
	case len(plan.Moves) > 0:
		printMoves(c, plan.Moves)
	case len(plan.Tasks) > 0:
		c.Printf("%s has no machines\n", plan.Worker)
	default:
		c.Printf("%s has no machines and no tasks\n", plan.Worker)
	}
	fate := "the drain waits for them"
	if endTasks {
		fate = "they end, and run again from their queue"
	}
	for _, t := range plan.Tasks {
		c.Printf("%s: %s\n", tasksText(t), fate)
	}
	if text := volumesText(plan, "%s, with what is in them"); text != "" {
		c.Printf("%s has %s: copy that, or it stays there\n", plan.Worker, text)
	}
}

// printMoves prints the plan's machines, and below them why some do not move.
func printMoves(c *cli.Env, moves []api.DrainMove) {
	rows := make([][]cli.Cell, len(moves))
	for i, m := range moves {
		why := m.Reason
		if m.Fate != api.FateMoves && m.Fate != api.FateAnew {
			why = "see below"
		}
		rows[i] = cli.Cells(m.App+"/"+m.Name, m.Machine, string(m.State), string(m.Fate), m.To, why)
	}
	c.Table([]cli.Column{cli.Keep("MACHINE").Cut(8), cli.Drop("ID", 2), cli.Drop("STATE", 1), cli.Keep("FATE"),
		cli.Keep("TO").Cut(6), cli.Reason("WHY")}, rows)
	for _, m := range moves {
		if m.Fate != api.FateMoves && m.Fate != api.FateAnew {
			c.Printf("  %s %s: %s\n", m.App+"/"+m.Name, m.Fate, m.Reason)
		}
	}
}

// tasksText is one line of a plan's tasks: "3 tasks of job sweep (j0123456789)".
func tasksText(t api.DrainTasks) string {
	job := t.Job
	if t.Name != "" {
		job = t.Name + " (" + t.Job + ")"
	}
	return cli.NumberOf(t.Running, "task", "tasks") + " of job " + job
}

// volumesText formats the number of unattached volumes; "": none.
func volumesText(plan *api.DrainPlan, format string) string {
	if len(plan.Volumes) == 0 {
		return ""
	}
	return fmt.Sprintf(format, cli.NumberOf(len(plan.Volumes), "volume that no machine has",
		"volumes that no machine has"))
}

// draining is a drain that is being carried out.
type draining struct {
	c     *cli.Env
	cl    *client.Client
	flags *drainFlags
	tried map[string]bool // machines that were moved, or could not be
	said  string          // the last message on what it waits for
	at    time.Time       // when said was printed
}

// run moves what can be moved, and waits for the rest until its timeout. It returns what is left.
func (d *draining) run(ctx context.Context, plan api.DrainPlan) (api.DrainPlan, error) {
	late := time.NewTimer(d.flags.patience)
	defer late.Stop()
	look := time.NewTicker(drainEvery)
	defer look.Stop()
	for over := false; ; {
		var err error
		if d.moveAll(ctx, &plan) > 0 {
			if plan, err = d.plan(ctx, plan.Worker); err != nil {
				return plan, err
			}
		}
		if over || !d.waits(&plan) {
			return plan, nil
		}
		d.say(&plan)
		select {
		case <-ctx.Done():
			return plan, ctx.Err()
		case <-late.C:
			over = true
		case <-look.C:
		}
		if plan, err = d.plan(ctx, plan.Worker); err != nil {
			return plan, err
		}
	}
}

// plan plans again; it survives a restart of the souk that answers.
func (d *draining) plan(ctx context.Context, node cluster.WorkerID) (plan api.DrainPlan, err error) {
	err = d.c.Outlast(ctx, d.cl, "what runs on "+string(node), "souk node drain "+string(node),
		func(ctx context.Context) (err error) {
			plan, err = d.cl.DrainPlan(ctx, string(node))
			return err
		})
	return plan, err
}

// waits reports whether a part of the plan will end by itself, or can be moved now.
func (d *draining) waits(plan *api.DrainPlan) bool {
	return len(plan.Tasks) > 0 || slices.ContainsFunc(plan.Moves, func(m api.DrainMove) bool {
		return m.Fate == api.FateWaits || m.Fate == api.FateAnew || d.moves(m)
	})
}

// moves reports whether a machine should be moved and was not tried yet.
func (d *draining) moves(m api.DrainMove) bool { return m.Fate == api.FateMoves && !d.tried[m.Machine] }

// say prints what the drain waits for, if that has changed, and not too often.
func (d *draining) say(plan *api.DrainPlan) {
	var parts []string
	for _, t := range plan.Tasks {
		parts = append(parts, tasksText(t))
	}
	var changing []string
	for _, m := range plan.Moves {
		if m.Fate == api.FateWaits {
			changing = append(changing, m.Machine)
			parts = append(parts, fmt.Sprintf("%s/%s, which is %s", m.App, m.Name, m.State))
		}
		if m.Fate == api.FateAnew {
			changing = append(changing, m.Machine)
			parts = append(parts, fmt.Sprintf("%s/%s, until its service has another", m.App, m.Name))
		}
	}
	text := strings.Join(parts, "; ")
	now := time.Now()
	if text == d.said || d.said != "" && now.Sub(d.at) < drainSays {
		return
	}
	d.said, d.at = text, now
	if d.c.JSON {
		d.c.JSONLine(d.c.Out, map[string]any{"waits": true, "tasks": plan.Tasks,
			"machines": append([]string{}, changing...)})
		return
	}
	d.c.Printf("waiting for %s\n", text)
}

// moveAll moves what the plan moves, some at once, and prints each outcome. It returns how many it tried.
func (d *draining) moveAll(ctx context.Context, plan *api.DrainPlan) int {
	var todo []api.DrainMove
	for _, m := range plan.Moves {
		if d.moves(m) {
			todo = append(todo, m)
		}
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	slots, done := make(chan struct{}, d.flags.atOnce), 0
	for _, m := range todo {
		if ctx.Err() != nil {
			break
		}
		d.tried[m.Machine] = true
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			out, err := d.cl.Move(ctx, m.App, m.Machine, "")
			mu.Lock()
			defer mu.Unlock()
			done++
			printMove(d.c, m, out, err, done, len(todo))
		})
	}
	all.Wait()
	return len(todo)
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
