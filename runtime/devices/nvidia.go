package devices

import (
	"cmp"
	"context"
	"encoding/csv"
	"encoding/xml"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"path"
	"regexp"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
)

// nvidiaFolder is the driver's directory if the host's package manager did not install it. NVIDIA's images also look
// for a driver there.
const nvidiaFolder = "/usr/local/nvidia"

const (
	nvidiaGPUs  = "/proc/driver/nvidia/gpus/*/information"
	nvidiaCaps  = "/proc/driver/nvidia/capabilities"
	nvidiaMajor = 195 // major number of /dev/nvidia0 and so on, and of nvidiactl
)

func libraryArch() string {
	switch goruntime.GOARCH {
	case "amd64":
		return "x86_64-linux-gnu"
	case "arm64":
		return "aarch64-linux-gnu"
	}
	return goruntime.GOARCH + "-linux-gnu"
}

// gpu is the vendor tool's report on one GPU.
type gpu struct {
	uuid   string
	name   string
	memory int64
	health string
	parts  []part // its MIG instances; a divided GPU is not given as a whole
	mig    bool   // MIG mode is on; parts may still be empty
}

// part is a MIG instance.
type part struct {
	profile string // "1g.18gb"
	uuid    string
	memory  int64
	gi, ci  int
}

// findNVIDIA finds NVIDIA's GPUs from what the driver reports.
func (h *Host) findNVIDIA(ctx context.Context, out *Found) []Device {
	infos := h.globPaths(nvidiaGPUs)
	if len(infos) == 0 && !h.pathExists("/dev/nvidiactl") {
		return nil
	}
	out.majors, out.uvm = h.nvidiaMajors()
	known, err := h.querySMI(ctx)
	if err != nil {
		out.Faults = append(out.Faults, fmt.Sprintf("nvidia-smi does not say how NVIDIA's GPUs are: %v; they are "+
			"given to nobody until it does", err))
	}
	shared := h.existingNodes("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
	mounts := h.nvidiaLibraries()
	var all []Device
	for _, info := range infos {
		fields := parseColonLines(h.readFile(info))
		uuid, minor := fields["GPU UUID"], fields["Device Minor"]
		n, wrong := strconv.Atoi(minor)
		if wrong != nil || n < 0 || !validID(uuid) {
			out.Faults = append(out.Faults, fmt.Sprintf("%s names no UUID and no minor number, so that GPU is left out",
				info))
			continue
		}
		d := Device{ID: uuid, Model: fields["Model"], Kind: validKind(fields["Model"]), vendor: "nvidia", order: n,
			Mounts: mounts, Health: "nvidia-smi does not tell of it"}
		i := slices.IndexFunc(known, func(g gpu) bool { return g.uuid == uuid })
		if i >= 0 {
			d.Model, d.Kind = cmp.Or(known[i].name, d.Model), validKind(cmp.Or(known[i].name, d.Model))
			d.Memory, d.Health = known[i].memory, known[i].health
		}
		own, wrong := h.Node("/dev/nvidia" + minor)
		if wrong != nil {
			d.Health = cmp.Or(d.Health, fmt.Sprintf("its node /dev/nvidia%s cannot be found: %v", minor,
				lastCause(wrong)))
		} else {
			d.Nodes = append(d.Nodes, own)
		}
		d.Nodes = slices.Concat(d.Nodes, h.drmOf(path.Base(path.Dir(info))), shared)
		if d.Kind = cmp.Or(d.Kind, "nvidia"); i >= 0 && known[i].mig {
			all = append(all, h.partDevices(d, known[i], n)...)
			continue
		}
		d.Env = visibleVariables(d.ID)
		all = append(all, d)
	}
	slices.SortStableFunc(all, func(a, b Device) int { return a.order - b.order })
	return all
}

// visibleVariables are the variables that make CUDA and NVIDIA's container tools use only one device.
func visibleVariables(id string) []string {
	return []string{"NVIDIA_VISIBLE_DEVICES=" + id, "CUDA_VISIBLE_DEVICES=" + id}
}

// partDevices makes a device of each part of a GPU.
func (h *Host) partDevices(whole Device, g gpu, minor int) (out []Device) {
	for _, p := range g.parts {
		d := whole
		d.ID, d.Kind = p.uuid, validKind(whole.Kind+"-"+p.profile)
		d.Model, d.Memory = whole.Model+" MIG "+p.profile, p.memory
		d.Nodes, d.Env = slices.Clone(whole.Nodes), visibleVariables(p.uuid)
		dir := fmt.Sprintf("%s/gpu%d/mig/gi%d", nvidiaCaps, minor, p.gi)
		for _, access := range []string{dir + "/access", fmt.Sprintf("%s/ci%d/access", dir, p.ci)} {
			number := parseColonLines(h.readFile(access))["DeviceFileMinor"]
			node, err := h.Node("/dev/nvidia-caps/nvidia-cap" + number)
			if number == "" || err != nil {
				d.Health = cmp.Or(d.Health, "the driver names no node for what "+access+" allows")
				continue
			}
			d.Nodes = append(d.Nodes, node)
		}
		out = append(out, d)
	}
	return out
}

// smiFields are the fields to query from nvidia-smi, in this order.
const smiFields = "uuid,name,memory.total,mig.mode.current,ecc.errors.uncorrected.volatile.total"

// querySMI queries the vendor's tool for all GPUs and their parts.
func (h *Host) querySMI(ctx context.Context) ([]gpu, error) {
	if h.Run == nil {
		return nil, errors.New("there is no such program")
	}
	raw, err := h.Run(ctx, "nvidia-smi", "--query-gpu="+smiFields, "--format=csv,noheader,nounits")
	if err != nil && len(raw) == 0 {
		return nil, lastCause(err)
	}
	gpus, err := parseSMI(string(raw))
	if err != nil || !slices.ContainsFunc(gpus, func(g gpu) bool { return g.mig }) {
		return gpus, err
	}
	if raw, err = h.Run(ctx, "nvidia-smi", "-L"); err != nil {
		return gpus, lastCause(err)
	}
	list := string(raw)
	if raw, err = h.Run(ctx, "nvidia-smi", "-q", "-x"); err != nil {
		return gpus, lastCause(err)
	}
	return gpus, parseMIG(gpus, list, raw)
}

// lastCause shortens an error to the cause that a reader of one sentence needs.
func lastCause(err error) error {
	if missing := (*exec.Error)(nil); errors.As(err, &missing) {
		return errors.New("there is no such program")
	}
	if p := (*fs.PathError)(nil); errors.As(err, &p) {
		return p.Err
	}
	return err
}

// parseSMI parses the answer to smiFields.
func parseSMI(text string) ([]gpu, error) {
	r := csv.NewReader(strings.NewReader(text))
	r.TrimLeadingSpace, r.FieldsPerRecord, r.LazyQuotes = true, -1, true
	lines, err := r.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("its answer is no table: %w", err)
	}
	var out []gpu
	for _, f := range lines {
		if len(f) != len(strings.Split(smiFields, ",")) || !validID(f[0]) {
			return out, fmt.Errorf("its answer has the line %.80q", strings.Join(f, ", "))
		}
		g := gpu{uuid: f[0], name: f[1], mig: f[3] == "Enabled"}
		var wrong error
		if g.memory, wrong = strconv.ParseInt(f[2], 10, 64); wrong != nil || g.memory < 0 || g.memory > 1<<30 {
			g.memory = 0
			g.health = "nvidia-smi cannot read its memory" // "[GPU is lost]", "[Unknown Error]"
		}
		if n, wrong := strconv.ParseInt(f[4], 10, 64); wrong == nil && n > 0 {
			g.health = fmt.Sprintf("%d errors of its memory could not be corrected", n)
		}
		out = append(out, g)
	}
	return out, nil
}

