package releases

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Why makes the command "souk why".
func Why(c *cli.Env) *cobra.Command {
	cmd := &cobra.Command{Use: "why APP [REPLICA|JOB]", Short: "Say why replicas are where they are, or not ready",
		Long: `Say of each replica of an app why it is where it is; of one that is not ready, why not and what would help; and of each
job whether it runs, or would have room to. REPLICA, such as web/2 or the name of a job, is one of them alone. Room is
asked for as "souk why-not" does; nothing is made or reserved. "souk explain MACHINE" says more of one machine: how each
worker was judged.`,
		Example: "  souk why shop\n  souk why shop web/2\n" +
			"  souk why shop --json | jq '.replicas[] | select(.as_wanted | not)'",
		Args: cli.Args(1, 2, "an app, and at most one of its replicas or jobs")}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		slot := ""
		if len(args) > 1 {
			slot = args[1]
		}
		return why(cmd.Context(), c, args[0], slot)
	}
	return cmd
}

// why explains the replicas of an app, or one of them.
func why(ctx context.Context, c *cli.Env, app, slot string) error {
	cl, err := c.Client()
	if err != nil {
		return err
	}
	w, err := cl.WhyService(ctx, app)
	if err != nil {
		return known(app, err)
	}
	if slot != "" {
		w.Replicas = slices.DeleteFunc(w.Replicas, func(r api.ReplicaWhy) bool { return slotText(&r) != slot })
		w.Jobs = slices.DeleteFunc(w.Jobs, func(j api.JobWhy) bool { return j.Group != slot })
		if len(w.Replicas) == 0 && len(w.Jobs) == 0 {
			return fault.New(fault.NotFound, machine.CodeReplica,
				"%s has no replica or job %s: \"souk why %s\" lists them", app,
				fault.Clip(slot, 80), app)
		}
	}
	if c.JSON {
		c.JSONLine(c.Out, w)
		return nil
	}
	printWhy(c, &w, slot == "")
	return nil
}

func slotText(r *api.ReplicaWhy) string { return release.Slot{Group: r.Group, Index: r.Index}.String() }

func printWhy(c *cli.Env, w *api.ServiceWhy, whole bool) {
	if whole {
		well, wanted := countWhy(w)
		c.Printf("%s: %d of %s as wanted\n", w.Service.App, well,
			cli.NumberOf(wanted, "replica is", "replicas are"))
		printRollout(c, &w.Service, time.Now())
	}
	for i := range w.Replicas {
		r := &w.Replicas[i]
		at := "no machine"
		if r.Machine != "" {
			at = r.Machine + " at " + string(r.Worker)
			if r.Release != "" {
				at += ", release " + release.Short(r.Release)
			}
		}
		c.Printf("%s (%s)\n", slotText(r), at)
		printReason(c, r.Why, r.Help)
	}
	for i := range w.Jobs {
		c.Printf("job %s\n", w.Jobs[i].Group)
		printReason(c, w.Jobs[i].Why, w.Jobs[i].Help)
	}
	for _, id := range w.Missing {
		c.Note("worker %s could not be asked: what is said of its machines is what was known", id)
	}
}

// countWhy returns how many replicas are as wanted, and how many are wanted. During a rollout a replica may have two
// machines.
func countWhy(w *api.ServiceWhy) (well, wanted int) {
	groups, counted := map[string]map[int]bool{}, map[string]bool{}
	for i := range w.Service.Groups {
		g := &w.Service.Groups[i]
		groups[g.Name] = g.WantedSlots()
		wanted += g.Wanted
	}
	for i := range w.Replicas {
		r := &w.Replicas[i]
		if slot := slotText(r); r.AsWanted && groups[r.Group][r.Index] && !counted[slot] {
			counted[slot] = true
			well++
		}
	}
	return well, wanted
}

func printReason(c *cli.Env, why string, help []string) {
	c.Printf("  %s\n", why)
	for _, h := range help {
		c.Printf("  help: %s\n", h)
	}
}
