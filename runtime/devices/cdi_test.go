package devices_test

import (
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/soukhq/souk/runtime/devices"
)

// gadgets is a host with three nodes and no GPU.
func gadgets() *recorded {
	r := &recorded{files: fstest.MapFS{}, nodes: map[string]devices.Number{}}
	r.node("/dev/fuse", 10, 229)
	r.node("/dev/loop-control", 10, 237)
	r.node("/dev/full", 1, 7)
	r.node("/dev/null", 1, 3)
	r.file("/opt/lib.so", "")
	return r
}

// spec is one of a device with these edits.
func spec(kind, name, edits string) string {
	return fmt.Sprintf(`{"cdiVersion":"0.6.0","kind":%q,"devices":[{"name":%q,"containerEdits":{%s}}]}`, kind, name, edits)
}

func TestCDIDevicesAreFoundGivenAndDenied(t *testing.T) {
	r := gadgets()
	r.file("/etc/cdi/example.yaml", `cdiVersion: "0.7.0"
kind: example.com/gadget
containerEdits:
  env: [COMMON=1]
  deviceNodes: [{path: /dev/full}]
devices:
- name: a
  containerEdits:
    deviceNodes: [{path: /dev/fuse, type: c, major: 10, minor: 229}]
    mounts: [{hostPath: /opt/lib.so, containerPath: /usr/lib/lib.so, options: [rw]}]
    hooks: [{hookName: createContainer, path: /usr/bin/hook, args: [hook, run]}]
- name: b
  containerEdits:
    deviceNodes: [{path: /dev/gadget-b, hostPath: /dev/loop-control}]
- name: all
  containerEdits:
    deviceNodes: [{path: /dev/fuse}, {path: /dev/loop-control}]
`)
	for _, hooks := range []bool{false, true} {
		s := devices.Open(t.Context(), devices.Options{Host: r.host(), Hooks: hooks})
		var got []string
		for _, g := range s.Offer() {
			got = append(got, g.ID+" "+g.Kind+" "+g.Health)
		}
		if d := cmp.Diff([]string{"example.com/gadget=a example.com-gadget ",
			"example.com/gadget=b example.com-gadget "}, got); d != "" {
			t.Error(d)
		}
		g, err := s.Give([]string{"example.com/gadget=a", "example.com/gadget=b"})
		if err != nil {
			t.Fatal(err)
		}
		var nodes []string
		for _, n := range g.Nodes {
			nodes = append(nodes, n.Path+" "+n.Host)
		}
		if d := cmp.Diff([]string{"/dev/fuse /dev/fuse", "/dev/full /dev/full", "/dev/gadget-b /dev/loop-control"},
			nodes); d != "" {
			t.Error(d)
		}
		if len(g.Hooks) > 0 != hooks || len(g.Mounts) != 1 || g.Env[0] != "COMMON=1" {
			t.Errorf("given %+v", g)
		}
		if got := s.Denied([]string{"example.com/gadget=b"}); got != "c 10:229" {
			t.Errorf("who holds b is denied %q", got)
		}
		told := false
		for _, f := range s.Examine() {
			told = told || strings.Contains(f.Have, "hooks") && f.OK == hooks
		}
		if !told {
			t.Errorf("souk doctor does not tell of the hooks: %+v", s.Examine())
		}
	}
}

