package machines

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"
	"github.com/spf13/pflag"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// RunFlags are the flags that describe a machine and its placement. They are the same for run, gang, plan and update.
type RunFlags struct {
	set   *pflag.FlagSet // says which of them were given
	from  string
	name  string
	image string

	entrypoint string
	asked      bool // the image is the first argument

	region   string
	cpus     int
	cpu      cli.CPU
	cpuKind  string
	memory   cli.Size
	disk     cli.Size
	extras   []string
	env      []string
	envFiles []string
	metadata []string
	volumes  []string
	files    []string
	restart  string
	retries  int
	schedule string
	signal   string
	grace    time.Duration
	rm       bool
	tty      bool
	readOnly bool
	runtime  string
	typing   bool
	keys     string
	attach   bool
	detach   bool
	noStart  bool
	count    int
	replicas replicaFlags
	id       string
	gpus     string
	user     string
	place    placeFlags
	network  networkFlags
	http     httpFlags
}

// Shape adds the flags that describe the machine and its placement.
func (o *RunFlags) Shape(f *pflag.FlagSet) {
	o.set = f
	f.SetInterspersed(false) // flags after the command's name belong to the command
	f.StringVarP(&o.from, "from", "f", "",
		"a file with the launch, in JSON or TOML (NAME.toml), \"-\" being stdin; flags go before what it says")
	f.StringVar(&o.name, "name", "", "the machine's name, unique in its app (default: one is made up)")
	f.StringVar(
		&o.image,
		"image",
		"",
		"the image, in the place of IMAGE (default: souk/host, the worker's own programs)",
	)
	f.StringVar(&o.entrypoint, "entrypoint", "",
		"a program of the image to run in the place of its own, with CMD; '': CMD is the program")
	f.StringVar(&o.region, "region", "",
		"the region, or several in order of preference: iad,dfw,any (default: the nearest)")
	f.Var(&o.cpu, "cpu", "CPU in cores, such as 0.3 or 2, in the place of --cpus")
	f.IntVar(&o.cpus, "cpus", 1, "how many CPUs of the kind: a sixteenth of a core each, or a core each")
	f.StringVar(&o.cpuKind, "cpu-kind", "",
		"shared, which may use what others leave, or performance, which is a limit (default shared; with --cpu "+
			"performance)")
	f.Var(&o.memory, "memory", "memory, such as 40m or 2g; MB without a unit (default: 256m, or what its CPUs bring)")
	f.Var(&o.disk, "disk", "room on the worker's disk, in whole GB, such as 10g")
	f.StringArrayVar(&o.extras, "extra", nil, "NAME=COUNT of what the operator has named so; repeatable")
	f.StringVar(&o.gpus, "gpus", "", "COUNT or KIND:COUNT, whole GPUs; the machine finds their numbers in SOUK_GPUS")
	o.place.add(f)
	o.network.add(f)
	o.http.add(f)
	f.StringArrayVarP(&o.env, "env", "e", nil,
		"an environment variable, NAME=VALUE, or NAME for its value here; repeatable")
	f.StringArrayVar(&o.envFiles, "env-file", nil,
		"a file of variables, read as a .env (\"souk secrets import --help\" says how); repeatable")
	f.StringArrayVar(&o.metadata, "metadata", nil, "KEY=VALUE; repeatable")
	f.StringArrayVar(&o.volumes, "volume", nil,
		"VOLUME:PATH, the id or name of a volume and where it is shown; repeatable")
	f.StringArrayVar(&o.files, "file", nil,
		"PATH=FILE: the machine finds at PATH what FILE holds here; repeatable")
	f.StringVar(&o.user, "user", "",
		"whom it runs as, USER or USER:GROUP of the worker's host (default: a user of its own, where souk is root); "+
			"root only where the worker allows it")
	f.StringVar(&o.restart, "restart", "", "no, on-failure or always")
	f.IntVar(&o.retries, "retries", 0, "with --restart on-failure: how often (default 10)")
	f.StringVar(&o.schedule, "schedule", "", "start it hourly, daily, weekly or monthly")
	f.StringVar(&o.signal, "stop-signal", "", "the signal that a stop sends first (default: the image's, else SIGINT)")
	f.BoolVar(&o.readOnly, "read-only", false,
		"the image's files cannot be written over; /run, /tmp and /var/tmp are in memory then")
	f.StringVar(&o.runtime, "runtime", "", "the OCI runtime that makes its container, as runsc, whose machines have a "+
		"kernel of their own (default: the worker's first)")
	f.DurationVar(&o.grace, "stop-grace", 0,
		"how long the signal may take before the machine is killed; 0s: at once (default 5s)")
	f.BoolVar(&o.noStart, "no-start", false, "make it but do not start it")
}

