// Package machines has the commands for machines: souk run, ps, status, logs, exec, cp and what else is done with one.
package machines

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// RunFlags are the flags of souk run.
type RunFlags struct {
	name     string
	image    string
	region   string
	cpus     int
	cpuKind  string
	memory   int
	env      []string
	metadata []string
	volumes  []string
	restart  string
	retries  int
	rm       bool
	attach   bool
	detach   bool
	noStart  bool
	id       string
	gpus     string
	user     string
	place    placeFlags
}

const runLong = `Make a machine that runs CMD, on the worker that suits it best, and start it. The answer tells where it was
placed, why there, and how long each phase took.

CMD is executed as it stands, without a shell; write /bin/sh -c '...' to have one. The app is made when there is
none of its name. A machine's restart policy is on-failure unless --restart says otherwise, but with --attach or
--rm it is no.

With --attach the machine's output is followed until it ends, and souk's exit code is the task's own. ^C then stops
the machine; a second ^C lets go of it and leaves it running. --rm destroys the machine once it has ended.`

// Run makes the command "souk run".
func Run(c *cli.Env) *cobra.Command {
	o := new(RunFlags)
	cmd := &cobra.Command{Use: "run [flags] -- CMD [ARG...]", Short: "Make a machine and start it", Long: runLong,
		Example: `  souk run --name web -- /usr/bin/python3 -m http.server 8080
  souk run -a --rm -- /bin/sh -c 'echo hello; exit 3'
  souk run --cpus 2 --memory 512 --env MODE=fast --volume data:/data -- /opt/batch
  souk run --app shop --json -- /bin/sleep 1000 | jq -r .machine.id`,
		Args: cli.Args(1, -1, "a command to run, after --")}
	f := cmd.Flags()
	o.Shape(f)
	f.StringVar(&o.id, "id", "", "the machine's id, as a plan told it (default: one is drawn)")
	f.BoolVar(&o.rm, "rm", false, "destroy the machine once it has ended")
	f.BoolVarP(&o.attach, "attach", "a", false, "follow its output and end as it ends")
	f.BoolVarP(&o.detach, "detach", "d", false, "answer when it is started (the default)")
	cmd.RunE = func(cmd *cobra.Command, argv []string) error {
		if o.attach && (o.detach || o.noStart) {
			return cli.Usagef("--attach follows a machine that runs, so it does not go with --detach or --no-start")
		}
		return doRun(cmd.Context(), c, o, argv)
	}
	return cmd
}

// Shape adds the flags that say what the machine is to be, and where.
func (o *RunFlags) Shape(f *pflag.FlagSet) {
	f.SetInterspersed(false) // what follows the command's name is the command's
	f.StringVar(&o.name, "name", "", "the machine's name, unique in its app (default: one is made up)")
	f.StringVar(&o.image, "image", "souk/host", "the image; souk/host is the worker's own files")
	f.StringVar(
		&o.region,
		"region",
		"",
		"the region, or several in order of preference: iad,dfw,any (default: the nearest)",
	)
	f.IntVar(&o.cpus, "cpus", 1, "how many CPUs")
	f.StringVar(&o.cpuKind, "cpu-kind", "shared", "shared or performance")
	f.IntVar(&o.memory, "memory", 0, "memory in MB (default: the least its CPUs allow)")
	f.StringVar(&o.gpus, "gpus", "", "COUNT or KIND:COUNT, whole GPUs; the machine finds their numbers in SOUK_GPUS")
	o.place.add(f)
	f.StringArrayVarP(&o.env, "env", "e", nil,
		"an environment variable, NAME=VALUE, or NAME for its value here; repeatable")
	f.StringArrayVar(&o.metadata, "metadata", nil, "KEY=VALUE; repeatable")
	f.StringArrayVar(&o.volumes, "volume", nil,
		"VOLUME:PATH, the id or name of a volume and where it is shown; repeatable")
	f.StringVar(&o.user, "user", "",
		"whom it runs as, USER or USER:GROUP of the worker's host (default: a user of its own, where souk is root); "+
			"root only where the worker allows it")
	f.StringVar(&o.restart, "restart", "", "no, on-failure or always")
	f.IntVar(&o.retries, "retries", 0, "with --restart on-failure: how often (default 10)")
	f.BoolVar(&o.noStart, "no-start", false, "make it but do not start it")
}

func doRun(ctx context.Context, c *cli.Env, o *RunFlags, argv []string) error {
	cl, err := c.Client()
	if err != nil {
		return err
	}
	app := c.AppOrDefault()
	l, err := LaunchOf(ctx, c, cl, app, o, argv)
	if err != nil {
		return err
	}
	begin := time.Now()
	m, err := launch(ctx, c, cl, app, l)
	took := time.Since(begin)
	if err != nil {
		return err
	}
	if o.attach {
		return attach(ctx, c, cl, m, took, o.rm)
	}
	if c.JSON {
		c.JSONLine(c.Out, launched{m, float64(took) / 1e6})
	} else {
		printLaunch(c, m, took)
	}
	return launchFailed(m)
}

// launched is what run prints in --json.
type launched struct {
	Machine     *machine.Machine `json:"machine"`
	RoundTripMS float64          `json:"round_trip_ms"` // from the request to its answer, as the client saw it
}

