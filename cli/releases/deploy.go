package releases

import (
	"cmp"
	"context"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/api/manifest"
	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/cli/services"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/fault"
)

// defaultFile is the file that is deployed where none is named.
const defaultFile = "souk.toml"

type deployFlags struct {
	file   string
	note   string
	detach bool
	schema bool
	plan   bool
	noPlan bool
}

// Deploy makes the command "souk deploy".
func Deploy(c *cli.Env) *cobra.Command {
	o := new(deployFlags)
	cmd := &cobra.Command{Use: "deploy [FILE]", Short: "Make the machines of an app what a file says",
		Long: `Make a release of an app from a file, souk.toml of this directory where none is named ("-" is stdin), and follow its
rollout until it is done. --schema tells editors what may stand in the file, and "souk releases APP RELEASE --toml"
prints one; a key that souk does not know is refused with its line. The app is made where there is none of its name;
--app goes before the file's, and the file's before SOUK_APP.

It ends with 0 once all machines are as the file says and have been ready for update.min_up (10s), or where a canary
waits for "souk promote", and says at which addresses the app answers (--json: addresses). A rollout that fails is undone, or paused, as the file says in update.on_failure; then the
command ends with 65, why, and what the machines that failed printed last (--json: rollout.failed[].output), and so it
does where a machine is not ready though the rollout is over. ^C ends the following alone: the rollout goes on. A number
that "souk scale" set stays, unless the file says another one than the release before.

--plan changes nothing: it says what a deploy would do to each machine, and whether there is room for the machines that
it makes first. It ends with 0 where there is nothing to do, 1 where there are changes and they fit, 75 where there is
no room now, and 78 where there never is. A deploy asks the same first: one without room is refused before anything is
written, with what would fit. --no-plan deploys it all the same, and its machines are made once there is room.`,
		Example: "  souk deploy\n  souk deploy shop.toml --note 'more room'\n  souk deploy --plan\n" +
			"  souk deploy --detach --json | jq -r .release\n  souk deploy --schema > souk-toml.schema.json",
		Args: cli.Args(0, 1, "at most one file")}
	f := cmd.Flags()
	f.StringVar(&o.note, "note", "", "what the release is for, in the place of the file's note")
	f.BoolVarP(&o.detach, "detach", "d", false, "answer when the release is made, and follow nothing")
	f.BoolVar(&o.schema, "schema", false, "print the JSON Schema of the file, for editors")
	f.BoolVar(&o.plan, "plan", false, "say what a deploy would do, and change nothing")
	f.BoolVar(&o.noPlan, "no-plan", false, "deploy without asking first whether there is room")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if o.schema {
			if len(args) > 0 {
				return cli.Usagef("--schema prints what any file may say: leave %s out", args[0])
			}
			_, err := c.Out.Write(manifest.Schema())
			return err
		}
		if o.plan && o.noPlan {
			return cli.Usagef("--plan asks for a plan and --no-plan for none: say one of them")
		}
		if len(args) > 0 {
			o.file = args[0]
		} else if o.file = defaultFile; !isFile(o.file) {
			return cli.Usagef("there is no %s here: write one (docs/reference/souk-toml.md says how), or name a file",
				o.file)
		}
		given := ""
		if f := cmd.Flag("app"); f != nil && f.Changed {
			given = c.AppGiven()
		}
		return deploy(cmd.Context(), c, o, given)
	}
	return cmd
}