// TestHostileSpecificationIsReportedAlone: a fault in a specification or device is reported in one line, and the other
// devices are found.
func TestHostileSpecificationIsReportedAlone(t *testing.T) {
	node := func(path string) string { return `"deviceNodes":[{"path":"` + path + `"}]` }
	fuse := node("/dev/fuse")
	mount := func(from, to string) string {
		return spec("a.com/b", "x", fuse+`,"mounts":[{"hostPath":"`+from+`","containerPath":"`+to+`"}]`)
	}
	hook := func(name, path string) string {
		return spec("a.com/b", "x", fuse+`,"hooks":[{"hookName":"`+name+`","path":"`+path+`"}]`)
	}
	netDevices := `,"netDevices":[{"hostInterfaceName":"eth0","name":"x"}]`
	for name, c := range map[string]struct{ text, says string }{
		"torn":          {`{"cdiVersion":"0.6.0","kind":"a.com/b","dev`, "left out"},
		"empty":         {"", "it is empty"},
		"null":          {"null", "it is empty"},
		"unknown field": {`{"cdiVersion":"0.6.0","kind":"a.com/b","extra":1,"devices":[]}`, "left out"},
		"version":       {strings.Replace(spec("a.com/b", "x", fuse), "0.6.0", "99.0.0", 1), "99.0.0"},
		"no kind":       {spec("", "x", fuse), "left out"},
		"huge":          {strings.Repeat(" ", 2<<20), "2097152 bytes, more than"},
		"an alias bomb": {"a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nkind: a.com/b\n", "left out"},
		"name":          {spec("a.com/b", "../x", fuse), "is left out"},
		"up":            {spec("a.com/b", "x", node("/dev/../etc/shadow")), "without '..'"},
		"not in dev":    {spec("a.com/b", "x", node("/etc/shadow")), "below /dev"},
		"missing":       {spec("a.com/b", "x", node("/dev/none")), "cannot be found"},
		"everyone's":    {spec("a.com/b", "x", node("/dev/null")), "every machine has"},
		"another": {spec("a.com/b", "x", `"deviceNodes":[{"path":"/dev/fuse","type":"c","major":8,"minor":0}]`),
			"and not"},
		"a pipe":        {spec("a.com/b", "x", `"deviceNodes":[{"path":"/dev/fuse","type":"p"}]`), "and not"},
		"no node":       {spec("a.com/b", "x", `"env":["A=1"]`), "no node of its own"},
		"nothing":       {spec("a.com/b", "x", ``), "left out"},
		"over /":        {mount("/opt/lib.so", "/"), "not /"},
		"of /":          {mount("/", "/host"), "not /"},
		"over proc":     {mount("/opt/lib.so", "/proc/1/x"), "not below"},
		"mount up":      {mount("/opt/../etc", "/x"), "without '..'"},
		"mount missing": {mount("/opt/none", "/x"), "is not there"},
		"tmpfs":         {mount("/opt/lib.so", `/x","type":"tmpfs`), "must be paths"},
		"env of lines":  {spec("a.com/b", "x", fuse+`,"env":["A=1\nB=2"]`), "one line"},
		"env of souk":   {spec("a.com/b", "x", fuse+`,"env":["SOUK_FENCE=9"]`), "not souk's own"},
		"env long":      {spec("a.com/b", "x", fuse+`,"env":["A=`+strings.Repeat("x", 5000)+`"]`), "at most 4096"},
		"a hook":        {hook("createContainer", "bin/hook"), "no path of a program"},
		"hook's name":   {hook("whenever", "/bin/hook"), "left out"},
		"net devices": {strings.Replace(spec("a.com/b", "x", fuse+netDevices), "0.6.0", "1.1.0", 1),
			"network devices"},
		"many": {spec("a.com/b", "x", fuse+`,"env":[`+strings.TrimSuffix(strings.Repeat(`"A=1",`, 600), ",")+`]`),
			"more than 512"},
	} {
		r := gadgets()
		r.file("/etc/cdi/bad.json", c.text)
		r.file("/etc/cdi/good.json", spec("example.com/good", "g", node("/dev/loop-control")))
		h := r.host()
		f := h.Find(t.Context())
		if len(f.Devices) != 1 || f.Devices[0].ID != "example.com/good=g" {
			t.Errorf("%s: found %+v", name, f.Devices)
		}
		if len(f.Faults) != 1 || !strings.Contains(f.Faults[0], c.says) || strings.ContainsAny(f.Faults[0], "\n\x1b") ||
			len(f.Faults[0]) > 600 {
			t.Errorf("%s: it says %q, want one line with %q", name, f.Faults, c.says)
		}
	}
}

// TestCDINameConflictsAreResolved: which of two of a name counts, and who has a node that two want.
func TestCDINameConflictsAreResolved(t *testing.T) {
	fuse, loop := `"deviceNodes":[{"path":"/dev/fuse"}]`, `"deviceNodes":[{"path":"/dev/loop-control"}]`
	for _, c := range []struct {
		name   string
		files  map[string]string
		want   string
		faults int
	}{
		{"a later directory", map[string]string{"/etc/cdi/a.json": spec("a.com/b", "x", fuse),
			"/var/run/cdi/a.json": spec("a.com/b", "x", loop)}, "a.com/b=x /dev/loop-control", 0},
		{"twice in one", map[string]string{"/etc/cdi/a.json": spec("a.com/b", "x", fuse),
			"/etc/cdi/b.json": spec("a.com/b", "x", loop), "/etc/cdi/c.json": spec("a.com/b", "y", loop)},
			"a.com/b=y /dev/loop-control", 2},
		{"a node of two kinds", map[string]string{"/etc/cdi/a.json": spec("a.com/b", "x", fuse),
			"/etc/cdi/b.json": spec("z.com/b", "x", fuse)}, "a.com/b=x /dev/fuse", 1},
		{"a device of two names", map[string]string{"/etc/cdi/a.json": spec("a.com/b", "x", fuse),
			"/etc/cdi/b.json": spec("a.com/b", "uuid", fuse)}, "a.com/b=x /dev/fuse", 0},
	} {
		r := gadgets()
		for path, text := range c.files {
			r.file(path, text)
		}
		h := r.host()
		f := h.Find(t.Context())
		var got []string
		for _, d := range f.Devices {
			got = append(got, d.ID+" "+paths(d))
		}
		if strings.Join(got, ", ") != c.want || len(f.Faults) != c.faults {
			t.Errorf("%s: found %v, want %s; it says %q", c.name, got, c.want, f.Faults)
		}
	}
}

