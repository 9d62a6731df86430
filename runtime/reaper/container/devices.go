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

// nodesDir is where the nodes of a container's devices are made, in its bundle.
const nodesDir = "nodes"

// giveDevices enters what a container gets of devices.
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

// makeNodes makes nodes that everybody may open, and says where they are: to whom they are shown is decided already, and
// the users of a container are not those whom the host lets use its own. They are to be seen in the calling thread's
// mount namespace. Where souk may make none, the host's own are used.
func makeNodes(dir string, nodes []devices.Node) ([]string, error) {
	at := make([]string, len(nodes))
	for i, n := range nodes {
		at[i] = n.Host
	}
	err := os.Mkdir(dir, 0o711)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	// the bundle lies where nodes are none
	if err := unix.Mount("souk", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NOEXEC, "mode=0711,size=64k"); err != nil {
		return at, nil //nolint:nilerr // as it is said
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
			err = os.Chmod(path, 0o666) // whatever the umask
		}
		if err != nil {
			return nil, err
		}
		at[i] = path
	}
	return at, nil
}

// ociHooks returns programs for the OCI runtime to run.
func ociHooks(list []devices.Hook) *specs.Hooks {
	if len(list) == 0 {
		return nil
	}
	var out specs.Hooks
	for _, h := range list {
		hook := specs.Hook{Path: h.Path, Args: h.Args, Env: h.Env}
		switch h.When {
		case "prestart":
			out.Prestart = append(out.Prestart, hook) //nolint:staticcheck // specifications have it
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
