// Package releases has the commands for services: souk deploy, scale, releases, those that control a rollout, and the
// parts of souk run and status about services.
package releases

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/api/manifest"
	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Releases makes the command "souk releases".
func Releases(c *cli.Env) *cobra.Command {
	cmd := &cobra.Command{Use: "releases APP [RELEASE]", Short: "List what was wanted of an app, newest first",
		Long: `List the releases of an app: each deploy, and each change of how many machines are wanted. With RELEASE, by its
number, its id or at least the first 6 digits of that, tell what that one says. "souk logs --release NUMBER --app APP" has what the
machines of one printed, of one that failed for a day.

  STATE  current is what is wanted now; past was followed by another; undone failed, so that the one before is wanted
         again; overtaken was made at the same time as another, on two sides of a cut of the network, and lost
  WHY    deploy, scale, restart, rollback, pause, resume, promote, secrets or move
  GROUPS how many machines of each group were wanted
  IMAGE  what they run`,
		Example: "  souk releases shop\n  souk releases shop 3f9a01\n  souk releases shop 3f9a01 --toml > souk.toml\n" +
			"  souk releases shop --json | jq -r '.[] | select(.state == \"overtaken\").release'",
		Args: cli.Args(1, 2, "an app, and at most one of its releases")}
	asTOML := false
	cmd.Flags().BoolVar(&asTOML, "toml", false, "with RELEASE: print it as a file that \"souk deploy\" takes")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if asTOML && (len(args) < 2 || c.JSON) {
			return cli.Usagef("--toml prints one release: name it, and leave --json out")
		}
		cl, err := c.Client()
		if err != nil {
			return err
		}
		if len(args) > 1 {
			r, err := cl.Release(cmd.Context(), args[0], args[1])
			if err != nil {
				return known(args[0], err)
			}
			if asTOML {
				return printTOML(c, args[0], &r)
			}
			if c.JSON {
				c.JSONLine(c.Out, r)
				return nil
			}
			printRelease(c, args[0], &r)
			return nil
		}
		list, err := cl.Releases(cmd.Context(), args[0])
		if err != nil {
			return known(args[0], err)
		}
		if c.JSON {
			cli.JSONList(c, list)
			return nil
		}
		printReleases(c, list)
		return nil
	}
	return cmd
}

// printTOML prints a release as a souk.toml.
func printTOML(c *cli.Env, app string, r *api.Release) error {
	text, err := manifest.Write(app, &api.NewRelease{Groups: r.Groups, Note: r.Note,
		ReleaseCommand: r.ReleaseCommand, ReleaseCommandGroup: r.ReleaseCommandGroup,
		ReleaseCommandTimeout: r.ReleaseCommandTimeout})
	if err != nil {
		return err
	}
	_, err = c.Out.Write(text)
	return err
}

func printReleases(c *cli.Env, list []api.ReleaseEntry) {
	head := []cli.Column{cli.Keep("NUMBER"), cli.Keep("RELEASE"), cli.Keep("STATE"), cli.Drop("WHY", 3),
		cli.Drop("WHO", 4).Cut(8), cli.Drop("AGE", 5), cli.Keep("GROUPS").Cut(12),
		cli.Drop("IMAGE", 1).Cut(8), cli.Reason("NOTE")}
	now := time.Now()
	rows := make([][]cli.Cell, 0, len(list))
	for i := range list {
		e := &list[i]
		number := "-"
		if e.Number > 0 {
			number = fmt.Sprint(e.Number)
		}
		state := cli.Cell{Text: e.State}
		switch e.State {
		case "current":
			state.Colour = "32"
		case "undone":
			state.Colour = "31"
		case "overtaken":
			state.Colour = "33"
		}
		rows = append(rows, []cli.Cell{{Text: number}, {Text: release.Short(e.Release)}, state, {Text: e.Why},
			{Text: cmp.Or(e.By, "-")}, {Text: age(e.At, now)}, {Text: groupsText(e.Groups)},
			{Text: imagesText(e.Groups)}, {Text: noteOf(e)}})
	}
	c.Table(head, rows)
}

// noteOf returns a release's note, and why it was undone.
func noteOf(e *api.ReleaseEntry) string {
	if e.Note != "" && e.Failed != "" {
		return e.Note + ": " + e.Failed
	}
	return e.Note + e.Failed
}

// imagesText returns the images of a release's groups.
func imagesText(groups []api.ReleaseGroup) string {
	var images []string
	for i := range groups {
		if image := machine.ShortImage(groups[i].Image); !slices.Contains(images, image) {
			images = append(images, image)
		}
	}
	return cmp.Or(strings.Join(images, ", "), "-")
}

// groupsText returns how many machines of each group were wanted.
func groupsText(groups []api.ReleaseGroup) string {
	if len(groups) == 0 {
		return "-" // the release is no longer stored
	}
	parts := make([]string, len(groups))
	for i, g := range groups {
		if parts[i] = fmt.Sprintf("%s %d", g.Name, g.Wanted); g.Max > 0 {
			parts[i] = fmt.Sprintf("%s %d..%d", g.Name, g.Min, g.Max)
		}
	}
	return strings.Join(parts, ", ")
}

// known rewrites the error of a missing app for command-line users.
func known(app string, err error) error {
	if fault.CodeOf(err) == fault.CodeAppNotFound {
		return fault.New(fault.NotFound, fault.CodeAppNotFound, "there is no app %q; \"souk apps\" lists them", app)
	}
	return err
}

func age(at, now time.Time) string { return cli.Age(at.UTC().Format(time.RFC3339), now) }

func printRelease(c *cli.Env, app string, r *api.Release) {
	c.Printf("release %s of %s is %s\n", r.ID, app, r.State)
	c.Field("made", "%s ago by %s", age(r.At, time.Now()), cmp.Or(r.By, "somebody"))
	if r.Note != "" {
		c.Field("note", "%s", r.Note)
	}
	c.Field("secrets", "version %d", r.Secrets)
	for i := range r.Groups {
		g := &r.Groups[i]
		replicas := 1
		if g.Replicas != nil {
			replicas = *g.Replicas
		}
		c.Field("group", "%s: %d of %s, %s, %s", g.Name, replicas, image(g.Config), cli.Shape(g.Config),
			cmp.Or(cli.Command(g.Config), "its own command"))
	}
}

func image(cfg *machine.Config) string {
	if cfg == nil {
		return "no image"
	}
	return machine.ShortImage(cfg.Image)
}
