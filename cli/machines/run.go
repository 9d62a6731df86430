// Package machines has the commands for machines: souk run, ps, status, logs, exec, cp and the other verbs.
package machines

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/cli/releases"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

const runLong = `Make a machine on the worker that suits it best, and start it. The answer tells where it was placed, why
there, and how long each phase took.

With IMAGE it is a container of that image, such as nginx or ghcr.io/me/app:1.2: a worker that has the image already is
preferred, any other pulls it first, and the machine keeps that very image until it is updated. CMD then takes the place
of the image's own. Without IMAGE, after --, CMD is a program of the worker's host.

CMD is executed as it stands, without a shell; write /bin/sh -c '...' to have one. With -f a file says what the
machine is to be, in the JSON of the Machines API or in TOML, as "souk get" prints it; flags and a CMD go before it.
The app is made when there is none of its name. A machine's restart policy is on-failure unless --restart says otherwise, but with --attach or
--rm it is no.

With --attach the machine's output is followed until it ends, and souk's exit code is the task's own. ^C then stops
the machine; a second ^C does not wait for its end (with --rm the machine is destroyed then). It goes on when souk is
started anew meanwhile. A machine has no stdin but by a terminal: a pipe or a file is refused. --rm destroys the machine
once it has ended.

With --replicas souk keeps so many machines of the app, each like this one: it makes a release ("souk releases APP" lists
them), in which the machines are one group, and waits until they are ready (with --detach it answers when the release is
written down). The groups that the app has beside it stay. ^C ends the waiting alone.

With -t the machine has a terminal; with -it it is this one, from the first line on: ^C is the program's, and the exit
code is too. Ctrl-P Ctrl-Q (--detach-keys) leaves it running, "souk attach" comes back to it, from here or elsewhere,
and what it writes is in "souk logs". -itd makes it and stays here. A machine that was left is not destroyed by --rm.`

// Run makes the command "souk run".
func Run(c *cli.Env) *cobra.Command {
	o := new(RunFlags)
	cmd := &cobra.Command{
		Use:   "run [flags] {IMAGE [CMD [ARG...]] | -- CMD [ARG...]}",
		Short: "Make a machine and start it",
		Long:  runLong,
		Example: `  souk run --name web nginx:1.29
  souk run -a --rm alpine -- sh -c 'echo hello; exit 3'
  souk run --name web -- /usr/bin/python3 -m http.server 8080
  souk run -a --rm -- /bin/sh -c 'echo hello; exit 3'
  souk run -it --rm -- /bin/bash
  souk run --name hello --http :8080 -- /usr/bin/python3 -m http.server 8080
  souk run --name web --http :80 --autostop suspend --create-up-to 5 --warm 2 nginx:1.29
  souk run --cpus 2 --memory 1g --env MODE=fast --volume data:/data -- /opt/batch
  souk run -f launch.toml --name web --count 3
  souk run --app shop --replicas 3 --group web nginx:1.29
  souk run --app shop --json -- /bin/sleep 1000 | jq -r .machine.id`,
		Args: cobra.ArbitraryArgs,
	}
	f := cmd.Flags()
	o.Shape(f)
	f.StringVar(&o.id, "id", "", "the machine's id, as a plan told it (default: one is drawn)")
	f.BoolVar(&o.rm, "rm", false, "destroy the machine once it has ended")
	f.BoolVarP(&o.attach, "attach", "a", false, "follow its output and end as it ends")
	f.BoolVarP(&o.detach, "detach", "d", false, "answer when it is started (the default)")
	f.BoolVarP(&o.tty, "tty", "t", false, "give it a terminal")
	f.BoolVarP(&o.typing, "interactive", "i", false, "with -t: make this terminal the machine's")
	addDetachKeys(f, &o.keys)
	f.IntVar(&o.count, "count", 1, "how many machines, all alike; a name gets their numbers: web-1, web-2")
	o.addReplicas(cmd)
	cmd.RunE = func(cmd *cobra.Command, argv []string) error {
		if err := o.meant(cmd, argv); err != nil {
			return err
		}
		if err := o.meantReplicas(); err != nil {
			return err
		}
		argv, err := o.takeImage(cmd, argv)
		if err != nil {
			return err
		}
		if o.attach && (o.detach || o.noStart) {
			return cli.Usagef("--attach follows a machine that runs, so it does not go with --detach or --no-start")
		}
		if o.sits() {
			switch {
			case !o.tty:
				return cli.Usagef("-i is for a machine with a terminal: a machine has no other stdin; say -it, or " +
					"give the input to \"souk exec\"")
			case c.JSON || o.noStart || o.count > 1 || o.from == "-":
				return cli.Usagef("-it makes this terminal that of one machine that runs, so it does not go with " +
					"--json, --no-start, --count and -f -")
			}
			if _, err := detachKeys(o.keys); err != nil {
				return err
			}
		}
		return doRun(cmd.Context(), c, o, argv)
	}
	return cmd
}

