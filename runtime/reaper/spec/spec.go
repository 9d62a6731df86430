// Package spec makes the OCI runtime specification of a machine's container: what it sees, as which user it runs, and
// what it may not do.
//
// A container is made for untrusted code: its users are unprivileged on the host (a user namespace), it cannot gain
// privileges (no_new_privs), it has only the capabilities that common images need, its system calls pass the default
// filter of Docker and containerd (moby/profiles), and the kernel's information about the host is masked. No option of
// a launch removes any of this.
//
// Its limits are set elsewhere: souk's reaper makes its cgroup and sets them (package cgroup), and the runtime only
// puts the container into it.
package spec

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/profiles/seccomp"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime/reaper/users"
)

// The codes of this package's errors.
const (
	CodeMount   fault.Code = "mount"   // mounts are not allowed at this path
	codeSeccomp fault.Code = "seccomp" // the system call filter cannot be made
)

// Container is the input of New.
type Container struct {
	Hostname string
	Init     string   // host path of a static program that is process 1 and runs Argv; "": Argv is process 1
	Argv     []string // combined from the image and the launch; not empty
	Env      []string // KEY=VALUE, complete
	Dir      string   // working directory, absolute; "": /
	User     User
	Rootfs   string     // host path of its root, which is mounted already
	ReadOnly bool       // the root is read-only
	IDs      []users.ID // the mapping of its user namespace, for users and groups alike; not empty
	Cgroup   string     // path of its cgroup below each hierarchy's root; "": none
	Mounts   []Mount
	HostNet  bool // share the host's network; else it gets its own, with only a loopback device

	Devices []Device     // devices it was granted
	Shown   []Mount      // files for the devices, anywhere
	Hooks   *specs.Hooks // hooks for the devices; nil: none
}

// Device is a device node of the host that a container may use.
type Device struct {
	From, To     string
	Block        bool
	Major, Minor int64
}

// User is a user inside the container.
type User struct {
	UID, GID uint32
	Groups   []uint32
}

// Mount makes a file or directory of the host visible.
type Mount struct {
	From, To string
	ReadOnly bool
	NoExec   bool // set on the host: a user namespace must not remove it
}

// InitPath is the path of the init in a container, on the tmpfs of its /dev.
const InitPath = "/dev/init"

// New returns the specification. It refuses mounts that would cover what isolates the container, and a working
// directory in /proc, where a descriptor may lead out of the container (CVE-2024-21626).
func New(c Container) (*specs.Spec, error) {
	if dir := path.Clean("/" + c.Dir); dir == "/proc" || strings.HasPrefix(dir, "/proc/") {
		return nil, fault.New(fault.Invalid, fault.CodeDir,
			"no program can begin in %s, which is the kernel's: name another "+
				"directory", dir)
	}
	s := &specs.Spec{
		Version:  "1.0.2", // every supported runtime understands it
		Hostname: c.Hostname,
		Root:     &specs.Root{Path: c.Rootfs, Readonly: c.ReadOnly},
		Process:  process(c),
		Mounts:   own(c.HostNet),
		Linux: &specs.Linux{
			UIDMappings:   mappings(c.IDs),
			GIDMappings:   mappings(c.IDs),
			CgroupsPath:   c.Cgroup,
			Namespaces:    namespaces(c.HostNet),
			MaskedPaths:   append([]string(nil), masked...),
			ReadonlyPaths: append([]string(nil), readOnly...),
			Resources: &specs.LinuxResources{
				// except null, zero, full, tty, random
				Devices: []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}},
			},
		},
	}
	if !c.HostNet { // in its own network it may bind low ports and use ping
		var last uint32 // last id of the range without a gap that begins at 0
		for _, m := range c.IDs {
			if m.Inside <= last+1 {
				last = max(last, m.Inside+m.Size-1)
			}
		}
		s.Linux.Sysctl = map[string]string{"net.ipv4.ip_unprivileged_port_start": "0",
			"net.ipv4.ping_group_range": fmt.Sprintf("0 %d", last)}
	}
	if c.ReadOnly {
		s.Mounts = append(s.Mounts, scratch()...)
	}
	giveDevices(s, &c)
	for _, m := range c.Mounts {
		to, err := Target(m.To)
		if err != nil {
			return nil, err
		}
		options := []string{"rbind", "nosuid", "nodev"}
		if m.ReadOnly {
			options = append(options, "ro")
		}
		if m.NoExec {
			options = append(options, "noexec")
		}
		s.Mounts = append(s.Mounts, specs.Mount{Destination: to, Source: m.From, Type: "bind", Options: options})
	}
	if c.Init != "" {
		s.Mounts = append(s.Mounts, specs.Mount{Destination: InitPath, Source: c.Init, Type: "bind",
			Options: []string{"bind", "ro", "nosuid", "nodev"}})
		s.Process.Args = append([]string{InitPath, "--"}, c.Argv...)
	}
	filter, err := seccomp.GetDefaultProfile(s)
	if err != nil {
		return nil, fault.Wrap(err, fault.Precondition, codeSeccomp,
			"no filter of system calls can be made on this host")
	}
	s.Linux.Seccomp = filter
	return s, nil
}

// giveDevices gives a container exactly the devices that it was granted. Their nodes are bind-mounted, since none can
// be made in a user namespace.
func giveDevices(s *specs.Spec, c *Container) {
	for _, d := range c.Devices {
		s.Mounts = append(s.Mounts, specs.Mount{Destination: d.To, Source: d.From, Type: "bind",
			Options: []string{"bind"}})
		kind := "c"
		if d.Block {
			kind = "b"
		}
		s.Linux.Resources.Devices = append(s.Linux.Resources.Devices, specs.LinuxDeviceCgroup{Allow: true, Type: kind,
			Major: &d.Major, Minor: &d.Minor, Access: "rw"})
	}
	for _, m := range c.Shown {
		s.Mounts = append(s.Mounts, specs.Mount{Destination: m.To, Source: m.From, Type: "bind",
			Options: []string{"rbind", "nosuid", "nodev", "ro"}})
	}
	s.Hooks = c.Hooks
}

