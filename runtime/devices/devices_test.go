package devices_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/runtime/devices"
)

// recorded is a host as a tree of files, its nodes, and what its programs say.
type recorded struct {
	files fstest.MapFS
	nodes map[string]devices.Number
	says  map[string]string // by command line
}

func (r *recorded) file(path, text string) {
	r.files[strings.TrimPrefix(path, "/")] = &fstest.MapFile{Data: []byte(text), Mode: 0o644}
}

func (r *recorded) node(path string, major, minor int64) {
	r.nodes[path] = devices.Number{Major: major, Minor: minor}
	r.file(path, "")
}

func (r *recorded) host() devices.Host {
	return devices.Host{Files: r.files, CDI: devices.DefaultCDI(), Arch: "x86_64-linux-gnu",
		Node: func(path string) (devices.Node, error) {
			k, there := r.nodes[path]
			if !there {
				return devices.Node{}, &fs.PathError{Op: "stat", Path: path, Err: fs.ErrNotExist}
			}
			return devices.Node{Path: path, Host: path, Kernel: k}, nil
		},
		Run: func(_ context.Context, name string, args ...string) ([]byte, error) {
			said, knows := r.says[strings.Join(append([]string{name}, args...), " ")]
			if !knows {
				return nil, errors.New("exit status 9")
			}
			return []byte(said), nil
		}}
}

const (
	h200   = "GPU-0a1b2c3d-0000-4444-8888-00000000000a"
	second = "GPU-0a1b2c3d-0000-4444-8888-00000000000b"
	query  = "nvidia-smi --query-gpu=uuid,name,memory.total,mig.mode.current,ecc.errors.uncorrected.volatile.total " +
		"--format=csv,noheader,nounits"
)

// aBareVM is a machine that was looked at: Ubuntu 24.04, driver 580.159.04, no specification, no DRM.
func aBareVM() *recorded {
	r := &recorded{files: fstest.MapFS{}, nodes: map[string]devices.Number{}, says: map[string]string{}}
	r.file("/proc/driver/nvidia/gpus/0000:00:06.0/information", `Model: 		 NVIDIA H200
IRQ:   		 41
GPU UUID: 	 `+h200+`
Video BIOS: 	 96.00.a5.00.1a
Bus Type: 	 PCIe
Bus Location: 	 0000:00:06.0
Device Minor: 	 0
GPU Firmware: 	 580.159.04
GPU Excluded:	 No
`)
	r.file("/proc/devices", `Character devices:
  1 mem
195 nvidia
195 nvidiactl
238 nvidia-uvm
239 nvidia-nvswitch
240 nvidia-nvlink
241 nvidia-caps
242 nvidia-caps-imex-channels

Block devices:
253 nvidia-is-no-block-device
`)
	r.node("/dev/nvidia0", 195, 0)
	r.node("/dev/nvidiactl", 195, 255)
	r.node("/dev/nvidia-uvm", 238, 0)
	r.node("/dev/nvidia-uvm-tools", 238, 1)
	r.node("/dev/nvidia-caps/nvidia-cap1", 241, 1)
	r.node("/dev/nvidia-caps/nvidia-cap2", 241, 2)
	r.file("/usr/local/nvidia/lib64/libcuda.so.1", "")
	r.says[query] = h200 + ", NVIDIA H200, 143771, Disabled, 0\n"
	return r
}

// paths are those of a device's nodes.
func paths(d devices.Device) string {
	var out []string
	for _, n := range d.Nodes {
		out = append(out, n.Path)
	}
	return strings.Join(out, " ")
}

