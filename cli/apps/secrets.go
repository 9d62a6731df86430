package apps

import (
	"cmp"
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
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/fault"
)

// codeStdin says that standard input could not be read.
const codeStdin fault.Code = "stdin"

// Secrets makes the command "souk secrets".
func Secrets(c *cli.Env) *cobra.Command {
	of := new(secretFlags)
	set := &cobra.Command{Use: "set NAME[=VALUE]...", Short: "Set secrets, and replace the machines that read them",
		Long: `Set secrets of an app: the one of --app, else of souk.toml in this directory, as with "souk deploy". Where the app is a service its machines that read one of them are replaced, group by group, as
by "souk deploy": a rollout that fails is undone, and with it the machines have the values from before. --stage sets them
alone. Machines of an app that is no service see them in their environment at their next start. A NAME without a value takes it from stdin, to the last byte but one trailing newline, so that it is in
no shell history and no process list; on a terminal it is asked for and not shown. A value is text in UTF-8: what is
not, such as a binary key, is refused; encode it, with base64 for example.`,
		Example: "  souk secrets set DB_PASSWORD < password.txt\n  souk secrets set --app shop KEY=value OTHER=value",
		Args:    cli.Args(1, -1, "NAME=VALUE, or a NAME whose value is on stdin")}
	set.RunE = func(cmd *cobra.Command, given []string) error {
		values, err := secretValues(cmd.Context(), c, given)
		if err != nil {
			return err
		}
		return setSecrets(cmd, c, of, values, "set", given)
	}
	imports := importSecrets(c, of)
	unset := &cobra.Command{
		Use:     "unset SECRET...",
		Short:   "Delete secrets, and replace the machines that read them",
		Example: "  souk secrets unset DB_PASSWORD",
		Args:    cli.Args(1, -1, "names"),
	}
	unset.RunE = func(cmd *cobra.Command, given []string) error {
		values := map[string]*string{}
		for _, n := range given {
			values[n] = nil
		}
		return setSecrets(cmd, c, of, values, "unset", given)
	}
	deploy := &cobra.Command{Use: "deploy", Short: "Replace the machines that have not the newest secrets",
		Long: `Make the release of an app that is wanted anew with the newest secrets, such as those that "souk secrets set --stage" has
set. Machines that read none that has changed stay as they are.`,
		Example: "  souk secrets deploy --app shop", Args: cli.Args(0, 0, "no argument")}
	deploy.RunE = func(cmd *cobra.Command, _ []string) error {
		return setSecrets(cmd, c, of, nil, "deploy", nil)
	}
	for _, cmd := range []*cobra.Command{set, imports, unset, deploy} {
		f := cmd.Flags()
		f.BoolVar(&of.plan, "plan", false, "say what it would do to each machine, and change nothing")
		f.BoolVar(&of.noPlan, "no-plan", false, "do not ask first whether there is room")
		f.BoolVarP(&of.detach, "detach", "d", false, "answer when it is wanted, and follow nothing")
		if cmd != deploy {
			f.BoolVar(&of.stage, "stage", false, "store alone: machines begin with it at the next deploy")
		}
	}
	return cli.Parent(&cobra.Command{Use: "secrets", Short: "List, set and delete an app's secrets",
		Example: "  souk secrets set DB_PASSWORD < password.txt\n  souk secrets list"},
		listSecrets(c), set, imports, unset, deploy)
}

// importSecrets makes the command "souk secrets import".
func importSecrets(c *cli.Env, of *secretFlags) *cobra.Command {
	cmd := &cobra.Command{Use: "import [FILE]", Short: "Set the secrets of a file such as .env, or of stdin",
		Long: `Set the secrets of a file, or of stdin where none is named (or "-"), all at once, as "souk secrets set" does. Those that
the file does not name stay. A line that cannot be read is refused with its number, and nothing is changed.

The file is read as dotenv and Compose read a .env, and as --env-file of "souk run" is, but a $ is a $: no variable is put
in the place of $NAME. "docker run --env-file" differs: it takes quotes, and # behind a space, for a part of the value.

  NAME=value             to the end of the line, without the space around it; "export" in front of it means nothing
  NAME=value # comment   a # begins a comment at the beginning of a line and behind a space, and nowhere else
  NAME='as it stands'    up to the next ', over several lines where it must be, such as a key in PEM
  NAME="a line\n"        the same, with \n, \r, \t, \", \\ and \$ for what they usually mean`,
		Example: "  souk secrets import .env\n  souk secrets import --app shop --stage < production.env\n" +
			"  gpg -d production.env.gpg | souk secrets import",
		Args: cli.Args(0, 1, "at most one file")}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		vars, err := c.EnvFile(cmp.Or(strings.Join(args, ""), "-"))
		if err != nil {
			return err
		}
		values, given := map[string]*string{}, []string{}
		for _, v := range vars {
			if _, again := values[v.Name]; !again {
				given = append(given, v.Name)
			}
			values[v.Name] = &v.Value
		}
		if len(given) == 0 {
			return cli.Usagef("there is no line NAME=VALUE in it, so there is nothing to set")
		}
		return setSecrets(cmd, c, of, values, "set", given)
	}
	return cmd
}

