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
	"github.com/spf13/pflag"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
)

// updateFlags are the flags of update besides RunFlags.
type updateFlags struct {
	RunFlags
	imageCommand bool
	nonce        string
	limit        time.Duration
	noWait       bool
}

// waiting adds the flags that edit and rollback have, too.
func (o *updateFlags) waiting(f *pflag.FlagSet) {
	f.StringVar(&o.nonce, "nonce", "", "the nonce of the machine's lease, when one is held")
	f.DurationVar(&o.limit, "timeout", 5*time.Minute, "how long to wait for it to be done")
	f.BoolVar(&o.noWait, "no-wait", false, "do not wait for it to be done")
}

// Update makes the command "souk update".
func Update(c *cli.Env) *cobra.Command {
	o := new(updateFlags)
	cmd := &cobra.Command{Use: "update MACHINE [flags] [-- CMD [ARG...]]", Short: "Change what a machine is",
		Long: `Change a machine's command, environment, shape or anything else that "souk run" sets. What no flag says stays as
it is; with --from the file says all, as "souk get" prints it, and flags go before it. The machine is stopped and
started with what it is now, on the same worker; one that is stopped stays so with --no-start.

The new version is checked first: its image, program, user, secrets and files. If it could not start, the update is
refused and the machine runs on. If the start itself fails, the version before is started again. If the new version
starts and ends with an error at once, it stays and the exit code is 65; "souk rollback" goes back.

Variables, metadata, volumes and files are added to those that there are, or take the place of one of the same
name. To take one away, edit the machine, or update it from a file.`,
		Example: `  souk update web --memory 1g --env MODE=fast
  souk update web -- /opt/server --port 8080
  souk update web --image nginx:1.29 --image-command
  souk get web > web.json && souk update web -f web.json`,
		Args: cli.Args(1, -1, "a machine, by id or name")}
	f := cmd.Flags()
	o.Shape(f)
	f.SetInterspersed(true) // the machine comes first
	f.BoolVar(&o.imageCommand, "image-command", false,
		"run the image's own command: take away the one that CMD or --entrypoint said before")
	o.waiting(f)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		dash := cmd.ArgsLenAtDash()
		if dash != 1 && (dash >= 0 || len(args) > 1) {
			return cli.Usagef("give one machine, and its new command after --")
		}
		if o.imageCommand && (len(args) > 1 || cmd.Flags().Changed("entrypoint")) {
			return cli.Usagef("--image-command runs what the image says, so it goes neither with a command nor with " +
				"--entrypoint")
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
	if o.from == "" {
		if err := configKnown(m); err != nil {
			return err
		}
	} else {
		var err error
		if l, err = ReadLaunch(c, o.from); err != nil {
			return err
		}
	}
	if err := o.apply(ctx, c, cl, m.App, l, argv); err != nil {
		return err
	}
	if o.imageCommand {
		if machine.IsHostImage(l.Config.Image) {
			return cli.Usagef("--image-command is of an image, and %s runs a program of its host: name an image with "+
				"--image, or a program after --", cli.Label(m))
		}
		l.Config.Init.Exec, l.Config.Init.Entrypoint, l.Config.Init.Cmd = nil, nil, nil
	}
	err := o.send(ctx, c, cl, m, l)
	kept := o.from == "" && len(argv) == 0 && !o.set.Changed("entrypoint")
	if fault.CodeOf(err) == runtime.CodeNoProgram && kept && commanded(l.Config) {
		return fault.New(fault.KindOf(err), fault.CodeOf(err), "%s; the machine keeps its earlier command (%s): "+
			"pass --image-command for the image's own, or another command after --", err, cli.Command(l.Config))
	}
	return err
}

// commanded reports whether a config of an image overrides the image's command.
func commanded(c *machine.Config) bool {
	return !machine.IsHostImage(c.Image) && len(c.Init.Exec)+len(c.Init.Entrypoint)+len(c.Init.Cmd) > 0
}

// send updates the machine, unless it has changed since it was read, and waits until the update is done.
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
	asked := now.InstanceID
	if !o.noWait {
		if now, err = c.Settle(ctx, cl, m, begin.Add(o.limit), o.limit); err != nil {
			return err
		}
		if now.InstanceID == m.InstanceID && asked != m.InstanceID {
			return fault.New(fault.Precondition, codeReverted, "%s is %s, at version %s as before%s", cli.Label(now),
				now.State, now.InstanceID, because(now, machine.EventUpdateFailed))
		}
		if now, err = firstMoments(ctx, c, cl, now); err != nil {
			return err
		}
	}
	now = cli.Owned(now, m.App)
	if now.InstanceID == asked {
		noteWarnings(c, now)
	}
	if c.JSON {
		c.JSONLine(c.Out, now)
	} else {
		fmt.Fprintf(c.Out, "%s is %s, version %s (was %s; %s)\n", cli.Label(now), now.State, now.InstanceID,
			m.InstanceID, cli.Millis(time.Since(begin)))
	}
	if err := launchFailed(now); err != nil || o.noWait {
		return err
	}
	return endedAtOnce(now, asked, m.InstanceID)
}