func doRun(ctx context.Context, c *cli.Env, o *RunFlags, argv []string) error {
	if o.sits() {
		if err := c.CheckConsole(true); err != nil { // check only: it is taken once there is a machine
			return err
		}
	}
	if o.attach && o.from != "-" && !o.sits() {
		if err := c.RefuseStdin("a machine"); err != nil {
			return err
		}
	}
	cl, err := c.Client()
	if err != nil {
		return err
	}
	app := c.AppOrDefault()
	l, err := LaunchOf(ctx, c, cl, app, o, argv)
	if err != nil {
		return err
	}
	if o.set.Changed("replicas") {
		return runReplicas(ctx, c, cl, app, l, o)
	}
	if o.count > 1 {
		return runSeveral(ctx, c, cl, app, l, o.count)
	}
	l.Attach = o.attach || o.sits()
	begin := time.Now()
	m, err := launch(ctx, c, cl, app, l)
	took := time.Since(begin)
	if err != nil {
		if o.asked && !strings.ContainsAny(o.image, "/:") {
			c.Note("%s was taken for an image; for a program of the host put -- before it", o.image)
		}
		return err
	}
	noteWarnings(c, m)
	if o.sits() {
		return sitAt(ctx, c, cl, m, took, o)
	}
	if o.attach {
		defer func() {
			if c.StdinHolds(0) {
				c.Note("what came in on stdin was read by nobody: a machine has no stdin")
			}
		}()
		return attach(ctx, c, cl, m, took, o.rm)
	}
	if c.JSON {
		c.JSONLine(c.Out, launched{m, float64(took) / 1e6})
	} else {
		printLaunch(ctx, c, cl, m, took)
	}
	return launchFailed(m)
}

// meant refuses an incomplete run: no command and no file, or a file in place of the command.
func (o *RunFlags) meant(cmd *cobra.Command, argv []string) error {
	if o.from == "" {
		least := 1
		if o.image != "" {
			least = 0
		}
		if err := cli.Args(least, -1, "an image to run, or a command of the host after --")(cmd, argv); err != nil {
			return err
		}
	}
	if err := NotAVerb(cmd, argv, "souk ps"); err != nil {
		return err
	}
	if _, err := KeyValues("--env", o.env, os.LookupEnv); err != nil {
		return err
	}
	if err := o.http.apply("", &machine.Launch{Config: new(machine.Config)}); err != nil {
		return err // before any request
	}
	if len(argv) == 1 && cmd.ArgsLenAtDash() < 0 {
		if ext := filepath.Ext(argv[0]); ext == ".json" || ext == ".toml" {
			return cli.Usagef("%s is where the command is to be; a launch in a file is run by \"souk run -f %s\"",
				argv[0], argv[0])
		}
	}
	if o.count < 1 || o.count > 1 && (o.attach || o.id != "") {
		return cli.Usagef("--count is 1 or more, and more than one go neither with --attach nor with --id")
	}
	return nil
}