func TestGPUsAreFoundWithoutASpecification(t *testing.T) {
	h := aBareVM().host()
	f := h.Find(t.Context())
	if len(f.Devices) != 1 || len(f.Faults) != 0 {
		t.Fatalf("found %+v", f)
	}
	d := f.Devices[0]
	if d.ID != h200 || d.Kind != "h200" || d.Model != "NVIDIA H200" || d.Memory != 143771 || d.Health != "" {
		t.Errorf("found %+v", d)
	}
	if want := "/dev/nvidia0 /dev/nvidiactl /dev/nvidia-uvm /dev/nvidia-uvm-tools"; paths(d) != want {
		t.Errorf("its nodes are %s, want %s", paths(d), want)
	}
	if d := cmp.Diff([]string{"NVIDIA_VISIBLE_DEVICES=" + h200, "CUDA_VISIBLE_DEVICES=" + h200}, d.Env); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]devices.Mount{{From: "/usr/local/nvidia", To: "/usr/local/nvidia"}}, d.Mounts); d != "" {
		t.Error(d)
	}
	if got, want := string(f.Denied(nil)), "c 195:*\nc 238:*\nc 239:*\nc 240:*\nc 241:*\nc 242:*"; got != want {
		t.Errorf("who holds none is denied %q, want %q", got, want)
	}
	got := strings.Split(string(f.Denied([]string{h200})), "\n")
	for _, one := range []string{"c 195:1", "c 195:63", "c 195:254", "c 239:*", "c 241:*"} {
		if !slices.Contains(got, one) {
			t.Errorf("who holds it is not denied %s: %q", one, got)
		}
	}
	for _, one := range []string{"c 195:0", "c 195:255", "c 195:*", "c 238:0", "c 238:1", "c 238:*"} {
		if slices.Contains(got, one) {
			t.Errorf("who holds it is denied %s", one)
		}
	}
}

// TestUnhealthyGPUIsDescribed: each way in which a GPU is not well is a sentence, and the others go on.
func TestUnhealthyGPUIsDescribed(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(r *recorded)
		health string // a part of it
		faults int
	}{
		{"errors of memory", func(r *recorded) { r.says[query] = h200 + ", NVIDIA H200, 143771, Disabled, 3\n" },
			"3 errors of its memory could not be corrected", 0},
		{"lost", func(r *recorded) { r.says[query] = h200 + ", [Unknown Error], [GPU is lost], [N/A], [N/A]\n" },
			"nvidia-smi cannot read its memory", 0},
		{"no tool", func(r *recorded) { delete(r.says, query) }, "nvidia-smi does not tell of it", 1},
		{"a torn answer", func(r *recorded) { r.says[query] = "GPU-\"0a" }, "nvidia-smi does not tell of it", 1},
		{"no node", func(r *recorded) { delete(r.nodes, "/dev/nvidia0") }, "its node /dev/nvidia0 cannot be found", 0},
		{"not told of", func(r *recorded) { r.says[query] = second + ", NVIDIA H200, 143771, Disabled, 0\n" },
			"nvidia-smi does not tell of it", 0},
		{"without ECC", func(r *recorded) { r.says[query] = h200 + ", NVIDIA L4, 23034, [N/A], [N/A]\n" }, "", 0},
	} {
		r := aBareVM()
		c.change(r)
		h := r.host()
		f := h.Find(t.Context())
		if len(f.Devices) != 1 || len(f.Faults) != c.faults {
			t.Errorf("%s: found %+v", c.name, f)
			continue
		}
		if got := f.Devices[0].Health; !strings.Contains(got, c.health) || (c.health == "") != (got == "") {
			t.Errorf("%s: its health is %q", c.name, got)
		}
	}
}

