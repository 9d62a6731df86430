package devices

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"unicode"

	"tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/pkg/parser"
	specs "tags.cncf.io/container-device-interface/specs-go"
)

// Limits of specifications. NVIDIA's has about 100 mounts.
const (
	maxSpecs = 64 // files in one directory
	maxEdits = 512
	maxText  = 4096 // bytes of a variable or a path
)

// described is a device from a specification.
type described struct {
	Device
	class string // "nvidia.com/gpu"
	own   []Node // the nodes that its specification does not give to all its devices
	file  string
	from  int // index of its directory
}

// readSpecifications reads the CDI specifications of this host.
func (h *Host) readSpecifications(out *Found) []described {
	var all []described
	fault := func(format string, args ...any) { out.Faults = append(out.Faults, fmt.Sprintf(format, args...)) }
	for from, dir := range h.CDI {
		entries, err := fs.ReadDir(h.Files, strings.TrimPrefix(path.Clean(dir), "/"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			fault("the directory of CDI specifications %s cannot be read: %v", dir, lastCause(err))
		}
		n := 0
		for _, e := range entries {
			file := path.Join(dir, e.Name())
			if ext := path.Ext(file); ext != ".json" && ext != ".yaml" {
				continue
			}
			if n++; n > maxSpecs {
				fault("%s has more than %d CDI specifications; those from %.80q on are left out", dir, maxSpecs,
					e.Name())
				break
			}
			got, hooks, err := h.readSpecification(file)
			if err != nil {
				fault("the CDI specification %.200q is left out: %s", file, oneLine(err))
				continue
			}
			if hooks {
				out.Hooked = append(out.Hooked, file)
			}
			for _, d := range got {
				d.from = from
				if all = append(all, d.described); d.wrong != nil {
					all = all[:len(all)-1]
					fault("the device %s of %.200q is left out: %s", d.ID, file, oneLine(d.wrong))
				}
			}
		}
	}
	return distinctDevices(all, fault)
}

// judged is a device from a specification, and why it is invalid.
type judged struct {
	described
	wrong error
}

// readSpecification reads one specification, and reports whether it has hooks.
func (h *Host) readSpecification(file string) (out []judged, hooks bool, err error) {
	raw, err := h.readRegular(file)
	if err != nil {
		return nil, false, err
	}
	s, err := cdi.ParseSpec(raw)
	if err != nil {
		return nil, false, errors.New(strings.TrimPrefix(err.Error(), "failed to unmarshal CDI Spec: "))
	}
	if s == nil {
		return nil, false, errors.New("it is empty")
	}
	vendor, class := parser.ParseQualifier(s.Kind)
	if err := errors.Join(specs.ValidateVersion(s), parser.ValidateVendorName(vendor),
		parser.ValidateClassName(class)); err != nil {
		return nil, false, err
	}
	shared := described{class: s.Kind}
	if err := h.judgeEdits(&shared, &s.ContainerEdits); err != nil {
		return nil, false, fmt.Errorf("what is of all its devices is not fit: %w", err)
	}
	if len(s.Devices) > maxEdits {
		return nil, false, fmt.Errorf("it has %d devices, more than %d", len(s.Devices), maxEdits)
	}
	hooks = len(shared.Hooks) > 0
	for i := range s.Devices {
		d := judged{described: described{class: s.Kind, file: file}}
		d.ID, d.order = parser.QualifiedName(vendor, class, s.Devices[i].Name), i
		d.Kind, d.Model = validKind(strings.ReplaceAll(s.Kind, "/", "-")), s.Kind
		d.wrong = errors.Join(parser.ValidateDeviceName(s.Devices[i].Name),
			h.judgeEdits(&d.described, &s.Devices[i].ContainerEdits))
		if d.wrong == nil && !validID(d.ID) {
			d.wrong = errors.New("its name is too long")
		}
		hooks = hooks || len(d.Hooks) > 0
		d.own = d.Nodes
		d.Nodes, d.Env = slices.Concat(d.own, shared.Nodes), slices.Concat(shared.Env, d.Env)
		d.Mounts, d.Hooks = slices.Concat(shared.Mounts, d.Mounts), slices.Concat(shared.Hooks, d.Hooks)
		out = append(out, d)
	}
	return out, hooks, nil
}

// readRegular reads a regular file of at most maxFile bytes. It refuses others, such as a pipe that never ends.
func (h *Host) readRegular(file string) ([]byte, error) {
	name := strings.TrimPrefix(path.Clean(file), "/")
	st, err := fs.Stat(h.Files, name)
	switch {
	case err != nil:
		return nil, lastCause(err)
	case !st.Mode().IsRegular():
		return nil, errors.New("it is no regular file")
	case st.Size() > maxFile:
		return nil, fmt.Errorf("it has %d bytes, more than %d", st.Size(), maxFile)
	}
	f, err := h.Files.Open(name)
	if err != nil {
		return nil, lastCause(err)
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return nil, lastCause(err)
	}
	if len(bytes.TrimSpace(raw)) == 0 {
		return nil, errors.New("it is empty")
	}
	return raw, nil
}

// judgeEdits validates a specification's changes to a container, and adds them to d.
func (h *Host) judgeEdits(d *described, e *specs.ContainerEdits) error {
	if err := (&cdi.ContainerEdits{ContainerEdits: e}).Validate(); err != nil {
		return err
	}
	if n := len(e.Env) + len(e.DeviceNodes) + len(e.Mounts) + len(e.Hooks); n > maxEdits {
		return fmt.Errorf("it asks for %d nodes, mounts, variables and hooks, more than %d", n, maxEdits)
	}
	if len(e.NetDevices) > 0 || e.IntelRdt != nil {
		return errors.New("it asks for network devices or Intel RDT, which souk does not give")
	}
	for _, n := range e.DeviceNodes {
		node, err := h.lookAtNode(n)
		if err != nil {
			return err
		}
		if !slices.Contains(d.Nodes, node) {
			d.Nodes = append(d.Nodes, node)
		}
	}
	for _, kv := range e.Env {
		name, _, _ := strings.Cut(kv, "=")
		if len(kv) > maxText || strings.ContainsFunc(kv, unicode.IsControl) || strings.HasPrefix(name, "SOUK_") ||
			strings.HasPrefix(name, "FLY_") {
			return fmt.Errorf("it sets the variable %.80q, which must be one line of at most %d bytes and not souk's "+
				"own", kv, maxText)
		}
		d.Env = append(d.Env, kv)
	}
	for _, m := range e.Mounts {
		if !canMount(m.HostPath) || !canMount(m.ContainerPath) || m.Type != "" && m.Type != "bind" {
			return fmt.Errorf("it mounts %.80q at %.80q: both must be paths without '..', not /, and not below /proc, "+
				"/sys or /dev", m.HostPath, m.ContainerPath)
		}
		if !h.pathExists(m.HostPath) {
			return fmt.Errorf("it mounts %.80q, which is not there", m.HostPath)
		}
		d.Mounts = append(d.Mounts, Mount{m.HostPath, m.ContainerPath})
	}
	for _, k := range e.Hooks {
		if !canMount(k.Path) {
			return fmt.Errorf("its hook %.80q is no path of a program", k.Path)
		}
		d.Hooks = append(d.Hooks, Hook{k.HookName, k.Path, k.Args, k.Env})
	}
	return nil
}

// canMount reports whether a path may be mounted, or mounted over.
func canMount(p string) bool {
	return isCleanPath(p) && p != "/" && !isBelow(p, "/proc") && !isBelow(p, "/sys") && !isBelow(p, "/dev")
}

func isCleanPath(p string) bool {
	return path.IsAbs(p) && path.Clean(p) == p && len(p) <= maxText && !strings.ContainsFunc(p, unicode.IsControl)
}

func isBelow(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }

// lookAtNode finds and validates a node that a specification names.
func (h *Host) lookAtNode(n *specs.DeviceNode) (Node, error) {
	at := cmp.Or(n.HostPath, n.Path)
	if !isCleanPath(n.Path) || !isBelow(n.Path, "/dev") || n.Path == "/dev" || !isCleanPath(at) {
		return Node{}, fmt.Errorf("its node %.80q must be a path below /dev, without '..'", n.Path)
	}
	node, err := h.Node(at)
	if err != nil {
		return node, fmt.Errorf("its node %.80q cannot be found: %w", at, lastCause(err))
	}
	node.Path, node.Host = n.Path, at
	k := node.Kernel
	if kind := map[bool]string{true: "b", false: "c"}[k.Block]; n.Type != "" && (n.Type != kind || n.Major != 0 &&
		(n.Major != k.Major || n.Minor != k.Minor)) {
		return node, fmt.Errorf("its node %.80q is %s %d:%d, and not %.4q %d:%d", at, kind, k.Major, k.Minor, n.Type,
			n.Major, n.Minor)
	}
	if isForAll(node) {
		return node, fmt.Errorf("its node %.80q is one that every machine has", at)
	}
	return node, nil
}

// isForAll reports whether every program needs a node: a machine that held it alone would take it from all others.
func isForAll(n Node) bool {
	k := n.Kernel
	return !k.Block && (k.Major == 1 && (k.Minor == 3 || k.Minor == 8 || k.Minor == 9) || // null, random, urandom
		k.Major == 5 || k.Major >= 136 && k.Major <= 143) // tty, console, ptmx, and terminals
}

// oneLine formats an error for use in a sentence.
func oneLine(err error) string {
	return strings.ToValidUTF8(fmt.Sprintf("%.300s", strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ReplaceAll(err.Error(), "\n", "; "))), "")
}