// takeImage takes the image from the front of the arguments, if there is one, and returns the command after it. A path
// is a program of the host, not an image.
func (o *RunFlags) takeImage(cmd *cobra.Command, argv []string) ([]string, error) {
	if len(argv) == 0 || cmd.ArgsLenAtDash() >= 0 || o.from != "" || o.image != "" ||
		argv[0][:min(1, len(argv[0]))] == "/" ||
		strings.HasPrefix(argv[0], ".") {
		return argv, nil
	}
	o.image, o.asked = argv[0], true
	if err := machine.CheckImage(o.image); err != nil {
		return nil, cli.Usagef("%s; a program of the host goes after --", fault.As(err).Text)
	}
	rest := argv[1:]
	switch {
	case len(rest) == 0:
	case rest[0] == "--":
		rest = rest[1:]
	case strings.HasPrefix(rest[0], "-"):
		return nil, cli.Usagef(
			"%s stands behind the image %s: a flag of souk goes before the image, one of the image's "+
				"program behind \"--\"",
			rest[0],
			o.image,
		)
	}
	return rest, nil
}

// NotAVerb refuses a command line with a verb of souk in place of a program, as in "souk gang ls".
func NotAVerb(cmd *cobra.Command, argv []string, see string) error {
	if len(argv) == 0 || cmd.ArgsLenAtDash() >= 0 {
		return nil
	}
	switch argv[0] {
	case "ls", "list", "ps", "status", "stop", "rm", "destroy", "logs", "wait", "help":
		return cli.Usagef("%s runs a program, and %q stands where it is to be; see \"%s\", or put -- before the "+
			"program", cmd.CommandPath(), argv[0], see)
	}
	return nil
}

// runSeveral makes machines that differ in their names alone, some at a time, and prints each outcome.
func runSeveral(ctx context.Context, c *cli.Env, cl *client.Client, app string, l *machine.Launch, n int) error {
	var g errgroup.Group
	g.SetLimit(8)
	var mu sync.Mutex
	var failed []error
	warned := false
	for i := range n {
		mu.Lock()
		same := len(failed) == 1 && refusesAll(failed[0])
		mu.Unlock()
		if same {
			break
		}
		one := *l
		if l.Name != "" {
			one.Name = fmt.Sprintf("%s-%d", l.Name, i+1)
		}
		g.Go(func() error {
			begin := time.Now()
			m, err := launch(ctx, c, cl, app, &one)
			if err == nil {
				err = launchFailed(m)
			}
			mu.Lock()
			defer mu.Unlock()
			if err == nil && !warned {
				warned = true // all machines have the same warnings
				noteWarnings(c, m)
			}
			switch {
			case err != nil && len(failed) > 0 && refusesAll(failed[0]): // the same error was printed already
			case err != nil && refusesAll(err):
				failed = []error{err}
				c.PrintError(err)
			case err != nil:
				failed = append(failed, err)
				c.PrintError(fmt.Errorf("%s: %w", cmp.Or(one.Name, fmt.Sprintf("machine %d", i+1)), err))
			case c.JSON:
				c.JSONLine(c.Out, launched{m, float64(time.Since(begin)) / 1e6})
			default:
				fmt.Fprintf(c.Out, "%s (%s) is %s on %s\n", cli.Label(m), m.ID, m.State, m.Worker)
			}
			return nil
		})
	}
	_ = g.Wait() // each has printed its error
	if len(failed) > 0 {
		return cli.Several{Errs: failed}
	}
	return nil
}

// refusesAll reports whether equal launches would be refused for the same reason.
func refusesAll(err error) bool { return fault.Is(err, fault.Invalid) || fault.Is(err, fault.Denied) }

// launched is what run prints in --json.
type launched struct {
	Machine     *machine.Machine `json:"machine"`
	RoundTripMS float64          `json:"round_trip_ms"` // from the request to its answer, as the client saw it
}