// launch creates the machine, and first its app when there is none: that costs a round trip only the first time. The
// key makes it safe that net/http or a user's script sends the request twice.
func launch(ctx context.Context, c *cli.Env, cl *client.Client, app string,
	l *machine.Launch) (*machine.Machine, error) {
	defer c.Progress("placing and starting the machine")()
	o := client.LaunchOptions{Key: rand.Text()}
	m, err := cl.Launch(ctx, app, l, o)
	if fault.Is(err, fault.NotFound) && l.Config != nil {
		if _, missing := cl.App(ctx, app); !fault.Is(missing, fault.NotFound) {
			return nil, err // the app is there: something else was not found
		}
		if _, made := cl.CreateApp(ctx, app); made != nil && !AppExists(made) {
			return nil, made
		}
		m, err = cl.Launch(ctx, app, l, o)
	}
	if err != nil {
		return nil, err
	}
	return cli.Owned(m, app), nil
}

// AppExists says that somebody else made the app in the meantime, which is as good.
func AppExists(err error) bool {
	a, ok := fault.As(err).Detail.(client.ErrorAnswer)
	return ok && a.Status == "name_taken"
}

// LaunchOf makes the request from the flags.
func LaunchOf(ctx context.Context, c *cli.Env, cl *client.Client, app string, o *RunFlags,
	argv []string) (*machine.Launch, error) {
	env, err := KeyValues("--env", o.env, c.Getenv)
	if err != nil {
		return nil, err
	}
	meta, err := KeyValues("--metadata", o.metadata, nil)
	if err != nil {
		return nil, err
	}
	mounts, err := mountsOf(ctx, cl, app, o.volumes)
	if err != nil {
		return nil, err
	}
	policy := o.restart
	if policy == "" && (o.attach || o.rm) {
		policy = "no"
	}
	cfg := &machine.Config{Image: o.image, Init: machine.Init{Exec: argv}, Env: env, Metadata: meta, Mounts: mounts,
		Guest:       &machine.Guest{CPUKind: o.cpuKind, CPUs: o.cpus, MemoryMB: o.memory},
		AutoDestroy: o.rm && !o.attach, // attached, the output is read to its end first, then the client destroys it
	}
	if o.memory == 0 {
		cfg.Guest.MemoryMB = LeastMemory(o.cpuKind) * max(o.cpus, 1)
	}
	if o.user != "" {
		cfg.Processes = []machine.ProcessConfig{{User: o.user}}
	}
	if o.gpus != "" {
		kind, count, both := strings.Cut(o.gpus, ":")
		if !both {
			kind, count = "", o.gpus
		}
		if cfg.Guest.GPUs, err = strconv.Atoi(count); err != nil {
			return nil, cli.Usagef("--gpus is written COUNT or KIND:COUNT, not %q", o.gpus)
		}
		cfg.Guest.GPUKind = kind
	}
	sched, err := o.place.scheduling()
	if err != nil {
		return nil, err
	}
	if policy != "" || o.retries != 0 {
		cfg.Restart = &machine.Restart{Policy: policy, MaxRetries: o.retries}
	}
	return &machine.Launch{
		ID:         o.id,
		Name:       o.name,
		Region:     o.region,
		Config:     cfg,
		SkipLaunch: o.noStart,
		Scheduling: sched,
	}, nil
}

// LeastMemory is what the Machines API allows per CPU at least, in MB.
func LeastMemory(kind string) int {
	if kind == "performance" {
		return 2048
	}
	return 256
}

// KeyValues reads KEY=VALUE flags. With lookup, a KEY alone takes its value from there.
func KeyValues(flag string, list []string, lookup func(string) string) (map[string]string, error) {
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
			v = lookup(k)
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

// PickVolume finds a volume by id, or by a name only one volume has; of several of one name, the one that is free.
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
		return machine.Volume{}, fault.New(fault.NotFound, "volume",
			"app %s has no volume with the id or the name %q; \"souk volumes\" lists them, \"souk volumes create "+
				"NAME\" makes one", app, ref)
	}
	return machine.Volume{}, fault.New(fault.Conflict, "ambiguous",
		"%d volumes of app %s are named %q; give the id of one", len(named), app, ref)
}

// printLaunch tells where the machine was placed, why, and where the time went.
func printLaunch(c *cli.Env, m *machine.Machine, took time.Duration) {
	fmt.Fprintf(c.Out, "%s (%s) is %s\n", cli.Label(m), m.ID, m.State)
	fmt.Fprintf(c.Out, "  where  worker %s, region %s\n", m.Worker, m.Region)
	if m.Placement != nil {
		fmt.Fprintf(c.Out, "  why    %s\n", m.Placement.Reason)
	}
	fmt.Fprintf(c.Out, "  took   %s, %s\n", cli.Millis(took), phasesText(m.Phases))
	if m.Config != nil && len(m.Config.Mounts) > 0 && os.Geteuid() != 0 && c.Getenv("SOUK_TOKEN") == "" {
		// The token is this user's own file, so souk runs as this user.
		fmt.Fprintf(c.Out, "  note   souk is not root: volumes are below the machine's directory (%s), not at %s\n",
			"."+m.Config.Mounts[0].Path, m.Config.Mounts[0].Path)
	}
	fmt.Fprintf(c.Out, "  next   souk logs -f %s\n", cli.Label(m))
}

// phasesText prints the worker's phases in the order they happen; those not known here come last, by name.
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
		return "whose phases the worker did not measure"
	case phases["total"] == "":
		return "in the worker: " + strings.Join(parts, ", ")
	}
	return fmt.Sprintf("%s of it in the worker: %s", text("total"), strings.Join(parts, ", "))
}

// launchFailed returns the error of a machine that was made but did not start.
func launchFailed(m *machine.Machine) error {
	if m.State != machine.Failed {
		return nil
	}
	return fault.New(fault.Precondition, "failed", "%s was made but could not be started%s", cli.Label(m), m.Because())
}