// divided is the same host with its GPU divided in two, and one that is whole.
func divided() *recorded {
	r := aBareVM()
	r.file("/proc/driver/nvidia/gpus/0000:00:07.0/information",
		"Model: NVIDIA H200\nGPU UUID: "+second+"\nDevice Minor: 1\n")
	r.node("/dev/nvidia1", 195, 1)
	for path, minor := range map[string]string{"gi1/access": "12", "gi1/ci0/access": "13", "gi5/access": "48",
		"gi5/ci0/access": "49"} {
		r.file("/proc/driver/nvidia/capabilities/gpu0/mig/"+path, "DeviceFileMinor: "+minor+
			"\nDeviceFileMode: 292\nDeviceFileModify: 1\n")
	}
	for _, minor := range []int64{12, 13, 48, 49} {
		r.node(fmt.Sprint("/dev/nvidia-caps/nvidia-cap", minor), 241, minor)
	}
	r.says[query] = h200 + ", NVIDIA H200, 143771, Enabled, 0\n" + second + ", NVIDIA H200, 143771, Disabled, 0\n"
	r.says["nvidia-smi -L"] = `GPU 0: NVIDIA H200 (UUID: ` + h200 + `)
  MIG 4g.71gb     Device  0: (UUID: MIG-11111111-aaaa-bbbb-cccc-000000000001)
  MIG 1g.18gb     Device  1: (UUID: MIG-11111111-aaaa-bbbb-cccc-000000000002)
GPU 1: NVIDIA H200 (UUID: ` + second + `)
`
	r.says["nvidia-smi -q -x"] = `<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v13.dtd">
<nvidia_smi_log><attached_gpus>2</attached_gpus>
<gpu id="00000000:00:06.0"><uuid>` + h200 + `</uuid><mig_devices>
<mig_device><index>0</index><gpu_instance_id>1</gpu_instance_id><compute_instance_id>0</compute_instance_id>
<fb_memory_usage><total>71424 MiB</total><used>1 MiB</used></fb_memory_usage></mig_device>
<mig_device><index>1</index><gpu_instance_id>5</gpu_instance_id><compute_instance_id>0</compute_instance_id>
<fb_memory_usage><total>16384 MiB</total></fb_memory_usage></mig_device>
</mig_devices></gpu><gpu id="00000000:00:07.0"><uuid>` + second + `</uuid><mig_devices>None</mig_devices></gpu>
</nvidia_smi_log>`
	return r
}