// freshKey returns options with a new key, for a create that was not sent before.
func freshKey() client.LaunchOptions {
	return client.LaunchOptions{Key: rand.Text(), NewKey: true, Drawn: time.Now()}
}

// launch creates the machine. If its app does not exist it creates that and tries again, so the app costs round trips
// only the first time. The key makes it safe for net/http to send the request twice. Without the app nothing was made,
// so the second try is a new create with a new key.
func launch(ctx context.Context, c *cli.Env, cl *client.Client, app string,
	l *machine.Launch) (*machine.Machine, error) {
	defer c.Progress("placing and starting the machine")()
	m, err := cl.Launch(ctx, app, l, freshKey())
	if fault.Is(err, fault.NotFound) && l.Config != nil && fault.CodeOf(err) == fault.CodeAppNotFound {
		// If the app exists now, another client has just made it.
		if _, missing := cl.App(ctx, app); fault.Is(missing, fault.NotFound) {
			if made := releases.MakeApp(ctx, cl, app); made != nil {
				return nil, made
			}
		}
		m, err = cl.Launch(ctx, app, l, freshKey())
	}
	if err != nil {
		return nil, err
	}
	if m = cli.Owned(m, app); m.Begun != nil && m.Begun.Until == machine.Started {
		if m, err = awaitLaunch(ctx, c, cl, m); err != nil {
			return nil, err
		}
	}
	return m, m.LaunchError() // the error if the worker has given up by then
}

// noteWarnings prints the warnings on the machine's version on stderr.
func noteWarnings(c *cli.Env, m *machine.Machine) {
	for _, w := range m.Warned() {
		c.Note("warning: %s", w)
	}
}

// awaitLaunch waits for a machine whose image pull takes longer than its worker waits.
func awaitLaunch(ctx context.Context, c *cli.Env, cl *client.Client, m *machine.Machine) (*machine.Machine, error) {
	now, err := waitStates(ctx, c, cl, m, 0, machine.Started, machine.Stopped, machine.Failed, machine.Destroyed)
	if err == nil && now.State == machine.Destroyed && !now.LaunchFailed() && !m.Config.AutoDestroy {
		return nil, fault.New(fault.Precondition, machine.CodeLaunchFailed, "%s could not be made%s", cli.Label(m),
			now.Because())
	}
	return now, err
}

// KeyValues reads KEY=VALUE flags. With lookup, a KEY alone takes its value from lookup, and is left out if that has
// none.
func KeyValues(flag string, list []string, lookup func(string) (string, bool)) (map[string]string, error) {
	if len(list) == 0 {
		return nil, nil
	}
	kv := make(map[string]string, len(list))
	for _, s := range list {
		k, v, has := strings.Cut(s, "=")
		switch {
		case k == "" || (!has && lookup == nil):
			return nil, cli.Usagef("%s is written NAME=VALUE, not %q", flag, s)
		case !has:
			if v, has = lookup(k); !has {
				continue // unset here, unset there
			}
		}
		kv[k] = v
	}
	return kv, nil
}

// mountsOf reads VOLUME:PATH flags. A volume is named by its id or its name, exactly.
func mountsOf(ctx context.Context, cl *client.Client, app string, list []string) ([]machine.Mount, error) {
	if len(list) == 0 {
		return nil, nil
	}
	vs, err := cl.Volumes(ctx, app)
	if err != nil {
		return nil, err
	}
	var mounts []machine.Mount
	for _, s := range list {
		ref, path, has := strings.Cut(s, ":")
		if !has || ref == "" || !strings.HasPrefix(path, "/") {
			return nil, cli.Usagef("--volume is written VOLUME:/PATH, not %q", s)
		}
		v, err := PickVolume(vs, ref, app)
		if err != nil {
			return nil, err
		}
		mounts = append(mounts, machine.Mount{Volume: v.ID, Path: path})
	}
	return mounts, nil
}