// deploy makes a release from a file. app is what --app says.
func deploy(ctx context.Context, c *cli.Env, o *deployFlags, app string) error {
	m, err := readManifest(c, o.file)
	if err != nil {
		return err
	}
	app = cmp.Or(app, m.App, c.AppGiven())
	if app == "" {
		return cli.Usagef("%s names no app: write app = \"NAME\" at its top, or say --app NAME", o.file)
	}
	m.Release.Note = cmp.Or(o.note, m.Release.Note)
	cl, err := c.Client()
	if err != nil {
		return err
	}
	if !o.noPlan {
		ask := cl.HoldRelease
		if o.plan {
			ask = cl.PlanRelease
		}
		p, err := ask(ctx, app, m.Release)
		switch {
		case err != nil:
			return err
		case o.plan:
			return ShowPlan(c, &p)
		}
		if err := Unfit(&p); err != nil {
			return err
		}
		m.Release.Held = p.Held
	}
	made, err := cl.Deploy(ctx, app, m.Release)
	if fault.CodeOf(err) == fault.CodeAppNotFound {
		if err := MakeApp(ctx, cl, app); err != nil {
			return err
		}
		made, err = cl.Deploy(ctx, app, m.Release)
	}
	if err != nil {
		return err
	}
	for _, g := range m.Release.Groups {
		if n, scaled := made.Head.Counts[g.Name]; scaled && (g.Autoscale == nil || n == 0) {
			c.Note("%s of %s stays at %d, as \"souk scale\" set it", g.Name, app, n)
		}
	}
	hereNote(c, made.ImagesHere)
	for _, v := range made.Volumes {
		c.Note("volume %s (%s) of %d GB is made at %s", v.Name, v.ID, v.SizeGB, v.Worker)
	}
	Warn(c, made.Warnings)
	if o.detach {
		Made(c, app, &made)
		return nil
	}
	return Follow(ctx, c, cl, app, &made.Head)
}

// deployed is a status with the app's addresses.
type deployed struct {
	*api.ServiceStatus
	Addresses []services.Address `json:"addresses"`
}

// showDeployed prints the result of a rollout, and the app's addresses.
func showDeployed(ctx context.Context, c *cli.Env, cl *client.Client, s *api.ServiceStatus) {
	at := services.AddressesOrNote(ctx, c, cl, s.App)
	if c.JSON {
		c.JSONLine(c.Out, deployed{s, at})
		return
	}
	Show(c, s)
	services.ShowAddresses(c, at)
}

// Follow follows the rollout that a head begins to its end, and prints its result.
func Follow(ctx context.Context, c *cli.Env, cl *client.Client, app string, head *api.Head) error {
	s, err := Await(ctx, c, cl, app, "", head)
	if s.App != "" && err == nil {
		showDeployed(ctx, c, cl, &s)
	}
	if err == nil || s.App == "" || ctx.Err() != nil {
		return err
	}
	return Failed(ctx, c, cl, &s, err)
}

// hereNote prints which images were taken from a host instead of a registry.
func hereNote(c *cli.Env, images []string) {
	for _, i := range images {
		c.Note("%s is taken as it is on the host that was asked: it was loaded there, or its registry does not "+
			"answer; other workers need it, too", i)
	}
}

// Warn prints a release's warnings.
func Warn(c *cli.Env, sentences []string) {
	for _, s := range sentences {
		c.Note("warning: %s", s)
	}
}

// Made prints that a release was made.
func Made(c *cli.Env, app string, made *api.ReleaseMade) {
	if c.JSON {
		c.JSONLine(c.Out, made)
		return
	}
	c.Printf("release %s of %s is made, number %d\n", made.Release, app, made.Head.Number)
	c.Field("next", "souk status --app %s", app)
}

func isFile(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// readManifest reads a file, "-" being stdin.
func readManifest(c *cli.Env, name string) (*manifest.Manifest, error) {
	in := c.In
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, fault.Wrap(err, fault.NotFound, api.CodeManifest,
				"%s cannot be read as a file that says what to "+
					"deploy", name)
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, manifest.MaxFile+1))
	if err != nil {
		return nil, fault.Wrap(err, fault.Invalid, api.CodeManifest, "%s cannot be read", name)
	}
	return manifest.TOML{}.Load(name, text)
}

// MakeApp creates an app, unless it exists.
func MakeApp(ctx context.Context, cl *client.Client, app string) error {
	if _, err := cl.CreateApp(ctx, app); err != nil && !AppExists(err) {
		return err
	}
	return nil
}

// AppExists reports whether an error says that the app exists, as when another client has just made it.
func AppExists(err error) bool {
	a, ok := fault.Detail[client.ErrorAnswer](err)
	return ok && a.Status == "name_taken"
}
