// Package spec makes the OCI runtime specification of a machine's container: what it sees, whom it runs as, and what
// it may not do.
//
// A container is made for code that is not trusted: its users are nobody on the host (a user namespace), it can gain
// no privileges (no_new_privs), it has the capabilities that common images need and no more, its system calls go
// through the default filter of Docker and containerd (moby/profiles), and what the kernel tells about the host is
// masked. Nothing that a launch can say takes any of this away.
//
// Its limits are not here: its cgroup is made by souk's reaper, which sets them (package cgroup), and the runtime only
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
	CodeMount   fault.Code = "mount"   // nothing can be mounted there
	codeSeccomp fault.Code = "seccomp" // no filter of system calls can be made
)

// Container is what is asked for.
type Container struct {
	Hostname string
	Init     string   // path on the host of a static program that is the first process and runs Argv; "": Argv is
	Argv     []string // as the image's entrypoint and command, and the launch, have it; not empty
	Env      []string // KEY=VALUE, complete
	Dir      string   // where it begins, absolute; "": /
	User     User
	Rootfs   string     // path of its root on the host; it is mounted already
	ReadOnly bool       // the root cannot be written
	IDs      []users.ID // of the user namespace, for users and groups alike; not empty
	Cgroup   string     // path of its group below each hierarchy's root; "": none
	Mounts   []Mount
	HostNet  bool // the host's network; else one of its own, with a loopback device and nothing else

	Devices []Device     // that it was granted
	Shown   []Mount      // what it sees for them, wherever that is
	Hooks   *specs.Hooks // what is run for them; nil: nothing
}

// Device is a node of the host that a container may use.
type Device struct {
	From, To     string
	Block        bool
	Major, Minor int64
}

// User is a user of the container.
type User struct {
	UID, GID uint32
	Groups   []uint32
}

// Mount shows a file or directory of the host.
type Mount struct {
	From, To string
	ReadOnly bool
	NoExec   bool // as the host has it: the kernel does not let a user namespace take it away
}

// InitPath is where a container sees its first process's program, on the tmpfs that is its /dev.
const InitPath = "/dev/init"

// New returns the specification. It refuses mounts that would hide what keeps the container apart, and a beginning in a
// descriptor that its runtime may have left open (CVE-2024-21626).
func New(c Container) (*specs.Spec, error) {
	if dir := path.Clean("/" + c.Dir); dir == "/proc" || strings.HasPrefix(dir, "/proc/") {
		return nil, fault.New(fault.Invalid, fault.CodeDir,
			"no program can begin in %s, which is the kernel's: name another "+
				"directory", dir)
	}
	s := &specs.Spec{
		Version:  "1.0.2", // what every runtime that is supported understands
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
				Devices: []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}}, // but null, zero, full, tty, random
			},
		},
	}
	if !c.HostNet { // its network is its own: who is there may listen on each port, and ask who answers
		var last uint32 // of those without a gap from 0 on
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

// giveDevices has a container use the devices that it was granted, and no others. Their nodes are mounted, for none can
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

// Command returns what runs beside a container's main process: as the same user, with the same rights. t is the
// terminal that it has; nil is none.
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

// As returns a process as another user's, with the rights that one has: root those of a container, others none.
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

// capabilities are those of root in a container: Docker's default without NET_RAW (to forge packets), MKNOD (devices
// cannot be made in a user namespace anyway) and AUDIT_WRITE (the host's log).
var capabilities = []string{
	"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_NET_BIND_SERVICE", "CAP_SETFCAP",
	"CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_CHROOT",
}

// masked are files of the kernel that tell about the host and its other machines, as Docker masks them.
var masked = []string{
	"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
	"/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats", "/sys/devices/virtual/powercap",
	"/sys/firmware",
}

// readOnly are those that would change the host.
var readOnly = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}

// own are the mounts that each container has.
func own(hostNet bool) []specs.Mount {
	sys := specs.Mount{Destination: "/sys", Type: "sysfs", Source: "sysfs",
		Options: []string{"nosuid", "noexec", "nodev", "ro"}}
	if hostNet { // the network is not the user namespace's own, so that no sysfs may be mounted there
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

// scratch are the places that programs write to whatever their root is. What is there counts as the container's memory.
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

// Target returns the path of a mount, and refuses those that must stay as they are.
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