// TestNVIDIASpecificationCountsEachGPUOnce: the specification says what belongs to a GPU, the driver how it is, and it counts once.
func TestNVIDIASpecificationCountsEachGPUOnce(t *testing.T) {
	r := divided()
	r.file("/opt/libcuda.so", "")
	node := func(paths ...string) string {
		for i := range paths {
			paths[i] = `{"path":"` + paths[i] + `"}`
		}
		return `"deviceNodes":[` + strings.Join(paths, ",") + `]`
	}
	device := func(name, edits string) string { return `{"name":"` + name + `","containerEdits":{` + edits + `}}` }
	r.file("/var/run/cdi/nvidia.json", `{"cdiVersion":"0.5.0","kind":"nvidia.com/gpu","containerEdits":{`+
		node("/dev/nvidiactl", "/dev/nvidia-uvm")+`,
		"mounts":[{"hostPath":"/opt/libcuda.so","containerPath":"/usr/lib/libcuda.so"}],
		"env":["NVIDIA_VISIBLE_DEVICES=void"]},"devices":[`+strings.Join([]string{
		device("0:0", node("/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap12", "/dev/nvidia-caps/nvidia-cap13")),
		device("1", node("/dev/nvidia1")), device(second, node("/dev/nvidia1")),
		device("all", node("/dev/nvidia0", "/dev/nvidia1"))}, ",")+`]}`)
	h := r.host()
	f := h.Find(t.Context())
	if len(f.Devices) != 3 || len(f.Faults) != 0 {
		t.Fatalf("found %+v", f)
	}
	for i, mount := range []string{"/opt/libcuda.so", "/usr/local/nvidia", "/opt/libcuda.so"} {
		d := f.Devices[i]
		if d.Mounts[0].From != mount || d.Env[len(d.Env)-1] != "CUDA_VISIBLE_DEVICES="+d.ID || d.Memory == 0 {
			t.Errorf("found %+v", d)
		}
	}
	for path := range r.files { // without the driver's own word the specification stands alone
		if strings.HasPrefix(path, "proc/driver") || path == "dev/nvidiactl" {
			delete(r.files, path)
		}
	}
	f = h.Find(t.Context())
	var got []string
	for _, d := range f.Devices {
		got = append(got, d.ID)
	}
	if d := cmp.Diff([]string{"nvidia.com/gpu=0:0", "nvidia.com/gpu=1"}, got); d != "" {
		t.Error(d, f.Faults)
	}
}

// TestPipeAmongSpecificationsIsSkipped: a pipe among the specifications is not waited for.
func TestPipeAmongSpecificationsIsSkipped(t *testing.T) {
	r := gadgets()
	r.files["etc/cdi/pipe.json"] = &fstest.MapFile{Mode: fs.ModeNamedPipe | 0o644}
	h := r.host()
	if f := h.Find(t.Context()); len(f.Faults) != 1 || !strings.Contains(f.Faults[0], "no regular file") {
		t.Errorf("it says %q", f.Faults)
	}
}

func FuzzSpecificationIsReadOrReported(f *testing.F) {
	f.Add([]byte(spec("a.com/b", "x", `"deviceNodes":[{"path":"/dev/fuse"}]`)))
	f.Add([]byte("cdiVersion: 0.6.0\nkind: a.com/b\ndevices: [{name: x, containerEdits: {env: [A=1]}}]\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		r := gadgets()
		r.file("/etc/cdi/x.yaml", string(raw))
		h := r.host()
		found := h.Find(t.Context())
		for _, d := range found.Devices {
			for _, n := range d.Nodes {
				if !strings.HasPrefix(n.Path, "/dev/") || strings.Contains(n.Path, "/../") {
					t.Errorf("found %+v", d)
				}
			}
			for _, kv := range d.Env {
				if strings.ContainsAny(kv, "\n\x00") {
					t.Errorf("found %+v", d)
				}
			}
		}
		for _, s := range found.Faults {
			if strings.ContainsAny(s, "\n\x1b") {
				t.Errorf("it says %q", s)
			}
		}
	})
}
