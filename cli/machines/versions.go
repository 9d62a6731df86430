package machines

import (
	"context"
	"maps"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/cli/releases"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Rollback makes the command "souk rollback".
func Rollback(c *cli.Env) *cobra.Command {
	o := new(updateFlags)
	var to string
	cmd := &cobra.Command{Use: "rollback [MACHINE|APP]",
		Short: "Make a machine, or the machines of an app, what they were before",
		Long: `Update a machine to the config of the version before the one that it is at, or of --to: its command, image,
environment, shape and all else that "souk get" prints. It is an update like any other: it is refused where that
version could not start, and it makes a new version, so a second rollback undoes the first. An image is the very one
of that time, whatever its name means by now. "souk get MACHINE --versions" lists the versions, of which ten are kept.

Scheduling (--band, --policy and so on) stays as it is, and so do secrets, which are their app's.

For an app that has a release ("souk deploy") the release from before its newest rollout is wanted again, or the one of
--to, and its machines are replaced as that one says. Once that rollout is done a second rollback undoes the first; while
it runs one can be undone so, and for more name a release with --to. How many machines are wanted stays where "souk scale"
said it. A name that a machine has is the machine's; "souk rollback --app APP" alone is always
about the app. "souk releases APP" lists the releases.`,
		Example: "  souk rollback web\n  souk get web --versions\n" +
			"  souk rollback web --to 01M8ANRHY7XV0BBVE8EH183F5Y\n  souk rollback --app shop\n" +
			"  souk rollback --app shop --to 3f9a01\n  souk rollback --app shop --to 2",
		Args: cli.Args(0, 1, "a machine, by id or name, or an app")}
	f := cmd.Flags()
	f.StringVar(&to, "to", "",
		"the version or release to go back to, or its number, or the beginning of its id (default: the one before)")
	o.waiting(f)
	f.BoolVar(&o.noStart, "no-start", false, "do not start it, and stop it where it runs")
	completeVersions(c, cmd, "to")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed("to") && to == "" {
			return cli.Usagef("--to is a version; leave it out for the one before")
		}
		if len(args) == 0 {
			if c.AppGiven() == "" {
				return cli.Usagef("souk rollback wants a machine, by id or name, or an app with --app")
			}
			return rollbackApp(cmd, c, c.AppGiven(), to)
		}
		cl, m, err := c.One(cmd, args[0])
		if fault.Is(err, fault.NotFound) {
			if _, e := cl.Service(cmd.Context(), args[0]); e == nil {
				return rollbackApp(cmd, c, args[0], to)
			}
		}
		if err != nil {
			return err
		}
		v, err := earlier(cmd.Context(), cl, m, to)
		if err != nil {
			return err
		}
		l := launchAt(m, v)
		l.SkipLaunch = o.noStart
		return o.send(cmd.Context(), c, cl, m, l)
	}
	return cmd
}

// rollbackApp makes an earlier release of an app the wanted one.
func rollbackApp(cmd *cobra.Command, c *cli.Env, app, release string) error {
	for _, flag := range []string{"nonce", "timeout", "no-wait", "no-start"} {
		if cmd.Flags().Changed(flag) {
			return cli.Usagef("--%s is of a machine, and %s is an app: leave it out", flag, app)
		}
	}
	return releases.Rollback(cmd.Context(), c, app, release)
}

// earlier finds the version to go back to.
func earlier(ctx context.Context, cl *client.Client, m *machine.Machine, to string) (machine.Version, error) {
	if to != "" {
		v, err := versionOf(ctx, cl, m, to)
		if err == nil && v.Version == m.InstanceID {
			err = fault.New(fault.Precondition, codeVersion, "%s is at version %s already", cli.Label(m), v.Version)
		}
		return v, err
	}
	list, err := cl.Versions(ctx, m.App, m.ID)
	if err == nil && len(list) < 2 {
		err = fault.New(fault.Precondition, fault.CodeNoEarlierVersion,
			"%s is at version %s, and no earlier one is kept",
			cli.Label(m), m.InstanceID)
	}
	if err != nil {
		return machine.Version{}, err
	}
	return list[1], nil
}