// From makes the launch start from a file.
func (o *RunFlags) From(file string) { o.from = file }

// HasFile reports whether the launch starts from a file.
func (o *RunFlags) HasFile() bool { return o.from != "" }

// LaunchOf makes the launch from a file, if given, the flags, and a command, which is optional if the file has one.
// Flags override the file.
func LaunchOf(ctx context.Context, c *cli.Env, cl *client.Client, app string, o *RunFlags,
	argv []string) (*machine.Launch, error) {
	l := &machine.Launch{Config: &machine.Config{Image: machine.HostImage}}
	if o.from != "" {
		var err error
		if l, err = ReadLaunch(c, o.from); err != nil {
			return nil, err
		}
	}
	return l, o.apply(ctx, c, cl, app, l, argv)
}

// applyCommand sets what to run. For an image the command is the arguments of the image's own program.
func (o *RunFlags) applyCommand(init *machine.Init, host bool, argv []string) error {
	given := o.set.Changed("entrypoint")
	switch {
	case given && host:
		return cli.Usagef("--entrypoint is of an image; of the host's programs name one after --")
	case given && o.entrypoint == "" && len(argv) == 0:
		return cli.Usagef("--entrypoint '' runs the image without its own program: name the one to run after the " +
			"image")
	case given:
		init.Exec, init.Entrypoint, init.Cmd = nil, []string{o.entrypoint}, argv
	case len(argv) == 0:
	case host:
		init.Exec, init.Entrypoint, init.Cmd = argv, nil, nil
	default:
		init.Exec, init.Cmd = nil, argv
	}
	return nil
}

// apply sets the given flags and the command in a launch.
func (o *RunFlags) apply(ctx context.Context, c *cli.Env, cl *client.Client, app string, l *machine.Launch,
	argv []string) error {
	if l.Config == nil {
		l.Config = new(machine.Config)
	}
	if o.image != "" {
		l.Config.Image = o.image
	}
	if err := o.applyCommand(&l.Config.Init, machine.IsHostImage(l.Config.Image), argv); err != nil {
		return err
	}
	l.ID = cmp.Or(o.id, l.ID)
	o.text("name", o.name, &l.Name)
	o.text("region", o.region, &l.Region)
	l.SkipLaunch = l.SkipLaunch || o.noStart
	if err := o.applyShape(l.Config); err != nil {
		return err
	}
	if err := o.applyEnv(c, l.Config); err != nil {
		return err
	}
	if err := o.applyFiles(ctx, cl, app, l.Config); err != nil {
		return err
	}
	if err := o.applyLife(l.Config); err != nil {
		return err
	}
	o.network.apply(l.Config)
	if err := o.http.apply(app, l); err != nil {
		return err
	}
	sched, err := o.place.scheduling()
	if err == nil && sched != nil {
		l.Scheduling = over(l.Scheduling, sched)
		if o.set.Changed("priority") { // 0 is a value, too
			l.Scheduling.Priority = o.place.priority
		}
	}
	return err
}

// text sets a given flag. An empty value unsets the file's.
func (o *RunFlags) text(flag, value string, into *string) {
	if o.set.Changed(flag) {
		*into = value
	}
}

func (o *RunFlags) applyShape(cfg *machine.Config) error {
	if o.disk != 0 {
		if o.disk%1024 != 0 {
			return cli.Usagef("--disk is whole GB, such as 10g, not %d MB", o.disk)
		}
		if cfg.Rootfs == nil {
			cfg.Rootfs = new(machine.Rootfs)
		}
		cfg.Rootfs.SizeGB = uint64(o.disk / 1024)
	}
	if cfg.Guest == nil && cfg.Size == "" {
		cfg.Guest = &machine.Guest{CPUKind: o.cpuKind}
	}
	g := cfg.Guest
	flags := []string{"cpu", "cpus", "cpu-kind", "memory", "gpus", "extra"}
	if g == nil && slices.ContainsFunc(flags, o.set.Changed) {
		return cli.Usagef("the launch has the size %q, which does not go with --cpu, --cpus, --cpu-kind, --memory, "+
			"--gpus and --extra", cfg.Size)
	}
	if g == nil {
		return nil
	}
	if err := o.applyGuest(g); err != nil {
		return err
	}
	cfg.Normalize()
	return nil
}

