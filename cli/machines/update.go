package machines

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// updateFlags are those of update beside what the machine is to be.
type updateFlags struct {
	RunFlags
	nonce  string
	limit  time.Duration
	noWait bool
}

// Update makes the command "souk update".
func Update(c *cli.Env) *cobra.Command {
	o := new(updateFlags)
	cmd := &cobra.Command{Use: "update MACHINE [flags] [-- CMD [ARG...]]", Short: "Change what a machine is",
		Long: `Change a machine's command, environment, shape or anything else that "souk run" sets. What no flag says stays as
it is; with --from the file says all, as "souk get" prints it, and flags go before it. The machine is stopped and
started with what it is now, on the same worker; one that is stopped stays so with --no-start.

Variables, metadata, volumes and files are added to those that there are, or take the place of one of the same
name. To take one away, edit the machine, or update it from a file.`,
		Example: `  souk update web --memory 1g --env MODE=fast
  souk update web -- /opt/server --port 8080
  souk get web > web.json && souk update web -f web.json`,
		Args: cli.Args(1, -1, "a machine, by id or name")}
	f := cmd.Flags()
	o.Shape(f)
	f.SetInterspersed(true) // the machine comes first
	f.StringVar(&o.nonce, "nonce", "", "the nonce of the machine's lease, when one is held")
	f.DurationVar(&o.limit, "timeout", 5*time.Minute, "how long to wait for it to be done")
	f.BoolVar(&o.noWait, "no-wait", false, "do not wait for it to be done")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		dash := cmd.ArgsLenAtDash()
		if dash != 1 && (dash >= 0 || len(args) > 1) {
			return cli.Usagef("give one machine, and its new command after --")
		}
		cl, m, err := c.One(cmd, args[0])
		if err != nil {
			return err
		}
		return doUpdate(cmd.Context(), c, cl, o, m, args[1:])
	}
	return cmd
}

func doUpdate(ctx context.Context, c *cli.Env, cl *client.Client, o *updateFlags, m *machine.Machine,
	argv []string) error {
	l := launchOf(m)
	if o.from != "" {
		var err error
		if l, err = ReadLaunch(c, o.from); err != nil {
			return err
		}
	}
	if err := o.apply(ctx, c, cl, m.App, l, argv); err != nil {
		return err
	}
	return o.send(ctx, c, cl, m, l)
}

// send updates the machine, unless it has changed since it was read, and waits until that is done.
func (o *updateFlags) send(ctx context.Context, c *cli.Env, cl *client.Client, m *machine.Machine,
	l *machine.Launch) error {
	l.CurrentVersion, l.Region, l.ID = m.InstanceID, "", ""
	begin := time.Now()
	if o.noWait {
		cl = cl.Async()
	}
	done := c.Progress("updating %s", cli.Label(m))
	now, err := cl.Update(ctx, m.App, m.ID, l, o.nonce)
	done()
	if err != nil {
		return err
	}
	if !o.noWait {
		if now, err = c.Settle(ctx, cl, m, begin.Add(o.limit), o.limit); err != nil {
			return err
		}
	}
	now = cli.Owned(now, m.App)
	if c.JSON {
		c.JSONLine(c.Out, now)
	} else {
		fmt.Fprintf(c.Out, "%s is %s, version %s (was %s; %s)\n", cli.Label(now), now.State, now.InstanceID,
			m.InstanceID, cli.Millis(time.Since(begin)))
	}
	return launchFailed(now)
}

// Get makes the command "souk get".
func Get(c *cli.Env) *cobra.Command {
	format := "launch"
	cmd := &cobra.Command{Use: "get MACHINE", Short: "Print what makes a machine as it is, for run and update",
		Long: `Print a machine as the launch that makes one like it, which "souk run --from" and "souk update --from" take. Ids
are left out: what it makes is another machine.`,
		Example: `  souk get web > web.json
  souk get web -o toml > web.toml && souk run -f web.toml --name web2
  souk get web -o machine | jq -r .state`,
		Args: cli.Args(1, 1, "a machine, by id or name")}
	cmd.Flags().StringVarP(&format, "output", "o", format,
		"launch, toml (a launch in TOML) or machine (all there is, in JSON)")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"launch", "toml", "machine"},
		cobra.ShellCompDirectiveNoFileComp))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		_, m, err := c.One(cmd, args[0])
		if err != nil {
			return err
		}
		var raw []byte
		switch format {
		case "launch", "toml":
			raw, err = encodeLaunch(launchOf(m), format == "toml")
		case "machine":
			if raw, err = json.MarshalIndent(m, "", "  "); err == nil {
				raw = append(raw, '\n')
			}
		default:
			return cli.Usagef("--output is launch, toml or machine, not %q", format)
		}
		if err != nil {
			return fault.Wrap(err, fault.Internal, "launch", "machine %s cannot be written", m.ID)
		}
		_, err = c.Out.Write(raw)
		return err
	}
	return cmd
}

// Edit makes the command "souk edit".
func Edit(c *cli.Env) *cobra.Command {
	o := new(updateFlags)
	cmd := &cobra.Command{Use: "edit MACHINE", Short: "Change what a machine is in an editor",
		Long: `Open a machine in $VISUAL or $EDITOR, as TOML, and update it with what was written. Nothing happens where nothing
was changed. What cannot be used is kept in a file, which is named.`,
		Example: "  EDITOR=nano souk edit web",
		Args:    cli.Args(1, 1, "a machine, by id or name")}
	f := cmd.Flags()
	f.StringVar(&o.nonce, "nonce", "", "the nonce of the machine's lease, when one is held")
	f.DurationVar(&o.limit, "timeout", 5*time.Minute, "how long to wait for it to be done")
	f.BoolVar(&o.noWait, "no-wait", false, "do not wait for it to be done")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cl, m, err := c.One(cmd, args[0])
		if err != nil {
			return err
		}
		return doEdit(cmd.Context(), c, cl, o, m)
	}
	return cmd
}

func doEdit(ctx context.Context, c *cli.Env, cl *client.Client, o *updateFlags, m *machine.Machine) error {
	before, err := encodeLaunch(launchOf(m), true)
	if err != nil {
		return fault.Wrap(err, fault.Internal, "launch", "machine %s cannot be written", m.ID)
	}
	f, err := os.CreateTemp("", "souk-"+m.ID+"-*.toml")
	if err == nil {
		_, err = f.Write(before)
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "edit", "there is no place for the file to edit")
	}
	editor := strings.Fields(cmp.Or(c.Getenv("VISUAL"), c.Getenv("EDITOR"), "vi"))
	run := exec.CommandContext(ctx, editor[0], append(editor[1:], f.Name())...)
	run.Stdin, run.Stdout, run.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := run.Run(); err != nil {
		return fault.Wrap(err, fault.Precondition, "edit",
			"the editor %q failed, and nothing was changed; what was written is in %s", strings.Join(editor, " "),
			f.Name())
	}
	after, err := os.ReadFile(f.Name())
	if err == nil && bytes.Equal(before, after) {
		fmt.Fprintf(c.Out, "%s stays as it is\n", cli.Label(m))
		return os.Remove(f.Name())
	}
	var l *machine.Launch
	if err == nil {
		l, err = decodeLaunch(f.Name(), after)
	}
	if err == nil {
		err = o.send(ctx, c, cl, m, l)
	}
	if err != nil {
		return fault.New(fault.KindOf(err), fault.CodeOf(err), "%s; mend %s and say souk update %s -f %s", err,
			f.Name(), cli.Label(m), f.Name())
	}
	return os.Remove(f.Name())
}