// versionOf finds a version by its id, or by a unique prefix.
func versionOf(ctx context.Context, cl *client.Client, m *machine.Machine, id string) (machine.Version, error) {
	list, err := cl.Versions(ctx, m.App, m.ID)
	if err != nil {
		return machine.Version{}, err
	}
	var found []machine.Version
	for _, v := range list {
		if strings.HasPrefix(v.Version, strings.ToUpper(id)) {
			found = append(found, v)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return machine.Version{}, fault.New(fault.NotFound, codeVersion,
			"no version %s of %s is kept; \"souk get %s --versions\" lists those that are", id, cli.Label(m),
			cli.Label(m))
	}
	return machine.Version{}, fault.New(fault.Conflict, fault.CodeAmbiguous,
		"%d versions of %s begin with %s; give more of the id", len(found), cli.Label(m), id)
}

// own is the prefix of souk's own metadata keys. They describe the machine, not a version.
const own = "souk_"

// launchAt returns a launch that restores a machine's version.
func launchAt(m *machine.Machine, v machine.Version) *machine.Launch {
	cfg := v.Config
	if v.Digest != "" && !machine.IsHostImage(cfg.Image) && !strings.Contains(cfg.Image, "@") {
		cfg.Image += "@" + v.Digest
	}
	cfg.Metadata = maps.Clone(cfg.Metadata)
	maps.DeleteFunc(cfg.Metadata, func(k, _ string) bool { return strings.HasPrefix(k, own) })
	for k, val := range m.Config.Metadata {
		if strings.HasPrefix(k, own) {
			if cfg.Metadata == nil {
				cfg.Metadata = map[string]string{}
			}
			cfg.Metadata[k] = val
		}
	}
	l := launchOf(m)
	l.Config = &cfg
	return l
}

// printVersions lists the versions of a machine, newest first.
func printVersions(ctx context.Context, c *cli.Env, cl *client.Client, m *machine.Machine) error {
	list, err := cl.Versions(ctx, m.App, m.ID)
	if err != nil {
		return err
	}
	if c.JSON {
		cli.JSONList(c, list)
		return nil
	}
	rows := make([][]cli.Cell, 0, len(list))
	for i, v := range list {
		now := ""
		if i == 0 {
			now = "now"
		}
		rows = append(rows, cli.Cells(v.Version, cli.Age(v.CreatedAt, time.Now()), now, v.Config.Image,
			cli.Command(&v.Config)))
	}
	c.Table([]cli.Column{cli.Keep("VERSION"), cli.Keep("AGE"), cli.Keep(""), cli.Drop("IMAGE", 1).Cut(8),
		cli.Drop("COMMAND", 2).Cut(12)}, rows)
	return nil
}

// completeVersions completes a flag by the versions of the command's machine.
func completeVersions(c *cli.Env, cmd *cobra.Command, flag string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, args []string, typed string) ([]string,
		cobra.ShellCompDirective) {
		const none = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
		if len(args) != 1 {
			return nil, none
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), 2*time.Second)
		defer cancel()
		cl, err := c.Client()
		if err != nil {
			return nil, none
		}
		m, err := c.Find(ctx, cl, args[0])
		if err != nil {
			return nil, none
		}
		list, err := cl.Versions(ctx, m.App, m.ID)
		if err != nil {
			return nil, none
		}
		var out []string
		for _, v := range list {
			if strings.HasPrefix(v.Version, strings.ToUpper(typed)) {
				age := cli.Age(v.CreatedAt, time.Now())
				out = append(out, v.Version+"\t"+age+" ago, "+cli.Command(&v.Config))
			}
		}
		return out, none
	})
}
