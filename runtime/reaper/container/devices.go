package container

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime/devices"
	"github.com/soukhq/souk/runtime/reaper/spec"
)

// nodesDir is the directory in a container's bundle for its device nodes.
const nodesDir = "nodes"

// giveDevices adds a container's devices to its specification.
func (s Store) giveDevices(p Plan, bundle string, c *spec.Container) error {
	in := p.Start.Container
	if len(in.Nodes) == 0 {
		return nil
	}
	if s.engineOf(p.Name).Sandboxes() {
		return fault.New(fault.Precondition, devices.CodeDevice,
			"machine %s has a kernel of its own, which knows nothing of "+
				"the devices of its host: run it by another runtime, or without devices", in.Hostname)
	}
	at, err := makeNodes(filepath.Join(bundle, nodesDir), in.Nodes)
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, devices.CodeDevice, "the devices of machine %s cannot be given to it",
			in.Hostname)
	}
	for i, n := range in.Nodes {
		c.Devices = append(c.Devices, spec.Device{From: at[i], To: n.Path, Block: n.Kernel.Block, Major: n.Kernel.Major,
			Minor: n.Kernel.Minor})
	}
	for _, m := range in.Shown {
		c.Shown = append(c.Shown, spec.Mount{From: m.From, To: m.To, ReadOnly: true})
	}
	c.Hooks = ociHooks(in.Hooks)
	return nil
}

// makeNodes makes nodes that all users may open, and returns their paths: access is decided by which container sees
// them, and a container's users do not have the host's groups. The nodes are only visible in the calling thread's mount
// namespace. If souk may not make nodes, the host's own are used.
func makeNodes(dir string, nodes []devices.Node) ([]string, error) {
	at := make([]string, len(nodes))
	for i, n := range nodes {
		at[i] = n.Host
	}
	err := os.Mkdir(dir, 0o711)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	// the bundle's file system does not support device nodes
	if err := unix.Mount("souk", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NOEXEC, "mode=0711,size=64k"); err != nil {
		return at, nil //nolint:nilerr // use the host's own: see the doc comment
	}
	for i, n := range nodes {
		kind := uint32(unix.S_IFCHR)
		if n.Kernel.Block {
			kind = unix.S_IFBLK
		}
		path := filepath.Join(dir, strconv.Itoa(i))
		err := unix.Mknod(path, kind|0o666, int(unix.Mkdev(uint32(n.Kernel.Major), uint32(n.Kernel.Minor))))
		if errors.Is(err, unix.EPERM) {
			continue
		}
		if err == nil {
			err = os.Chmod(path, 0o666) // mknod is subject to the umask
		}
		if err != nil {
			return nil, err
		}
		at[i] = path
	}
	return at, nil
}

// ociHooks converts hooks for the OCI runtime.
func ociHooks(list []devices.Hook) *specs.Hooks {
	if len(list) == 0 {
		return nil
	}
	var out specs.Hooks
	for _, h := range list {
		hook := specs.Hook{Path: h.Path, Args: h.Args, Env: h.Env}
		switch h.When {
		case "prestart":
			out.Prestart = append(out.Prestart, hook) //nolint:staticcheck // CDI specifications use it
		case "createRuntime":
			out.CreateRuntime = append(out.CreateRuntime, hook)
		case "createContainer":
			out.CreateContainer = append(out.CreateContainer, hook)
		case "startContainer":
			out.StartContainer = append(out.StartContainer, hook)
		case "poststart":
			out.Poststart = append(out.Poststart, hook)
		case "poststop":
			out.Poststop = append(out.Poststop, hook)
		}
	}
	return &out
}
