package apps

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/cli/releases"
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
no shell history and no process list; on a terminal it is asked for and not shown. A value is text in UTF-8: what is
not, such as a binary key, is refused; encode it, with base64 for example.`,
		Example: "  souk secrets set DB_PASSWORD < password.txt\n  souk secrets set --app shop KEY=value OTHER=value",
		Args:    cli.Args(1, -1, "NAME=VALUE, or a NAME whose value is on stdin")}
	set.RunE = func(cmd *cobra.Command, given []string) error {
		values, err := secretValues(cmd.Context(), c, given)
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

func secretValues(ctx context.Context, c *cli.Env, given []string) (map[string]*string, error) {
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
			raw, err := secretFrom(ctx, c, k)
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

// secretFrom reads a value from stdin: on a terminal one line, which is not shown.
func secretFrom(ctx context.Context, c *cli.Env, name string) ([]byte, error) {
	f, is := c.In.(*os.File)
	if !is || !term.IsTerminal(int(f.Fd())) {
		return io.ReadAll(io.LimitReader(c.In, maxSecret+1))
	}
	before, err := term.GetState(int(f.Fd()))
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(c.Err, "value of %s (it is not shown): ", name)
	defer fmt.Fprintln(c.Err)
	type line struct {
		text []byte
		err  error
	}
	read := make(chan line, 1)
	go func() { // it outlives a ^C, and ends with the program
		text, err := term.ReadPassword(int(f.Fd()))
		read <- line{text, err}
	}()
	select {
	case l := <-read:
		return l.text, l.err
	case <-ctx.Done():
		_ = term.Restore(int(f.Fd()), before) // the user sees again what is typed
		return nil, context.Cause(ctx)
	}
}

func setSecrets(c *cli.Env, cmd *cobra.Command, values map[string]*string, verb string, given []string) error {
	cl, err := c.Client()
	if err != nil {
		return err
	}
	app := c.AppOrDefault()
	var before []api.Secret
	if verb == "unset" {
		if before, err = cl.Secrets(cmd.Context(), app); err != nil {
			return err
		}
	}
	err = cl.SetSecrets(cmd.Context(), app, values)
	if fault.Is(err, fault.NotFound) && app == cli.DefaultApp && verb == "set" {
		// As with run, the default app is made when it is first needed.
		if _, made := cl.CreateApp(cmd.Context(), app); made != nil && !releases.AppExists(made) {
			return made
		}
		err = cl.SetSecrets(cmd.Context(), app, values)
	}
	if err != nil {
		return err
	}
	for _, g := range given {
		name, _, _ := strings.Cut(g, "=")
		if verb == "unset" && !slices.ContainsFunc(before, func(s api.Secret) bool { return s.Name == name }) {
			c.Say("none", name, "%s was not set in app %s", name, app)
			continue
		}
		c.Say(verb, name, "%s is %s in app %s; machines see it at their next start", name, verb, app)
	}
	return nil
}