// Command returns the specification of a command beside a container's main process: the same user, the same rights. t
// is its terminal, nil if it has none.
func Command(of *specs.Process, argv []string, t *machine.Terminal) *specs.Process {
	p := *of
	p.Args, p.Terminal, p.ConsoleSize = argv, t != nil, nil
	if t != nil {
		p.Env = t.Env(p.Env)
		if t.Size.Rows > 0 && t.Size.Cols > 0 {
			p.ConsoleSize = &specs.Box{Height: uint(t.Size.Rows), Width: uint(t.Size.Cols)}
		}
	}
	return &p
}

func process(c Container) *specs.Process {
	dir := c.Dir
	if dir == "" {
		dir = "/"
	}
	return As(&specs.Process{Args: c.Argv, Env: c.Env, Cwd: dir, NoNewPrivileges: true}, c.User)
}

// As returns a process that runs as a user, with the capabilities for that user: those of a container for root, none
// for others.
func As(of *specs.Process, u User) *specs.Process {
	p := *of
	p.User = specs.User{UID: u.UID, GID: u.GID, AdditionalGids: u.Groups}
	p.Capabilities = &specs.LinuxCapabilities{Bounding: append([]string(nil), capabilities...)}
	if u.UID == 0 {
		p.Capabilities.Effective = append([]string(nil), capabilities...)
		p.Capabilities.Permitted = append([]string(nil), capabilities...)
	}
	return &p
}

// capabilities are the capabilities of root in a container: Docker's default without NET_RAW (forging packets), MKNOD
// (impossible in a user namespace anyway) and AUDIT_WRITE (the host's log).
var capabilities = []string{
	"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_NET_BIND_SERVICE", "CAP_SETFCAP",
	"CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_CHROOT",
}

// masked lists kernel files that reveal the host and its other machines, as in Docker.
var masked = []string{
	"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
	"/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats", "/sys/devices/virtual/powercap",
	"/sys/firmware",
}

// readOnly lists kernel files that would change the host.
var readOnly = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}

// own returns the mounts that every container has.
func own(hostNet bool) []specs.Mount {
	sys := specs.Mount{Destination: "/sys", Type: "sysfs", Source: "sysfs",
		Options: []string{"nosuid", "noexec", "nodev", "ro"}}
	if hostNet { // the user namespace does not own the host's network namespace, so it cannot mount sysfs
		sys = specs.Mount{Destination: "/sys", Type: "bind", Source: "/sys",
			Options: []string{"rbind", "nosuid", "noexec", "nodev", "ro"}}
	}
	return []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs",
			Options: []string{"nosuid", "noexec", "strictatime", "mode=755", "size=65536k"}},
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts",
			Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"}},
		{Destination: "/dev/shm", Type: "tmpfs", Source: "shm",
			Options: []string{"nosuid", "noexec", "nodev", "mode=1777", "size=65536k"}},
		{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue", Options: []string{"nosuid", "noexec", "nodev"}},
		sys,
		{Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup",
			Options: []string{"nosuid", "noexec", "nodev", "relatime", "ro"}},
	}
}

// scratch returns tmpfs mounts where programs write even if the root is read-only. Their content counts as the
// container's memory.
func scratch() (out []specs.Mount) {
	for dir, mode := range map[string]string{"/run": "0755", "/tmp": "1777", "/var/tmp": "1777"} {
		out = append(out, specs.Mount{Destination: dir, Type: "tmpfs", Source: "tmpfs",
			Options: []string{"nosuid", "nodev", "mode=" + mode}})
	}
	slices.SortFunc(out, func(a, b specs.Mount) int { return strings.Compare(a.Destination, b.Destination) })
	return out
}

func namespaces(hostNet bool) []specs.LinuxNamespace {
	out := []specs.LinuxNamespace{
		{Type: specs.UserNamespace}, {Type: specs.PIDNamespace}, {Type: specs.MountNamespace},
		{Type: specs.IPCNamespace}, {Type: specs.UTSNamespace}, {Type: specs.CgroupNamespace},
	}
	if !hostNet {
		out = append(out, specs.LinuxNamespace{Type: specs.NetworkNamespace})
	}
	return out
}

func mappings(ids []users.ID) []specs.LinuxIDMapping {
	out := make([]specs.LinuxIDMapping, len(ids))
	for i, m := range ids {
		out[i] = specs.LinuxIDMapping{ContainerID: m.Inside, HostID: m.Outside, Size: m.Size}
	}
	return out
}

// Target returns the clean path of a mount. It refuses paths that must stay as they are.
func Target(to string) (string, error) {
	if !filepath.IsLocal(strings.TrimLeft(to, "/")) || strings.ContainsRune(to, 0) {
		return "", fault.New(fault.Invalid, fault.CodePath,
			"the path %q does not lie below the container's root: use one without '..' that names something in it", to)
	}
	clean := path.Clean("/" + to)
	if clean == "/" {
		return "", fault.New(fault.Invalid, CodeMount,
			"nothing can be mounted over the whole of a container, as %q says: name a path below /", to)
	}
	for _, keep := range []string{"/proc", "/sys", "/dev"} {
		if clean == keep || strings.HasPrefix(clean, keep+"/") {
			return "", fault.New(fault.Invalid, CodeMount, "nothing can be mounted at %s, which is the kernel's: name "+
				"another path", clean)
		}
	}
	return clean, nil
}
