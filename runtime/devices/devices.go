// Package devices finds the devices that a worker can give machines beside CPU and memory: GPUs, parts of GPUs (MIG),
// and whatever a CDI specification describes. It determines what a machine needs to use its devices, and which devices
// to deny to the others.
//
// # Where devices are found
//
// A CDI specification (/etc/cdi, /var/run/cdi) takes precedence: it says which files and variables belong to a device.
// For NVIDIA's GPUs, the vendor's tool (nvidia-smi) and /proc/driver/nvidia also report the memory and the health, and
// without a specification they are the only source. Other devices for graphics or computing are found in
// /sys/class/drm.
//
// # Validation
//
// A specification is a file that some installer wrote. It is read up to a limit and each part is validated; an invalid
// part is left out with a sentence (Found.Faults), the other devices stay usable. Its hooks are programs that would run
// as root at each start: they run only if the operator allows it.
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

// Device is a device that a machine is given as a whole.
type Device struct {
	ID     string // permanent: a UUID, or vendor/class=name from a specification
	Kind   string // what a config asks for, "h200"; letters, digits and -_. as config.guest.gpu_kind allows
	Model  string // the vendor's name for it
	Memory int64  // MiB; 0: no memory of its own, or unknown
	Health string // why it cannot be used; "": it can

	Nodes  []Node
	Env    []string // KEY=VALUE
	Mounts []Mount  // for containers
	Hooks  []Hook   // for containers, if the operator allows hooks

	vendor string // "nvidia": NVIDIA's tools know it by ID
	order  int    // among the devices of a kind
}

// nodeKey returns the node that no other device has, as text; "" if the device has no node.
func (d *Device) nodeKey() string {
	switch n := len(d.Nodes); {
	case n == 0:
		return ""
	case strings.HasPrefix(d.ID, "MIG-"): // a part shares its GPU's node with other parts
		return string(Deny(kernelNumbers(d.Nodes[n-1:])))
	}
	return string(Deny(kernelNumbers(d.Nodes[:1])))
}

// Node is a device file.
type Node struct {
	Path   string `json:"path"` // in the machine, below /dev
	Host   string `json:"host"` // on the host
	Kernel Number `json:"kernel"`
}

// Mount is a file or directory of the host that a container sees read-only.
type Mount struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// Hook is a program of the host that a specification asks to run.
type Hook struct {
	When string   `json:"when"` // createContainer, ...
	Path string   `json:"path"`
	Args []string `json:"args,omitempty"`
	Env  []string `json:"env,omitempty"`
}

// Found is the result of one look at the host.
type Found struct {
	Devices []Device
	Faults  []string // sentences about devices left out
	Hooked  []string // specifications that have hooks
	majors  []int64  // major numbers of the vendor's drivers: all nodes with them are denied, also ones made later
	uvm     int64    // the one of majors whose nodes all GPUs share; 0: none
}

// Host is access to a host's files, nodes and programs.
type Host struct {
	Files fs.FS                           // from the root directory
	Node  func(path string) (Node, error) // looks up a path of the host
	// Run runs a program and returns its output, up to a limit; nil: programs cannot be run
	Run  func(ctx context.Context, name string, args ...string) ([]byte, error)
	CDI  []string // directories of specifications; later ones override earlier ones
	Arch string   // directory name of the host's libraries: "x86_64-linux-gnu"
}

// DefaultCDI returns the directories that every CDI runtime reads.
func DefaultCDI() []string { return []string{"/etc/cdi", "/var/run/cdi"} }

// patience bounds the run time of the vendor's tool; it takes 20 ms, but can hang forever on a device that hangs.
const patience = 10 * time.Second

// maxOutput bounds the output read from it, in bytes.
const maxOutput = 1 << 20

// This returns the access to the host that this process runs on.
func This(cdi []string) Host {
	if cdi == nil {
		cdi = DefaultCDI()
	}
	return Host{Files: os.DirFS("/"), Node: nodeAt, Run: runProgram, CDI: cdi, Arch: libraryArch()}
}

// nodeAt looks up a node; it follows links.
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

// runProgram runs a program of the host. It does not wait for processes that the program leaves behind.
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

// bounded keeps the first bytes written, and drops the rest.
type bounded struct {
	got  []byte
	left int
}

func (b *bounded) Write(p []byte) (int, error) {
	n := min(len(p), b.left)
	b.got, b.left = append(b.got, p[:n]...), b.left-n
	return len(p), nil
}

// readFile returns a file of the host, up to maxFile bytes; "" if it cannot be opened.
func (h *Host) readFile(path string) string {
	f, err := h.Files.Open(strings.TrimPrefix(path, "/"))
	if err != nil {
		return ""
	}
	defer f.Close()
	raw, _ := io.ReadAll(io.LimitReader(f, maxFile)) // on an error, return what could be read
	return string(raw)
}

// maxFile bounds the bytes read of one file.
const maxFile = 1 << 20

// globPaths lists the paths of the host that match, sorted.
func (h *Host) globPaths(pattern string) []string {
	found, _ := fs.Glob(h.Files, strings.TrimPrefix(pattern, "/")) // our own pattern is valid
	for i := range found {
		found[i] = "/" + found[i]
	}
	return found
}

// pathExists reports whether a path exists on the host.
func (h *Host) pathExists(path string) bool {
	_, err := fs.Stat(h.Files, strings.TrimPrefix(path, "/"))
	return err == nil
}

// Find finds the host's devices. It takes as long as the vendor's tool, at most patience for each run of it.
func (h *Host) Find(ctx context.Context) Found {
	out := Found{}
	gpus := h.findNVIDIA(ctx, &out)
	specs := h.readSpecifications(&out)
	out.Devices = mergeDevices(gpus, specs, &out)
	out.Devices = append(out.Devices, h.findDRM(out.Devices)...)
	out.limitDevices()
	return out
}

// Most is the greatest number of devices of a worker.
const Most = 64

// limitDevices leaves out the devices beyond Most.
func (f *Found) limitDevices() {
	if n := len(f.Devices); n > Most {
		f.Faults = append(f.Faults, tooMany(n))
		f.Devices = f.Devices[:Most]
	}
}

// validKind turns a vendor's name for a device into a kind: "NVIDIA A100-SXM4-80GB" becomes a100-sxm4-80gb.
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

// kernelNumbers returns the kernel's numbers of nodes.
func kernelNumbers(nodes []Node) []Number {
	out := make([]Number, len(nodes))
	for i, n := range nodes {
		out[i] = n.Kernel
	}
	return out
}

// Denied returns what a machine that holds the devices of these ids may not use: the nodes of all other devices, and
// the driver nodes that only holders need.
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
		// deny each node: a denied major number cannot have exceptions
		for _, minor := range deniedMinors(f.uvm == major) {
			if n := (Number{Major: major, Minor: minor}); !slices.Contains(may, n) {
				deny = append(deny, n)
			}
		}
	}
	return Deny(deny)
}

// deniedMinors returns the minor numbers of a driver to deny one by one to a machine that may use some of them, whether
// the nodes exist yet or not: GPUs, and the node that sets display modes. The nodes that all GPUs share are not among
// them.
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
