// Package devices finds what a worker can give machines beside CPU and memory: GPUs, parts of GPUs (MIG), and whatever
// a CDI specification describes; and says what a machine needs to use those that it was granted, and what is to be
// denied to all who were not.
//
// # Where devices are found
//
// A CDI specification (/etc/cdi, /var/run/cdi) counts before what is found without one: it says which files and
// variables belong to a device. For NVIDIA's GPUs the vendor's own tool (nvidia-smi) and /proc/driver/nvidia say more
// than a specification does, how much memory there is and whether the device is healthy, and without a specification
// they say all there is to know. What neither knows, and a program can draw or reckon by, is found in /sys/class/drm.
//
// # What is never believed
//
// A specification is a file that some installer wrote. It is read up to a bound, each part is judged, and what is not
// fit is left out with a sentence (Found.Faults); the other devices go on. Its hooks are programs that would run as
// root at each start: they are not run unless the operator says so.
package devices

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Device is one that a machine can be given as a whole.
type Device struct {
	ID     string // by which it is known for ever: a UUID, or vendor/class=name of a specification
	Kind   string // by which it is asked for, "h200"; of letters, digits and -_. as config.guest.gpu_kind takes it
	Model  string // as its vendor says it
	Memory int64  // MiB; 0: it has none of its own, or nobody says how much
	Health string // why it cannot be used; "": nothing stands against it

	Nodes  []Node
	Env    []string // KEY=VALUE
	Mounts []Mount  // for containers
	Hooks  []Hook   // for containers, if the operator has them run

	vendor string // "nvidia": it is known by ID to the vendor's tools
	order  int    // among those of a kind
}

// nodeKey is the node that no other device has, as a text; "" of one that has none.
func (d *Device) nodeKey() string {
	switch n := len(d.Nodes); {
	case n == 0:
		return ""
	case strings.HasPrefix(d.ID, "MIG-"): // its GPU's node is that of others, too
		return string(Deny(kernelNumbers(d.Nodes[n-1:])))
	}
	return string(Deny(kernelNumbers(d.Nodes[:1])))
}

// Node is a device's file.
type Node struct {
	Path   string `json:"path"` // as a machine sees it, below /dev
	Host   string `json:"host"` // on the host
	Kernel Number `json:"kernel"`
}

// Mount is a file or directory of the host that a container sees, to read.
type Mount struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// Hook is a program of the host that a specification wants to be run.
type Hook struct {
	When string   `json:"when"` // createContainer, ...
	Path string   `json:"path"`
	Args []string `json:"args,omitempty"`
	Env  []string `json:"env,omitempty"`
}

// Found is what there is at a moment.
type Found struct {
	Devices []Device
	Faults  []string // sentences on what was left out
	Hooked  []string // specifications that have hooks
	majors  []int64  // of the vendor's drivers: each node of theirs is denied, those too that are made later
	uvm     int64    // the one of them whose nodes are for all GPUs; 0: there is none
}

// Host is how a host is looked at.
type Host struct {
	Files fs.FS                           // from its root on
	Node  func(path string) (Node, error) // of a path of the host
	// Run runs a program and returns what it writes, within a bound; nil: there is none
	Run  func(ctx context.Context, name string, args ...string) ([]byte, error)
	CDI  []string // directories of specifications, those of later ones count before those of earlier ones
	Arch string   // of the host's libraries: "x86_64-linux-gnu"
}

// DefaultCDI are the directories that every runtime looks into.
func DefaultCDI() []string { return []string{"/etc/cdi", "/var/run/cdi"} }

// patience bounds how long the vendor's tool may take; it takes 20 ms, and a device that has hung can make it wait for
// ever.
const patience = 10 * time.Second

// maxOutput bounds what is read of it.
const maxOutput = 1 << 20

// This returns how the host that this runs on is looked at.
func This(cdi []string) Host {
	if cdi == nil {
		cdi = DefaultCDI()
	}
	return Host{Files: os.DirFS("/"), Node: nodeAt, Run: runProgram, CDI: cdi, Arch: libraryArch()}
}

// nodeAt looks at a node; a link is followed.
func nodeAt(path string) (Node, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return Node{}, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	kind := st.Mode & unix.S_IFMT
	if kind != unix.S_IFCHR && kind != unix.S_IFBLK {
		return Node{}, &fs.PathError{Op: "stat", Path: path, Err: errNoDevice}
	}
	return Node{Path: path, Host: path, Kernel: Number{Block: kind == unix.S_IFBLK,
		Major: int64(unix.Major(st.Rdev)), Minor: int64(unix.Minor(st.Rdev))}}, nil
}

var errNoDevice = errors.New("it is no device")

