package releases

import (
	"context"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/fault"
)

// Scale makes the command "souk scale".
func Scale(c *cli.Env) *cobra.Command {
	cmd := &cobra.Command{Use: "scale APP {N | GROUP=N...}", Short: "Set how many machines of an app are wanted",
		Long: `Set how many machines are wanted of an app that has a release ("souk run --replicas" makes one): one number where
it has one group, else one for each group that is to change. It answers when that is written down; "souk status --app APP"
tells how far it is. It stays so over later releases, unless one says another number of the group.

A group with an autoscale goes on from the number, which is between its min and max; 0 turns it off.`,
		Example: "  souk scale shop 3\n  souk scale shop web=3 worker=1\n  souk scale shop web=0 --json | jq .number",
		Args:    cli.Args(2, -1, "an app, and how many machines are wanted, such as 3 or web=3")}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		counts, plain, err := countsOf(args[1:])
		if err != nil {
			return err
		}
		cl, err := c.Client()
		if err != nil {
			return err
		}
		return scale(cmd.Context(), c, cl, args[0], counts, plain)
	}
	return cmd
}

// countsOf reads the numbers: a single one (plain), or one for each group.
func countsOf(args []string) (counts map[string]int, plain int, err error) {
	counts = map[string]int{}
	for _, s := range args {
		group, number, named := strings.Cut(s, "=")
		if !named {
			group, number = "", s
		}
		n, err := strconv.Atoi(number)
		switch _, twice := counts[group]; {
		case err != nil || n < 0 || named && group == "":
			return nil, 0, cli.Usagef("how many is written N or GROUP=N, such as 3 or web=3, not %q", s)
		case !named && len(args) > 1:
			return nil, 0, cli.Usagef("of several numbers each needs its group, as in web=3; %q has none", s)
		case twice:
			return nil, 0, cli.Usagef("group %s is given twice", group)
		case !named:
			return nil, n, nil
		}
		counts[group] = n
	}
	return counts, 0, nil
}

func scale(ctx context.Context, c *cli.Env, cl *client.Client, app string, counts map[string]int, plain int) error {
	before, err := cl.Service(ctx, app)
	if err != nil {
		return known(app, err)
	}
	if counts == nil {
		group, err := only(&before)
		if err != nil {
			return err
		}
		counts = map[string]int{group: plain}
	}
	h, err := cl.Change(ctx, app, release.Change{Why: release.WhyScale, Counts: counts})
	if err != nil {
		return err
	}
	if c.JSON {
		c.JSONLine(c.Out, h.Head)
		return nil
	}
	now, err := cl.Service(ctx, app)
	if err != nil {
		return err
	}
	verb := "wants"
	if before.Head != nil && before.Head.ID == h.ID {
		verb = "already wants"
	}
	c.Printf("%s %s %s\n", app, verb, wantedText(&now))
	for i := range now.Groups {
		g := &now.Groups[i]
		_, set := counts[g.Name]
		switch a := g.Autoscale; {
		case !set || a == nil:
		case a.Off:
			c.Field("scales", "%s: off; \"souk scale %s %s=%d\" turns it on", g.Name, app, g.Name, a.Min)
		default:
			c.Field("scales", "%s: from %d on, %d..%d by %s", g.Name, g.Wanted, a.Min, a.Max, a.Metric)
		}
	}
	c.Field("next", "souk status --app %s", app)
	return nil
}

// only returns the one group of a service.
func only(s *api.ServiceStatus) (string, error) {
	if s.Why != "" {
		return "", fault.New(fault.Unavailable, fault.CodeReleaseMissing, "%s", s.Why)
	}
	names := wantedGroups(s)
	if len(names) != 1 {
		return "", cli.Usagef("%s has the groups %s: say which, as in \"souk scale %s %s=3\"", s.App,
			strings.Join(names, ", "), s.App, names[0])
	}
	return names[0], nil
}

// wantedGroups lists the groups of the release: others are listed only because they still have machines.
func wantedGroups(s *api.ServiceStatus) (names []string) {
	for _, g := range s.Groups {
		if g.Image != "" {
			names = append(names, g.Name)
		}
	}
	for i := range s.Jobs {
		names = append(names, s.Jobs[i].Group)
	}
	return names
}

// wantedText returns how many machines of each group are wanted.
func wantedText(s *api.ServiceStatus) string {
	var groups []api.ReleaseGroup
	for _, g := range s.Groups {
		if g.Image != "" {
			groups = append(groups, api.ReleaseGroup{Name: g.Name, Wanted: g.Wanted})
		}
	}
	var parts []string
	if len(groups) > 0 || len(s.Jobs) == 0 {
		parts = append(parts, groupsText(groups))
	}
	for i := range s.Jobs {
		off := ""
		if s.Jobs[i].Off {
			off = " (off)"
		}
		parts = append(parts, "job "+s.Jobs[i].Group+off)
	}
	return strings.Join(parts, ", ")
}