func TestMIGPartsAreSeparateDevices(t *testing.T) {
	h := divided().host()
	f := h.Find(t.Context())
	if len(f.Faults) != 0 {
		t.Error(f.Faults)
	}
	var got []string
	for _, d := range f.Devices {
		got = append(got, strings.Join([]string{d.ID, d.Kind, d.Health, paths(d)}, "|"))
	}
	shared := " /dev/nvidiactl /dev/nvidia-uvm /dev/nvidia-uvm-tools"
	want := []string{
		"MIG-11111111-aaaa-bbbb-cccc-000000000001|h200-4g.71gb||/dev/nvidia0" + shared +
			" /dev/nvidia-caps/nvidia-cap12 /dev/nvidia-caps/nvidia-cap13",
		"MIG-11111111-aaaa-bbbb-cccc-000000000002|h200-1g.18gb||/dev/nvidia0" + shared +
			" /dev/nvidia-caps/nvidia-cap48 /dev/nvidia-caps/nvidia-cap49",
		second + "|h200||/dev/nvidia1" + shared,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if f.Devices[0].Memory != 71424 || f.Devices[1].Memory != 16384 {
		t.Errorf("their memory is %d and %d", f.Devices[0].Memory, f.Devices[1].Memory)
	}
	denied := strings.Split(string(f.Denied([]string{f.Devices[1].ID})), "\n")
	for one, is := range map[string]bool{"c 195:0": false, "c 195:1": true, "c 241:12": true, "c 241:13": true,
		"c 241:48": false, "c 241:49": false, "c 241:1": true, "c 241:2": true} {
		if slices.Contains(denied, one) != is {
			t.Errorf("who holds the second part is denied %s: %v, want %v", one, !is, is)
		}
	}
	for name, said := range map[string]string{"nvidia-smi -L": "torn", "nvidia-smi -q -x": "<torn"} {
		r := divided()
		r.says[name] = said
		h := r.host()
		for _, d := range h.Find(t.Context()).Devices { // the other goes on
			if strings.HasPrefix(d.ID, "MIG-") && d.Health == "" || d.ID == second && d.Health != "" {
				t.Errorf("%s says %q: %+v", name, said, d)
			}
		}
	}
}

func TestRenderNodesAreFound(t *testing.T) {
	r := aBareVM()
	for _, d := range []struct{ name, slot, driver, number string }{
		{"renderD128", "0000:00:06.0", "nvidia", "10DE:2335"}, {"renderD129", "0000:03:00.0", "amdgpu", "1002:744C"},
		{"renderD130", "", "", ""},
	} {
		dir := "/sys/class/drm/" + d.name + "/device"
		r.file(dir+"/uevent", "DRIVER="+d.driver+"\nPCI_ID="+d.number+"\nPCI_SLOT_NAME="+d.slot+"\n")
	}
	r.file("/sys/class/drm/renderD129/device/mem_info_vram_total", "25753026560\n")
	r.file("/sys/class/drm/renderD129/device/drm/card1/dev", "226:1\n")
	r.file("/sys/class/drm/renderD128/device/drm/card0/dev", "226:0\n")
	for name, minor := range map[string]int64{"renderD128": 128, "renderD129": 129, "renderD130": 130, "card0": 0,
		"card1": 1} {
		r.node("/dev/dri/"+name, 226, minor)
	}
	h := r.host()
	f := h.Find(t.Context())
	if len(f.Devices) != 2 {
		t.Fatalf("found %+v", f)
	}
	if d := f.Devices[1]; d.ID != "pci/0000:03:00.0" || d.Kind != "amdgpu" || d.Memory != 24560 ||
		paths(d) != "/dev/dri/renderD129 /dev/dri/card1" {
		t.Errorf("found %+v", d)
	}
	if d := f.Devices[0]; !strings.HasPrefix(paths(d), "/dev/nvidia0 /dev/dri/renderD128 /dev/dri/card0 ") {
		t.Errorf("NVIDIA's has %s", paths(d))
	}
}

// TestHoldersOpenOnlyTheirDevices: whoever holds what, he may open what he holds and nothing of any other device that he does not.
func TestHoldersOpenOnlyTheirDevices(t *testing.T) {
	h := divided().host()
	f := h.Find(t.Context())
	rapid.Check(t, func(t *rapid.T) {
		var held []string
		may := map[devices.Number]bool{}
		for _, d := range f.Devices {
			if rapid.Bool().Draw(t, d.ID) {
				held = append(held, d.ID)
				for _, n := range d.Nodes {
					may[n.Kernel] = true
				}
			}
		}
		denied := strings.Split(string(f.Denied(held)), "\n")
		for _, d := range f.Devices {
			for _, n := range d.Nodes {
				exact := string(devices.Deny([]devices.Number{n.Kernel}))
				all := string(devices.Deny([]devices.Number{{Major: n.Kernel.Major, Minor: devices.AnyMinor}}))
				if is := slices.Contains(denied, exact) || slices.Contains(denied, all); is == may[n.Kernel] {
					t.Errorf("holding %v, %s is denied: %v", held, n.Path, is)
				}
			}
		}
	})
}

// TestDeviceChangesAreReported: what comes, goes and falls ill is told, and what went stays denied.
func TestDeviceChangesAreReported(t *testing.T) {
	r := divided()
	s := devices.Open(t.Context(), devices.Options{Host: r.host()})
	offer := func() (out []string) {
		for _, g := range s.Offer() {
			out = append(out, g.ID+" "+g.Health)
		}
		return out
	}
	if s.Look(t.Context()) || len(offer()) != 3 {
		t.Errorf("nothing has changed: %v", offer())
	}
	delete(r.files, "proc/driver/nvidia/gpus/0000:00:07.0/information")
	if !s.Look(t.Context()) || !slices.Contains(offer(), second+" "+devices.Gone) {
		t.Errorf("one is gone: %v", offer())
	}
	if _, err := s.Give([]string{second}); err == nil || !strings.Contains(err.Error(), "is missing") {
		t.Errorf("one that is gone is given: %v", err)
	}
	r.says[query] = strings.Replace(r.says[query], "Enabled, 0", "Disabled, 7", 1)
	if !s.Look(t.Context()) || !slices.Contains(offer(), h200+" 7 errors of its memory could not be corrected") {
		t.Errorf("the other is divided no more, and ill: %v", offer())
	}
	findings := s.Examine()
	well := func(f cluster.Finding) bool { return f.OK || f.Advice == "" }
	if len(findings) != 4 || slices.ContainsFunc(findings, well) {
		t.Errorf("souk doctor says %+v", findings)
	}
	var none *devices.Set
	if _, err := none.Give([]string{"x"}); err == nil || none.Denied(nil) != "" || none.Offer() != nil {
		t.Error("a host without devices gives some")
	}
}

func TestGiveAddsNodesAndEnvironment(t *testing.T) {
	r := divided()
	s := devices.Open(t.Context(), devices.Options{Host: r.host()})
	both := []string{"MIG-11111111-aaaa-bbbb-cccc-000000000002", second}
	g, err := s.Give(both)
	if err != nil {
		t.Fatal(err)
	}
	env := devices.SetEnv([]string{"A=1", "CUDA_VISIBLE_DEVICES=0,1", "B=2"}, g.Env)
	if d := cmp.Diff([]string{"A=1", "B=2", "NVIDIA_VISIBLE_DEVICES=" + strings.Join(both, ","),
		"CUDA_VISIBLE_DEVICES=" + strings.Join(both, ",")}, env); d != "" {
		t.Error(d)
	}
	if len(g.Nodes) != 7 || len(g.Mounts) != 1 || g.Libraries() != "/usr/local/nvidia/lib64" {
		t.Errorf("given %+v", g)
	}
	r = aBareVM() // a driver of the distribution's packages
	delete(r.files, "usr/local/nvidia/lib64/libcuda.so.1")
	for _, lib := range []string{"libcuda.so.1", "libcuda.so.580.1", "libnvidia-ml.so.1", "libc.so.6"} {
		r.file("/usr/lib/x86_64-linux-gnu/"+lib, "")
	}
	r.file("/usr/bin/nvidia-smi", "")
	h := r.host()
	var got []string
	for _, m := range h.Find(t.Context()).Devices[0].Mounts {
		got = append(got, m.From+" "+m.To)
	}
	if d := cmp.Diff([]string{
		"/usr/lib/x86_64-linux-gnu/libcuda.so.1 /usr/local/nvidia/lib64/libcuda.so.1",
		"/usr/lib/x86_64-linux-gnu/libcuda.so.580.1 /usr/local/nvidia/lib64/libcuda.so.580.1",
		"/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1 /usr/local/nvidia/lib64/libnvidia-ml.so.1",
		"/usr/bin/nvidia-smi /usr/local/nvidia/bin/nvidia-smi"}, got); d != "" {
		t.Error(d)
	}
}

// TestDeviceIsGrantedByOneSouk: of two souks on a host one grants it, and the other once the first has ended, however it did.
func TestDeviceIsGrantedByOneSouk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "claims")
	const other = "another souk of this host grants it"
	cmd := exec.Command(os.Args[0], "-test.run", "TestHelperClaimsADevice", "-test.v")
	cmd.Env = append(os.Environ(), "SOUK_TEST_CLAIMS="+dir)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close() })
	for s := bufio.NewScanner(out); s.Scan() && s.Text() != "claimed"; {
	}
	s := devices.Open(t.Context(), devices.Options{Host: divided().host(), Claims: dir})
	for _, g := range s.Offer() {
		if g.Health != other {
			t.Errorf("%s is %q while another has it", g.ID, g.Health)
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	if !s.Look(t.Context()) {
		t.Error("nothing has changed")
	}
	for _, g := range s.Offer() {
		if g.Health != "" {
			t.Errorf("%s is %q when the other is gone", g.ID, g.Health)
		}
	}
	if s.Look(t.Context()) {
		t.Error("it has changed once more")
	}
}

// TestHelperClaimsADevice is the other souk of TestDeviceIsGrantedByOneSouk.
func TestHelperClaimsADevice(t *testing.T) {
	dir := os.Getenv("SOUK_TEST_CLAIMS")
	if dir == "" {
		t.Skip("it is a part of TestDeviceIsGrantedByOneSouk")
	}
	devices.Open(t.Context(), devices.Options{Host: divided().host(), Claims: dir})
	fmt.Println("claimed")
	_, _ = io.ReadAll(os.Stdin) // until it is killed
}
