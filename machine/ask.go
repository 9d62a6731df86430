package machine

import (
	"cmp"
	"maps"
	"slices"

	"github.com/soukhq/souk/cluster"
)

// The share of a worker that a virtual CPU asks for, in thousandths of a core. Shared ones are a sixteenth and may
// burst.
const (
	SharedMilli      = 62
	PerformanceMilli = 1000
)

// GPUKindPrefix is the prefix of the resource for GPUs of one kind: "gpu.a100", in thousandths of one.
const GPUKindPrefix = "gpu."

// MostCPU returns how much CPU a machine of this config may use while others leave it idle, in thousandths of a CPU.
func MostCPU(c *Config) int64 {
	switch g := c.Guest; {
	case g == nil:
		return 1000
	case g.CPUMilli > 0:
		return int64(g.CPUMilli)
	default:
		return 1000 * int64(max(1, g.CPUs))
	}
}

// Resources returns the resources that a machine of this config asks for. Call Normalize first.
func Resources(c *Config) cluster.Resources {
	var r cluster.Resources
	if g := c.Guest; g != nil {
		r.CPU, r.Memory, r.GPU = g.cpuMilli(), int64(g.MemoryMB), 1000*int64(g.GPUs)
		if len(g.Extras) > 0 || g.GPUKind != "" {
			r.Named = make(map[string]int64, len(g.Extras)+1)
			maps.Copy(r.Named, g.Extras)
		}
		if g.GPUKind != "" {
			r.Named[GPUKindPrefix+g.GPUKind] = 1000 * int64(g.GPUs)
		}
	}
	if c.Rootfs != nil {
		r.Disk = 1024 * int64(c.Rootfs.SizeGB)
	}
	ports := map[int]bool{}
	for _, s := range c.Services {
		if s.InternalPort != 0 {
			ports[s.InternalPort] = true
		}
	}
	r.Ports = int64(len(ports))
	return r
}

// DeviceResources returns the resources that a worker with these devices may grant.
func DeviceResources(devices []cluster.GPU) (r cluster.Resources) {
	for _, d := range devices {
		r = r.Add(cluster.Resources{GPU: 1000, Named: map[string]int64{GPUKindPrefix + d.Kind: 1000}})
	}
	return r
}

// cpuMilli returns how much CPU a guest asks for, in thousandths of a core.
func (g *Guest) cpuMilli() int64 {
	switch {
	case g.CPUMilli != 0:
		return int64(g.CPUMilli)
	case g.CPUKind == Performance:
		return PerformanceMilli * int64(g.CPUs)
	}
	return SharedMilli * int64(g.CPUs)
}

// Argv returns the command that a machine runs, program first; nil if the image decides. The process of
// Config.Processes takes precedence over Init, and exec over entrypoint and cmd.
func Argv(c *Config) []string {
	init := commandOf(c)
	if len(init.Exec) > 0 {
		return append([]string(nil), init.Exec...)
	}
	return append(append([]string(nil), init.runEntrypoint()...), init.Cmd...)
}

// runEntrypoint returns Entrypoint, which runs with Cmd after it; nil for [""], which clears the image's entrypoint,
// as in docker.
func (i *Init) runEntrypoint() []string {
	if i.clearsEntrypoint() {
		return nil
	}
	return i.Entrypoint
}

// clearsEntrypoint reports whether the image's entrypoint is cleared.
func (i *Init) clearsEntrypoint() bool { return len(i.Entrypoint) == 1 && i.Entrypoint[0] == "" }

// Args returns the arguments that a machine passes to its image's entrypoint, instead of the image's cmd; nil if the
// config names a program itself, or has no arguments.
func Args(c *Config) []string {
	init := commandOf(c)
	if len(init.Exec)+len(init.Entrypoint) > 0 {
		return nil
	}
	return append([]string(nil), init.Cmd...)
}

// commandOf returns the command settings of a config.
func commandOf(c *Config) Init {
	if len(c.Processes) == 1 {
		p := c.Processes[0]
		if len(p.Exec)+len(p.Entrypoint)+len(p.Cmd) > 0 {
			return Init{Exec: p.Exec, Entrypoint: p.Entrypoint, Cmd: p.Cmd}
		}
	}
	return c.Init
}

// User returns the user that a machine runs as, "" for the default.
func User(c *Config) string {
	if len(c.Processes) == 1 {
		return c.Processes[0].User
	}
	return ""
}

// Environment returns a machine's variables, except secrets. m provides the fields that env_from names.
func Environment(m *Machine) map[string]string {
	env := map[string]string{}
	if m.Config == nil {
		return env
	}
	maps.Copy(env, m.Config.Env)
	if len(m.Config.Processes) == 1 {
		p := m.Config.Processes[0]
		maps.Copy(env, p.Env)
		for _, e := range p.EnvFrom {
			env[e.EnvVar] = m.fieldRef(e.FieldRef)
		}
	}
	return env
}

func (m *Machine) fieldRef(name string) string {
	switch name {
	case "id":
		return m.ID
	case "version":
		return m.InstanceID
	case "app_name":
		return m.App
	case "private_ip":
		return m.PrivateIP
	case "region":
		return m.Region
	case "image":
		return m.Config.Image
	}
	return ""
}

// Secrets selects, from an app's secrets, those that a machine gets, as variable and value: all of them, or those that
// its process names. missing lists the named secrets that do not exist.
func Secrets(c *Config, all map[string]string) (env map[string]string, missing []string) {
	env = map[string]string{}
	if len(c.Processes) != 1 || !c.Processes[0].IgnoreAppSecrets && len(c.Processes[0].Secrets) == 0 {
		maps.Copy(env, all)
		return env, nil
	}
	for _, s := range c.Processes[0].Secrets {
		name := cmp.Or(s.Name, s.EnvVar)
		v, ok := all[name]
		if !ok {
			missing = append(missing, name)
			continue
		}
		env[s.EnvVar] = v
	}
	return env, missing
}

// Reads returns which of its app's secrets a machine reads: all of them, or only names. names lists, sorted, the
// secrets without which it cannot start: those that its process and its files name.
func Reads(c *Config) (all bool, names []string) {
	all = true
	if len(c.Processes) == 1 {
		p := &c.Processes[0]
		all = !p.IgnoreAppSecrets && len(p.Secrets) == 0
		for _, s := range p.Secrets {
			names = append(names, cmp.Or(s.Name, s.EnvVar))
		}
	}
	for _, f := range c.Files {
		if f.SecretName != nil && *f.SecretName != "" {
			names = append(names, *f.SecretName)
		}
	}
	slices.Sort(names)
	return all, slices.Compact(names)
}

// fieldBytes is the approximate size of a config's short fields as JSON.
const fieldBytes = 256

// Bytes returns the approximate size of the config as JSON: its long texts plus fieldBytes.
func (c *Config) Bytes() int64 {
	n := fieldBytes + len(c.Image)
	list := func(texts []string) {
		for _, t := range texts {
			n += len(t)
		}
	}
	pairs := func(of map[string]string) {
		for k, v := range of {
			n += len(k) + len(v)
		}
	}
	list(c.Init.Exec)
	list(c.Init.Entrypoint)
	list(c.Init.Cmd)
	pairs(c.Env)
	pairs(c.Metadata)
	for _, f := range c.Files {
		n += len(f.GuestPath)
		if f.RawValue != nil {
			n += len(*f.RawValue)
		}
	}
	for i := range c.Processes {
		p := &c.Processes[i]
		list(p.Exec)
		list(p.Entrypoint)
		list(p.Cmd)
		pairs(p.Env)
	}
	return int64(n)
}