// runProgram runs a program of the host. What it leaves running is not waited for.
func runProgram(ctx context.Context, name string, args ...string) ([]byte, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		for _, dir := range []string{nvidiaFolder + "/bin", "/usr/bin", "/opt/bin", "/run/nvidia/driver/usr/bin"} {
			if p, wrong := exec.LookPath(filepath.Join(dir, name)); wrong == nil {
				path, err = p, nil
				break
			}
		}
	}
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.WaitDelay = time.Second
	out := &bounded{left: maxOutput}
	cmd.Stdout = out
	err = cmd.Run()
	return out.got, err
}

// bounded keeps the beginning of what is written.
type bounded struct {
	got  []byte
	left int
}

func (b *bounded) Write(p []byte) (int, error) {
	n := min(len(p), b.left)
	b.got, b.left = append(b.got, p[:n]...), b.left-n
	return len(p), nil
}

// readFile returns a file of the host, within a bound; no file is "".
func (h *Host) readFile(path string) string {
	f, err := h.Files.Open(strings.TrimPrefix(path, "/"))
	if err != nil {
		return ""
	}
	defer f.Close()
	raw, _ := io.ReadAll(io.LimitReader(f, maxFile)) // what could be read
	return string(raw)
}

// maxFile bounds what is read of one file.
const maxFile = 1 << 20

// globPaths lists the paths of the host that match, sorted.
func (h *Host) globPaths(pattern string) []string {
	found, _ := fs.Glob(h.Files, strings.TrimPrefix(pattern, "/")) // the pattern is ours
	for i := range found {
		found[i] = "/" + found[i]
	}
	return found
}

// pathExists reports whether there is a path on the host.
func (h *Host) pathExists(path string) bool {
	_, err := fs.Stat(h.Files, strings.TrimPrefix(path, "/"))
	return err == nil
}

// Find looks at the host. It takes as long as the vendor's tool, at most patience.
func (h *Host) Find(ctx context.Context) Found {
	out := Found{}
	gpus := h.findNVIDIA(ctx, &out)
	specs := h.readSpecifications(&out)
	out.Devices = mergeDevices(gpus, specs, &out)
	out.Devices = append(out.Devices, h.findDRM(out.Devices)...)
	out.limitDevices()
	return out
}

// Most is how many devices a worker has at the most.
const Most = 64

// limitDevices leaves out what is more than Most.
func (f *Found) limitDevices() {
	if n := len(f.Devices); n > Most {
		f.Faults = append(f.Faults, tooMany(n))
		f.Devices = f.Devices[:Most]
	}
}

// validKind makes a kind of what a vendor calls a device: "NVIDIA A100-SXM4-80GB" is a100-sxm4-80gb.
func validKind(model string) string {
	model = strings.ToLower(strings.TrimSpace(model))
	for _, brand := range []string{"nvidia ", "tesla "} {
		model = strings.TrimPrefix(model, brand)
	}
	var b strings.Builder
	for _, r := range model {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '.', r == '_':
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
	}
	kind := strings.TrimLeft(b.String(), "-._")
	return strings.TrimRight(kind[:min(len(kind), 63)], "-._")
}

// kernelNumbers lists the nodes of devices as the kernel knows them.
func kernelNumbers(nodes []Node) []Number {
	out := make([]Number, len(nodes))
	for i, n := range nodes {
		out[i] = n.Kernel
	}
	return out
}

// Denied returns what a machine may not use that holds the devices of these ids: the nodes of all others, and those
// that only who holds one of them needs.
func (f *Found) Denied(held []string) Denied {
	var may []Number
	for i := range f.Devices {
		if slices.Contains(held, f.Devices[i].ID) {
			may = append(may, kernelNumbers(f.Devices[i].Nodes)...)
		}
	}
	var deny []Number
	for i := range f.Devices {
		for _, n := range kernelNumbers(f.Devices[i].Nodes) {
			if !slices.Contains(may, n) {
				deny = append(deny, n)
			}
		}
	}
	for _, major := range f.majors {
		one := func(n Number) bool { return !n.Block && n.Major == major }
		if !slices.ContainsFunc(may, one) {
			deny = append(slices.DeleteFunc(deny, one), Number{Major: major, Minor: AnyMinor})
			continue
		}
		for _, minor := range deniedMinors(f.uvm == major) { // a hole cannot be made in what is denied as a whole
			if n := (Number{Major: major, Minor: minor}); !slices.Contains(may, n) {
				deny = append(deny, n)
			}
		}
	}
	return Deny(deny)
}

// deniedMinors are the numbers of a driver's nodes that are denied one by one to who may use some of them, whether they
// are there yet or not: GPUs, what parts of GPUs are opened by, and what lights screens. What all GPUs share is not
// among them.
func deniedMinors(shared bool) (out []int64) {
	if shared {
		return nil
	}
	for minor := range int64(Most) {
		out = append(out, minor)
	}
	return append(out, modeset)
}

// modeset is the number of /dev/nvidia-modeset.
const modeset = 254