// applyGuest sets the shape from the given flags.
func (o *RunFlags) applyGuest(g *machine.Guest) error {
	if err := CPUFlags(o.set, o.cpus, o.cpu, &g.CPUs, &g.CPUMilli); err != nil {
		return err
	}
	if o.set.Changed("cpu-kind") {
		g.CPUKind = o.cpuKind
	}
	if o.memory != 0 {
		g.MemoryMB = int(o.memory)
	}
	for _, x := range o.extras {
		name, count, _ := strings.Cut(x, "=")
		n, err := strconv.ParseInt(count, 10, 64)
		if err != nil {
			return cli.Usagef("--extra is written NAME=COUNT, with a whole number, not %q", x)
		}
		if g.Extras == nil {
			g.Extras = map[string]int64{}
		}
		g.Extras[name] = n
	}
	if o.set.Changed("gpus") {
		var err error
		if g.GPUs, g.GPUKind, err = ParseGPUs(o.gpus); err != nil {
			return err
		}
	}
	return nil
}

// ParseGPUs reads the value of --gpus: COUNT or KIND:COUNT.
func ParseGPUs(text string) (count int, kind string, err error) {
	kind, digits, both := strings.Cut(text, ":")
	if !both {
		kind, digits = "", text
	}
	if count, err = strconv.Atoi(digits); err != nil || both && kind == "" {
		return 0, "", cli.Usagef("--gpus is written COUNT or KIND:COUNT, not %q", text)
	}
	return count, kind, nil
}

func (o *RunFlags) applyEnv(c *cli.Env, cfg *machine.Config) error {
	merge := func(into *map[string]string, from map[string]string) {
		if *into == nil && len(from) > 0 {
			*into = map[string]string{}
		}
		maps.Copy(*into, from)
	}
	for _, name := range o.envFiles {
		vars, err := c.EnvFile(name)
		if err != nil {
			return err
		}
		for _, v := range vars {
			merge(&cfg.Env, map[string]string{v.Name: v.Value})
		}
	}
	env, err := KeyValues("--env", o.env, os.LookupEnv)
	if err != nil {
		return err
	}
	merge(&cfg.Env, env)
	meta, err := KeyValues("--metadata", o.metadata, nil)
	merge(&cfg.Metadata, meta)
	return err
}

// applyFiles adds volumes and files, replacing those at the same path.
func (o *RunFlags) applyFiles(ctx context.Context, cl *client.Client, app string, cfg *machine.Config) error {
	mounts, err := mountsOf(ctx, cl, app, o.volumes)
	if err != nil {
		return err
	}
	for _, m := range mounts {
		cfg.Mounts = slices.DeleteFunc(cfg.Mounts, func(old machine.Mount) bool { return old.Path == m.Path })
		cfg.Mounts = append(cfg.Mounts, m)
	}
	for _, s := range o.files {
		path, name, has := strings.Cut(s, "=")
		if !has || !strings.HasPrefix(path, "/") || name == "" {
			return cli.Usagef("--file is written /PATH=FILE, not %q", s)
		}
		raw, err := os.ReadFile(name)
		if err != nil {
			return fault.Wrap(err, fault.Invalid, fault.CodeFile, "the file %s cannot be read", name)
		}
		value := base64.StdEncoding.EncodeToString(raw)
		f := machine.File{GuestPath: path, RawValue: &value}
		if st, err := os.Stat(name); err == nil {
			f.Mode = uint32(st.Mode().Perm())
		}
		cfg.Files = slices.DeleteFunc(cfg.Files, func(old machine.File) bool { return old.GuestPath == path })
		cfg.Files = append(cfg.Files, f)
	}
	return nil
}

// applyLife sets the user, the restart policy and how the machine is stopped.
func (o *RunFlags) applyLife(cfg *machine.Config) error {
	if len(cfg.Processes) == 0 && o.user != "" {
		cfg.Processes = []machine.ProcessConfig{{}}
	}
	if len(cfg.Processes) > 0 {
		o.text("user", o.user, &cfg.Processes[0].User)
	}
	o.text("schedule", o.schedule, &cfg.Schedule)
	o.text("runtime", o.runtime, &cfg.Runtime)
	if o.set.Changed("retries") && o.retries < 1 {
		return cli.Usagef("--retries is 1 or more, not %d; --restart no does not restart it", o.retries)
	}
	policy := o.restart
	if policy == "" && cfg.Restart == nil && (o.attach || o.rm || o.sits()) {
		policy = "no"
	}
	if policy != "" || o.retries != 0 {
		if cfg.Restart == nil {
			cfg.Restart = new(machine.Restart)
		}
		if policy != "" {
			cfg.Restart.Policy = policy
		}
		if p := cmp.Or(cfg.Restart.Policy, "on-failure"); o.retries != 0 && p != "on-failure" {
			return cli.Usagef("--retries is how often a machine is restarted on failure; with the restart policy %s "+
				"it would mean nothing: say --restart on-failure, or leave it out", p)
		}
		cfg.Restart.MaxRetries = cmp.Or(o.retries, cfg.Restart.MaxRetries)
	}
	o.applyStop(cfg)
	cfg.AutoDestroy = cfg.AutoDestroy || o.rm
	cfg.Init.TTY = cfg.Init.TTY || o.tty
	if o.readOnly {
		if cfg.Rootfs == nil {
			cfg.Rootfs = new(machine.Rootfs)
		}
		cfg.Rootfs.ReadOnly = true
	}
	return nil
}