// PickVolume finds a volume by id, or by a unique name; of several with one name, the only free one.
func PickVolume(vs []machine.Volume, ref, app string) (machine.Volume, error) {
	var named, free []machine.Volume
	for _, v := range vs {
		if v.ID == ref {
			return v, nil
		}
		if v.Name == ref {
			named = append(named, v)
			if v.AttachedMachine == nil || *v.AttachedMachine == "" {
				free = append(free, v)
			}
		}
	}
	switch {
	case len(named) == 1:
		return named[0], nil
	case len(free) == 1:
		return free[0], nil
	case len(named) == 0:
		return machine.Volume{}, fault.New(fault.NotFound, fault.CodeVolume,
			"app %s has no volume with the id or the name %q; \"souk volumes\" lists them, \"souk volumes create "+
				"NAME\" makes one", app, ref)
	}
	return machine.Volume{}, fault.New(fault.Conflict, fault.CodeAmbiguous,
		"%d volumes of app %s are named %q; give the id of one", len(named), app, ref)
}

// printLaunch prints where the machine was placed, why, and the phases of its launch.
func printLaunch(ctx context.Context, c *cli.Env, cl *client.Client, m *machine.Machine, took time.Duration) {
	fmt.Fprintf(c.Out, "%s (%s) is %s\n", cli.Label(m), m.ID, m.State)
	fmt.Fprintf(c.Out, "  where  worker %s, region %s\n", m.Worker, m.Region)
	if m.Placement != nil {
		fmt.Fprintf(c.Out, "  why    %s\n", m.Placement.Reason)
	}
	fmt.Fprintf(c.Out, "  took   %s%s\n", cli.Millis(took), phasesText(m.Phases))
	if m.Config != nil && len(m.Config.Mounts) > 0 && os.Geteuid() != 0 && c.Getenv("SOUK_TOKEN") == "" {
		// The token's file is this user's, so souk runs as this user.
		fmt.Fprintf(c.Out, "  note   souk is not root: volumes are below the machine's directory (%s), not at %s\n",
			"."+m.Config.Mounts[0].Path, m.Config.Mounts[0].Path)
	}
	if curl := curlOf(ctx, cl, m); curl != "" {
		fmt.Fprintf(c.Out, "  next   %s\n", curl)
	}
	next := "logs -f"
	if m.State == machine.Created {
		next = "start"
	}
	app := ""
	if given := c.AppGiven(); given != "" && c.Getenv("SOUK_APP") != given { // other apps may have this name
		app = " --app " + given
	}
	fmt.Fprintf(c.Out, "  next   souk %s %s%s\n", next, cli.Label(m), app)
}

// phasesText prints the worker's phases in the order they happen; unknown ones come last, by name.
func phasesText(phases map[string]string) string {
	order := map[string]int{"journal": 1, "prepare": 2, "launch": 3}
	var names []string
	for n := range phases {
		if n != "total" {
			names = append(names, n)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(cmp.Or(order[a], 9), cmp.Or(order[b], 9)), cmp.Compare(a, b))
	})
	text := func(phase string) string {
		d, err := time.ParseDuration(phases[phase])
		if err != nil {
			return phases[phase]
		}
		return cli.Millis(d)
	}
	parts := make([]string, len(names))
	for i, n := range names {
		parts[i] = n + " " + text(n)
	}
	switch {
	case len(parts) == 0:
		return ""
	case phases["total"] == "":
		return ", in the worker: " + strings.Join(parts, ", ")
	}
	return fmt.Sprintf(", %s of it in the worker: %s", text("total"), strings.Join(parts, ", "))
}

// launchFailed returns the error of a machine that was made but did not start.
func launchFailed(m *machine.Machine) error {
	if m.State != machine.Failed {
		return nil
	}
	return fault.New(fault.Precondition, codeFailed,
		"%s was made but could not be started%s", cli.Label(m), m.Because())
}