// moments is how long a newly updated program is watched.
const moments = time.Second

// firstMoments waits a moment for a started machine to fail, and returns its state then.
func firstMoments(ctx context.Context, c *cli.Env, cl *client.Client, m *machine.Machine) (*machine.Machine, error) {
	if m.State != machine.Started {
		return m, nil
	}
	err := cl.Wait(ctx, m.App, m.ID, moments, machine.Stopped, machine.Restarting, machine.Destroyed)
	if err != nil && !fault.Is(err, fault.Timeout) && !fault.Is(err, fault.NotFound) {
		return nil, err
	}
	now, err := cl.Machine(ctx, m.App, m.ID)
	if fault.Is(err, fault.NotFound) {
		gone := *m
		gone.State = machine.Destroyed
		return &gone, nil
	}
	return now, err
}

// endedAtOnce returns the error of a machine whose new version has started and ended with an error. A restart by its
// restart policy still counts as such an end.
func endedAtOnce(m *machine.Machine, version, before string) error {
	if m.InstanceID != version {
		return nil // it was updated again meanwhile
	}
	for _, e := range m.Events {
		if e.Type == "update" {
			return nil
		}
		if e.Request == nil || e.Request.ExitEvent == nil || e.Request.ExitEvent.RequestedStop {
			continue
		}
		if code := e.Request.ExitEvent.ExitCode; code != 0 {
			return fault.New(fault.Precondition, codeEndedAtOnce, "version %s of %s started and ended at once, with "+
				"exit code %d; \"souk logs %s\" has what it said, and \"souk rollback %s\" goes back to version %s",
				version, cli.Label(m), code, cli.Label(m), cli.Label(m), before)
		}
	}
	return nil
}

// because returns the newest reason in events of a type, as the end of a sentence.
func because(m *machine.Machine, event string) string {
	for _, e := range m.Events {
		if e.Type == event && e.Message != "" {
			return ": " + e.Message
		}
	}
	return ""
}

// Get makes the command "souk get".
func Get(c *cli.Env) *cobra.Command {
	format := "launch"
	cmd := &cobra.Command{Use: "get MACHINE", Short: "Print what makes a machine as it is, for run and update",
		Long: `Print a machine as the launch that makes one like it, which "souk run --from" and "souk update --from" take. Ids
are left out: what it makes is another machine.

With --versions the versions that are kept are listed instead, the one that it is at and up to nine before; with
--version one of them is printed. "souk rollback" goes back to one.`,
		Example: `  souk get web > web.json
  souk get web --versions
  souk get web -o toml > web.toml && souk run -f web.toml --name web2
  souk get web -o machine | jq -r .state`,
		Args: cli.Args(1, 1, "a machine, by id or name")}
	cmd.Flags().StringVarP(&format, "output", "o", format,
		"launch, toml (a launch in TOML) or machine (all there is, in JSON)")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"launch", "toml", "machine"},
		cobra.ShellCompDirectiveNoFileComp))
	version := cmd.Flags().String("version", "", "an earlier version, by its id or the beginning of it")
	versions := cmd.Flags().Bool("versions", false, "list the versions that are kept instead")
	completeVersions(c, cmd, "version")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed("version") && (*version == "" || format == "machine") {
			return cli.Usagef("--version is the id of a version, which has a config: it goes with --output launch " +
				"and toml")
		}
		if *versions && (*version != "" || cmd.Flags().Changed("output")) {
			return cli.Usagef("--versions lists all versions: it goes neither with --version nor with --output")
		}
		cl, m, err := c.One(cmd, args[0])
		if err != nil {
			return err
		}
		if format != "machine" {
			if err := configKnown(m); err != nil {
				return err
			}
		}
		if *versions {
			return printVersions(cmd.Context(), c, cl, m)
		}
		if *version != "" {
			v, err := versionOf(cmd.Context(), cl, m, *version)
			if err != nil {
				return err
			}
			m.Config = &v.Config
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
			return fault.Wrap(err, fault.Internal, fault.CodeLaunch, "machine %s cannot be written", m.ID)
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
	o.waiting(cmd.Flags())
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
	if err := configKnown(m); err != nil {
		return err
	}
	before, err := encodeLaunch(launchOf(m), true)
	if err != nil {
		return fault.Wrap(err, fault.Internal, fault.CodeLaunch, "machine %s cannot be written", m.ID)
	}
	f, err := os.CreateTemp("", "souk-"+m.ID+"-*.toml")
	if err == nil {
		_, err = f.Write(before)
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, codeEdit, "the temporary file for the editor cannot be written")
	}
	editor := strings.Fields(cmp.Or(c.Getenv("VISUAL"), c.Getenv("EDITOR"), "vi"))
	run := exec.CommandContext(ctx, editor[0], append(editor[1:], f.Name())...)
	run.Stdin, run.Stdout, run.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := run.Run(); err != nil {
		return fault.Wrap(err, fault.Precondition, codeEdit,
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
		return fault.New(fault.KindOf(err), fault.CodeOf(err), "%s; correct %s, then run souk update %s -f %s", err,
			f.Name(), cli.Label(m), f.Name())
	}
	return os.Remove(f.Name())
}