// distinctDevices returns each device once. Of devices with one name, one of a later directory overrides those of
// earlier ones; two in one directory are both left out. A device without a node of its own is left out.
func distinctDevices(all []described, fault func(string, ...any)) (out []described) {
	named := map[string][]described{}
	for _, d := range all {
		named[d.ID] = append(named[d.ID], d)
	}
	for _, d := range all {
		same := named[d.ID]
		last := slices.MaxFunc(same, func(a, b described) int { return a.from - b.from })
		n := 0
		for _, o := range same {
			if o.from == last.from {
				n++
			}
		}
		switch {
		case d.from != last.from:
		case n > 1:
			fault("the device %s of %.200q is left out: %d specifications of that directory have one of this name",
				d.ID, d.file, n)
		case len(d.own) == 0:
			fault("the device %s of %.200q is left out: it has no node of its own, so nobody could be kept from it",
				d.ID, d.file)
		default:
			out = append(out, d)
		}
	}
	return out
}

// hasSharedNode reports whether two lists of nodes have a node in common.
func hasSharedNode(a, b []Node) bool {
	return slices.ContainsFunc(a, func(n Node) bool {
		return slices.ContainsFunc(b, func(o Node) bool { return n.Kernel == o.Kernel })
	})
}

// mergeDevices combines the GPUs that the vendor's tool reports with the devices of specifications.
func mergeDevices(gpus []Device, all []described, out *Found) []Device {
	list := slices.Clone(gpus)
	for i := range list {
		if d := findDescription(list[i], all); d != nil {
			g := &list[i]
			for _, n := range d.Nodes {
				if !slices.ContainsFunc(g.Nodes, func(o Node) bool { return o.Kernel == n.Kernel }) {
					g.Nodes = append(g.Nodes, n)
				}
			}
			g.Env, g.Mounts, g.Hooks = append(slices.Clone(d.Env), visibleVariables(g.ID)...), d.Mounts, d.Hooks
		}
	}
	slices.SortStableFunc(all, func(a, b described) int {
		return cmp.Or(cmp.Compare(len(a.own), len(b.own)), cmp.Compare(a.class, b.class))
	})
	var taken []described
	for _, d := range all {
		if d.class == nvidiaClass && len(gpus) > 0 {
			continue // the driver has reported them
		}
		i := slices.IndexFunc(taken, func(o described) bool { return hasSharedNode(o.own, d.own) })
		switch {
		case slices.ContainsFunc(gpus, func(g Device) bool {
			return len(g.Nodes) > 0 && hasSharedNode(g.Nodes[:1],
				d.own)
		}):
			out.Faults = append(out.Faults, fmt.Sprintf("the device %s of %.200q is left out: it has a node of a GPU",
				d.ID, d.file))
		case i < 0:
			taken = append(taken, d)
		case taken[i].class != d.class:
			out.Faults = append(out.Faults, fmt.Sprintf("the device %s of %.200q is left out: it has a node of %s",
				d.ID, d.file, taken[i].ID))
		}
	}
	slices.SortStableFunc(taken, func(a, b described) int {
		return cmp.Or(cmp.Compare(a.class, b.class), cmp.Compare(a.file, b.file), cmp.Compare(a.order, b.order))
	})
	for _, d := range taken {
		list = append(list, d.Device)
	}
	return list
}

const nvidiaClass = "nvidia.com/gpu"

// findDescription returns the specification's device for a GPU or a part of one, nil if there is none.
func findDescription(g Device, all []described) *described {
	own := func(nodes []Node) (out []Node) { // the nodes of GPUs and of their parts
		for _, n := range nodes {
			if strings.HasPrefix(n.Host, "/dev/nvidia-caps/") || n.Kernel.Major == nvidiaMajor && n.Kernel.Minor < 254 {
				out = append(out, n)
			}
		}
		return out
	}
	want := own(g.Nodes)
	for i := range all {
		got := own(all[i].own)
		if all[i].class == nvidiaClass && len(want) > 0 && len(got) == len(want) && !slices.ContainsFunc(want,
			func(n Node) bool { return !hasSharedNode([]Node{n}, got) }) {
			return &all[i]
		}
	}
	return nil
}

func tooMany(n int) string {
	return fmt.Sprintf("there are %d devices, and a worker tells of %d at the most", n, Most)
}