// applyStop sets how the machine is stopped. An empty signal means the image's, even if the file names one.
func (o *RunFlags) applyStop(cfg *machine.Config) {
	signal, grace := o.set.Changed("stop-signal"), o.set.Changed("stop-grace")
	if cfg.StopConfig == nil && (signal || grace) {
		cfg.StopConfig = new(machine.StopConfig)
	}
	if signal {
		if cfg.StopConfig.Signal = &o.signal; o.signal == "" {
			cfg.StopConfig.Signal = nil
		}
	}
	if grace {
		cfg.StopConfig.Timeout = &machine.Duration{Duration: o.grace}
	}
}

// sits reports whether to attach this terminal to the machine at once.
func (o *RunFlags) sits() bool { return o.typing && !o.detach }

// CPUFlags sets the CPU from --cpus or --cpu, if given.
func CPUFlags(set *pflag.FlagSet, count int, cores cli.CPU, cpus, milli *int) error {
	switch {
	case set.Changed("cpu") && set.Changed("cpus"):
		return cli.Usagef("--cpu and --cpus both say how much CPU, --cpu in cores and --cpus in CPUs of the kind: " +
			"give one of them")
	case set.Changed("cpus") && count < 1:
		return cli.Usagef("--cpus is 1 or more, not %d", count)
	case set.Changed("cpu"):
		*cpus, *milli = 0, int(cores)
	case set.Changed("cpus"):
		*cpus, *milli = count, 0
	}
	return nil
}

// maxLaunch bounds a launch's file, as the API does.
const maxLaunch = 1 << 20

// ReadLaunch reads a launch from a file, "-" being stdin: the body of a create of the Machines API in JSON, or the same
// in TOML if the file's name ends in .toml. Unknown keys are an error.
func ReadLaunch(c *cli.Env, name string) (*machine.Launch, error) {
	in := c.In
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, fault.Wrap(err, fault.NotFound, codeSpec,
				"%s cannot be read as a file with a launch; a command goes after --, and an image after --image", name)
		}
		defer f.Close()
		in = f
	}
	raw, err := io.ReadAll(io.LimitReader(in, maxLaunch+1))
	if err != nil {
		return nil, fault.Wrap(err, fault.Invalid, codeSpec, "%s cannot be read", name)
	}
	if len(raw) > maxLaunch {
		return nil, fault.New(fault.Invalid, codeSpec, "%s has more than %d bytes, which no launch may have", name,
			maxLaunch)
	}
	return decodeLaunch(name, raw)
}

func decodeLaunch(name string, raw []byte) (*machine.Launch, error) {
	if filepath.Ext(name) != ".toml" {
		return machine.DecodeLaunch(raw)
	}
	var v map[string]any
	if err := toml.Unmarshal(raw, &v); err != nil {
		var at *toml.DecodeError
		if errors.As(err, &at) {
			return nil, fault.New(fault.Invalid, codeSpec, "%s cannot be read:\n%s", name, at.String())
		}
		return nil, fault.Wrap(err, fault.Invalid, codeSpec, "%s cannot be read", name)
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, fault.Wrap(err, fault.Invalid, codeSpec, "%s holds a value that JSON cannot express", name)
	}
	return machine.DecodeLaunch(raw)
}

// encodeLaunch writes what decodeLaunch reads.
func encodeLaunch(l *machine.Launch, asTOML bool) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(l); err != nil || !asTOML {
		return b.Bytes(), err
	}
	var v map[string]any
	d := json.NewDecoder(&b)
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	return toml.Marshal(machine.TOMLValue(v))
}

// configKnown returns an error if a machine's config is unknown, since its worker is unreachable.
func configKnown(m *machine.Machine) error {
	if cli.Heard(m.HostStatus) || m.State == machine.Destroyed {
		return nil
	}
	return fault.New(fault.Unavailable, fault.CodeUnreachable,
		"the config of %s is known only to its worker %s, which does not answer; ask again when the worker is back, "+
			"and see souk status for what is known", cli.Label(m), m.Worker)
}

// launchOf returns a launch that would make the same machine, for run. Its config must be known: see configKnown.
func launchOf(m *machine.Machine) *machine.Launch {
	return &machine.Launch{Name: m.Name, Region: m.Region, Config: m.Config, Scheduling: m.Scheduling}
}