var (
	gpuLine = regexp.MustCompile(`^GPU \d+: .*\(UUID: (GPU-[0-9a-fA-F-]+)\)`)
	migLine = regexp.MustCompile(`^\s+MIG (\S+)\s+Device\s+(\d+): \(UUID: (MIG-[0-9a-zA-Z/-]+)\)`)
)

// migLog is the part of the output of "nvidia-smi -q -x" about the parts of GPUs. It lacks their UUIDs.
type migLog struct {
	GPUs []struct {
		UUID  string `xml:"uuid"`
		Parts []struct {
			Index  int    `xml:"index"`
			GI     int    `xml:"gpu_instance_id"`
			CI     int    `xml:"compute_instance_id"`
			Memory string `xml:"fb_memory_usage>total"` // "16384 MiB"
		} `xml:"mig_devices>mig_device"`
	} `xml:"gpu"`
}

// parseMIG adds the parts of GPUs, from the output of "nvidia-smi -L" and "nvidia-smi -q -x".
func parseMIG(gpus []gpu, list string, about []byte) error {
	var log migLog
	if err := xml.Unmarshal(about, &log); err != nil {
		return fmt.Errorf("what it says of MIG is no XML: %w", err)
	}
	var of *gpu
	for line := range strings.Lines(list) {
		if m := gpuLine.FindStringSubmatch(line); m != nil {
			of = nil
			if i := slices.IndexFunc(gpus, func(g gpu) bool { return g.uuid == m[1] }); i >= 0 {
				of = &gpus[i]
			}
			continue
		}
		m := migLine.FindStringSubmatch(line)
		if m == nil || of == nil || !of.mig {
			continue
		}
		p := part{profile: m[1], uuid: m[3], memory: profileMiB(m[1]), gi: -1, ci: -1}
		for _, g := range log.GPUs {
			for _, x := range g.Parts {
				if g.UUID != of.uuid || strconv.Itoa(x.Index) != m[2] {
					continue
				}
				p.gi, p.ci = x.GI, x.CI
				if n, err := strconv.ParseInt(strings.TrimSuffix(x.Memory, " MiB"), 10, 32); err == nil && n > 0 {
					p.memory = n
				}
			}
		}
		of.parts = append(of.parts, p)
	}
	return nil
}

