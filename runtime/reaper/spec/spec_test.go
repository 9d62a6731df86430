package spec_test

import (
	"slices"
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime/reaper/spec"
	"github.com/soukhq/souk/runtime/reaper/users"
)

func plain() spec.Container {
	return spec.Container{Argv: []string{"true"}, Rootfs: "/r", IDs: []users.ID{{Inside: 0, Outside: 1 << 30, Size: 1},
		{Inside: 1, Outside: 1 << 29, Size: 65535}}}
}

func TestUnsafeMountsAreRefused(t *testing.T) {
	for name, change := range map[string]func(c *spec.Container){
		"over all":               func(c *spec.Container) { c.Mounts = []spec.Mount{{From: "/v", To: "/"}} },
		"over all, said oddly":   func(c *spec.Container) { c.Mounts = []spec.Mount{{From: "/v", To: "a/.."}} },
		"over proc":              func(c *spec.Container) { c.Mounts = []spec.Mount{{From: "/v", To: "/proc"}} },
		"proc, said oddly":       func(c *spec.Container) { c.Mounts = []spec.Mount{{From: "/v", To: "/x/..//proc"}} },
		"over a device":          func(c *spec.Container) { c.Mounts = []spec.Mount{{From: "/v", To: "/dev/null"}} },
		"over sysfs":             func(c *spec.Container) { c.Mounts = []spec.Mount{{From: "/v", To: "sys/kernel"}} },
		"begins in a descriptor": func(c *spec.Container) { c.Dir = "/proc/self/fd/7" },
		"the same, said oddly":   func(c *spec.Container) { c.Dir = "x/../proc//self/fd/7" },
	} {
		c := plain()
		change(&c)
		if _, err := spec.New(c); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestOptionsNeverWeakenIsolation: whatever is asked for, what keeps a container apart is there.
func TestOptionsNeverWeakenIsolation(t *testing.T) {
	for name, change := range map[string]func(c *spec.Container){
		"plain":              func(*spec.Container) {},
		"the host's network": func(c *spec.Container) { c.HostNet = true },
		"another user":       func(c *spec.Container) { c.User = spec.User{UID: 33, GID: 33, Groups: []uint32{4}} },
		"mounts":             func(c *spec.Container) { c.Mounts = []spec.Mount{{From: "/v", To: "/d"}} },
		"an init":            func(c *spec.Container) { c.Init = "/usr/bin/tini" },
	} {
		c := plain()
		change(&c)
		s, err := spec.New(c)
		if err != nil {
			t.Fatal(err)
		}
		if !s.Process.NoNewPrivileges || s.Linux.Seccomp == nil || len(s.Linux.Devices) > 0 || s.Hooks != nil ||
			s.Process.ApparmorProfile != "" || s.Linux.RootfsPropagation != "" {
			t.Errorf("%s: %+v", name, s.Process)
		}
		if r := s.Linux.Resources; r.CPU != nil || r.Memory != nil || r.Pids != nil || r.Unified != nil {
			t.Errorf("%s: the runtime is to set limits, which souk has set: %+v", name, r)
		}
		if s.Linux.Seccomp.DefaultAction == specs.ActAllow {
			t.Errorf("%s: system calls that nobody names are allowed", name)
		}
		for _, has := range []string{"CAP_SYS_ADMIN", "CAP_SYS_PTRACE", "CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_MKNOD",
			"CAP_SYS_MODULE", "CAP_BPF", "CAP_DAC_READ_SEARCH"} {
			if slices.Contains(s.Process.Capabilities.Bounding, has) {
				t.Errorf("%s: it has %s", name, has)
			}
		}
		if c.User.UID != 0 && len(s.Process.Capabilities.Effective)+len(s.Process.Capabilities.Ambient) > 0 {
			t.Errorf("%s: a user has capabilities", name)
		}
		for _, kind := range []specs.LinuxNamespaceType{specs.UserNamespace, specs.PIDNamespace, specs.MountNamespace,
			specs.IPCNamespace, specs.UTSNamespace, specs.CgroupNamespace} {
			if !slices.ContainsFunc(s.Linux.Namespaces, func(n specs.LinuxNamespace) bool {
				return n.Type == kind && n.Path == ""
			}) {
				t.Errorf("%s: no %s namespace of its own", name, kind)
			}
		}
		for _, m := range s.Mounts {
			if m.Type == "bind" && !slices.Contains(m.Options, "nosuid") {
				t.Errorf("%s: %s takes setuid programs", name, m.Destination)
			}
			if strings.HasPrefix(m.Destination, "/sys") && !slices.Contains(m.Options, "ro") {
				t.Errorf("%s: %s can be written", name, m.Destination)
			}
		}
	}
}
