package apps

import (
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/cli/machines"
	"github.com/soukhq/souk/fault"
)

// Secrets makes the command "souk secrets".
func Secrets(c *cli.Env) *cobra.Command {
	list := &cobra.Command{Use: "list", Aliases: []string{"ls"}, Short: "List secrets, never their values",
		Example: "  souk secrets list --app shop", Args: cli.Args(0, 0, "no argument")}
	list.RunE = func(cmd *cobra.Command, _ []string) error {
		cl, err := c.Client()
		if err != nil {
			return err
		}
		ss, err := cl.Secrets(cmd.Context(), c.AppOrDefault())
		if err != nil {
			return err
		}
		if c.JSON {
			cli.JSONList(c, ss)
			return nil
		}
		var rows [][]cli.Cell
		for _, s := range ss {
			rows = append(rows, cli.Cells(s.Name, s.Digest))
		}
		c.Table([]cli.Column{cli.Keep("NAME").Cut(8), cli.Keep("DIGEST").Cut(8)}, rows)
		return nil
	}
	set := &cobra.Command{Use: "set NAME[=VALUE]...", Short: "Set secrets; machines see them at their next start",
		Long: `Set secrets of an app; its machines see them in their environment at their
next start. A NAME without a value takes it from stdin, to the last byte but one trailing newline, so that it is in
no shell history and no process list.`,
		Example: "  souk secrets set DB_PASSWORD < password.txt\n  souk secrets set --app shop KEY=value OTHER=value",
		Args:    cli.Args(1, -1, "NAME=VALUE, or a NAME whose value is on stdin")}
	set.RunE = func(cmd *cobra.Command, given []string) error {
		values, err := secretValues(c, given)
		if err != nil {
			return err
		}
		return setSecrets(c, cmd, values, "set", given)
	}
	unset := &cobra.Command{
		Use:     "unset SECRET...",
		Short:   "Delete secrets",
		Example: "  souk secrets unset DB_PASSWORD",
		Args:    cli.Args(1, -1, "names"),
	}
	unset.RunE = func(cmd *cobra.Command, given []string) error {
		values := map[string]*string{}
		for _, n := range given {
			values[n] = nil
		}
		return setSecrets(c, cmd, values, "unset", given)
	}
	return cli.Parent(&cobra.Command{Use: "secrets", Short: "List, set and delete an app's secrets",
		Example: "  souk secrets set DB_PASSWORD < password.txt\n  souk secrets list"}, list, set, unset)
}

// maxSecret bounds a secret read from stdin.
const maxSecret = 1 << 20

func secretValues(c *cli.Env, given []string) (map[string]*string, error) {
	values := map[string]*string{}
	fromStdin := ""
	for _, g := range given {
		k, v, has := strings.Cut(g, "=")
		if k == "" {
			return nil, cli.Usagef("a secret is written NAME=VALUE, not %q", g)
		}
		if !has {
			if fromStdin != "" {
				return nil,
					cli.Usagef("only one value can come from stdin, and both %s and %s have none", fromStdin, k)
			}
			fromStdin = k
			raw, err := io.ReadAll(io.LimitReader(c.In, maxSecret+1))
			if err != nil {
				return nil, fault.Wrap(err, fault.Invalid, "stdin", "the value of %s could not be read from stdin", k)
			}
			if len(raw) > maxSecret {
				return nil, fault.New(fault.Invalid, "secret_size", "the value of %s is larger than %d bytes", k,
					maxSecret)
			}
			v = strings.TrimSuffix(string(raw), "\n")
		}
		values[k] = &v
	}
	return values, nil
}

func setSecrets(c *cli.Env, cmd *cobra.Command, values map[string]*string, verb string, given []string) error {
	cl, err := c.Client()
	if err != nil {
		return err
	}
	app := c.AppOrDefault()
	err = cl.SetSecrets(cmd.Context(), app, values)
	if fault.Is(err, fault.NotFound) && app == cli.DefaultApp && verb == "set" {
		// As with run, the default app is made when it is first needed.
		if _, made := cl.CreateApp(cmd.Context(), app); made != nil && !machines.AppExists(made) {
			return made
		}
		err = cl.SetSecrets(cmd.Context(), app, values)
	}
	if err != nil {
		return err
	}
	for _, g := range given {
		name, _, _ := strings.Cut(g, "=")
		c.Say(verb, name, "%s is %s in app %s; machines see it at their next start", name, verb, app)
	}
	return nil
}