// profileMiB returns the memory in the name of a profile such as 1g.18gb.
func profileMiB(profile string) int64 {
	_, size, _ := strings.Cut(profile, ".")
	size, _, _ = strings.Cut(size, "+")
	n, err := strconv.ParseInt(strings.TrimSuffix(size, "gb"), 10, 32)
	if err != nil || n < 0 {
		return 0
	}
	return n * 1024
}

// parseColonLines parses lines of "name: value".
func parseColonLines(text string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, is := strings.Cut(line, ":"); is {
			out[strings.TrimSpace(name)] = strings.TrimSpace(value)
		}
	}
	return out
}

// validID reports whether a text can be an id, which is used in variables and records.
func validID(id string) bool {
	return id != "" && len(id) <= 128 && !strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' })
}

// existingNodes returns those of the paths that are device nodes.
func (h *Host) existingNodes(paths ...string) (out []Node) {
	for _, p := range paths {
		if n, err := h.Node(p); err == nil {
			out = append(out, n)
		}
	}
	return out
}

// nvidiaMajors returns the major numbers of all of NVIDIA's drivers, and the one of unified memory.
func (h *Host) nvidiaMajors() (out []int64, uvm int64) {
	out = []int64{nvidiaMajor}
	for line := range strings.Lines(h.readFile("/proc/devices")) {
		number, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.ParseInt(number, 10, 32)
		if err == nil && strings.HasPrefix(name, "nvidia") && !slices.Contains(out, n) {
			out = append(out, n)
		}
		if err == nil && name == "nvidia-uvm" {
			uvm = n
		}
		if strings.HasPrefix(line, "Block") {
			break
		}
	}
	return out, uvm
}

// nvidiaLibraries returns the driver files that a container needs if no specification lists them: the driver's own
// directory, or else its libraries among those of the host, mounted into that directory.
func (h *Host) nvidiaLibraries() []Mount {
	if h.pathExists(nvidiaFolder+"/lib64/libcuda.so.1") || h.pathExists(nvidiaFolder+"/lib/libcuda.so.1") {
		return []Mount{{nvidiaFolder, nvidiaFolder}}
	}
	var out []Mount
	for _, dir := range []string{"/usr/lib/" + h.Arch, "/usr/lib64", "/run/nvidia/driver/usr/lib/" + h.Arch} {
		for _, name := range []string{"libcuda.so*", "libcudadebugger.so*", "libnvidia-*.so*", "libnvcuvid.so*",
			"libnvoptix.so*"} {
			for _, lib := range h.globPaths(dir + "/" + name) {
				out = append(out, Mount{lib, nvidiaFolder + "/lib64/" + path.Base(lib)})
			}
		}
		if len(out) > 0 {
			break
		}
	}
	for _, program := range []string{"/usr/bin/nvidia-smi", "/run/nvidia/driver/usr/bin/nvidia-smi"} {
		if len(out) > 0 && h.pathExists(program) {
			return append(out, Mount{program, nvidiaFolder + "/bin/nvidia-smi"})
		}
	}
	return out
}