// listSecrets makes the command "souk secrets list".
func listSecrets(c *cli.Env) *cobra.Command {
	list := &cobra.Command{Use: "list", Aliases: []string{"ls"}, Short: "List secrets, never their values",
		Example: "  souk secrets list --app shop", Args: cli.Args(0, 0, "no argument")}
	list.RunE = func(cmd *cobra.Command, _ []string) error {
		cl, err := c.Client()
		if err != nil {
			return err
		}
		app, _, err := releases.AppHere(c, cmd)
		if err != nil {
			return err
		}
		ss, err := cl.Secrets(cmd.Context(), app)
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
	return list
}

// secretFlags say how a change of secrets reaches the machines.
type secretFlags struct{ plan, noPlan, detach, stage bool }

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
				return nil, fault.Wrap(err, fault.Invalid, codeStdin, "the value of %s could not be read from stdin", k)
			}
			if len(raw) > maxSecret {
				return nil, fault.New(fault.Invalid, fault.CodeSecretSize, "the value of %s is larger than %d bytes", k,
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
	go func() { // the read cannot be interrupted; it ends with the program
		text, err := term.ReadPassword(int(f.Fd()))
		read <- line{text, err}
	}()
	select {
	case l := <-read:
		return l.text, l.err
	case <-ctx.Done():
		_ = term.Restore(int(f.Fd()), before) // echo is on again
		return nil, context.Cause(ctx)
	}
}

// setSecrets changes secrets; given are the arguments that name them; none: the secrets that are set but not in the
// release yet.
func setSecrets(cmd *cobra.Command, c *cli.Env, of *secretFlags, values map[string]*string, verb string,
	given []string) error {
	switch {
	case of.plan && of.noPlan:
		return cli.Usagef("--plan asks for a plan and --no-plan for none: say one of them")
	case of.stage && (of.plan || of.detach):
		return cli.Usagef("--stage changes no machine, so there is nothing to plan or to follow: leave one of them out")
	}
	cl, err := c.Client()
	if err != nil {
		return err
	}
	app, ofFile, err := releases.AppHere(c, cmd)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	var before []api.Secret
	if verb == "unset" {
		if before, err = cl.Secrets(ctx, app); err != nil {
			return err
		}
	}
	if !of.stage && !of.noPlan {
		p, err := cl.PlanSecrets(ctx, app, api.SecretsRoll{Values: values})
		switch {
		case of.plan && err != nil:
			return err
		case of.plan:
			return releases.ShowPlan(c, &p)
		case err == nil:
			err = releases.Unfit(&p)
		case fault.Is(err, fault.NotFound): // the app does not exist yet
			err = nil
		}
		if err != nil {
			return err
		}
	}
	out, err := writeSecrets(ctx, cl, app, values, of.stage)
	if fault.Is(err, fault.NotFound) && (ofFile || app == cli.DefaultApp) && verb == "set" {
		// As with run and deploy, create the app when it is first needed.
		if _, made := cl.CreateApp(ctx, app); made != nil && !releases.AppExists(made) {
			return made
		}
		out, err = writeSecrets(ctx, cl, app, values, of.stage)
	}
	if err != nil {
		return err
	}
	then := thenText(ctx, cl, app, of, &out)
	for _, g := range given {
		name, _, _ := strings.Cut(g, "=")
		if verb == "unset" && !slices.ContainsFunc(before, func(s api.Secret) bool { return s.Name == name }) {
			c.Say("none", name, "%s was not set in app %s", name, app)
			continue
		}
		c.Say(verb, name, "%s is %s in app %s%s", name, verb, app, then)
	}
	switch {
	case out.Head == nil && len(given) == 0:
		c.Say("none", app, "no machine of %s reads a secret that has changed since its release", app)
	case out.Head != nil && of.detach:
		releases.Made(c, app, &api.ReleaseMade{Release: out.Head.Release, Head: *out.Head})
	case out.Head != nil:
		return releases.Follow(ctx, c, cl, app, out.Head)
	}
	return nil
}

// writeSecrets stores secrets, and unless they are only staged replaces the machines that read them.
func writeSecrets(ctx context.Context, cl *client.Client, app string, values map[string]*string,
	stage bool) (api.SecretsRolled, error) {
	if stage {
		return api.SecretsRolled{}, cl.SetSecrets(ctx, app, values)
	}
	return cl.RollSecrets(ctx, app, api.SecretsRoll{Values: values})
}

// thenText says when machines see a change of secrets.
func thenText(ctx context.Context, cl *client.Client, app string, of *secretFlags, out *api.SecretsRolled) string {
	if out.Head != nil {
		return "; the machines of " + strings.Join(out.Groups, ", ") + " are replaced"
	}
	switch _, err := cl.Service(ctx, app); {
	case err != nil:
		return "; machines see it at their next start"
	case of.stage:
		return "; machines see it with the next deploy"
	}
	return "; no machine is replaced, as none reads it or it is as it was"
}
