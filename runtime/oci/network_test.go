package oci_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netns"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/internal/needs"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/hostnet/netplan"
	"github.com/soukhq/souk/runtime/oci"
	"github.com/soukhq/souk/runtime/process"
)

// host is a network namespace that a reaper takes for the host's, so that no test changes the real one.
type host struct {
	t  testing.TB
	ns netns.NsHandle
	o  oci.Options
}

var testNetwork = cluster.Network("test")

// hosted makes one, and the options of a runtime whose containers have a network there.
func hosted(t testing.TB, engine string) *host {
	t.Helper()
	layer := busybox(t)
	for _, p := range []string{"nsenter", "nft", "ip"} {
		if _, err := exec.LookPath(p); err != nil {
			lacking(t, p)
		}
	}
	cmd := exec.Command("sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ns, err := netns.GetFromPid(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	h := &host{t: t, ns: ns}
	t.Cleanup(func() { _ = ns.Close(); _ = cmd.Process.Kill(); _ = cmd.Wait() })
	h.run("ip", "link", "set", "lo", "up")
	h.o = oci.Options{Images: layer, Engines: []string{engine},
		Network: &oci.Network{Addresses: &netplan.Addresses{Of: testNetwork}, AllowHost: true},
		Process: process.Options{Dir: filepath.Join(t.TempDir(), "oci"),
			ReaperCommand: []string{"nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", cmd.Process.Pid), os.Args[0]}}}
	t.Cleanup(func() { stopReaper(t, h.o) })
	return h
}

// in does something in the host's namespace.
func (h *host) in(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		goruntime.LockOSThread() // and ends with it
		if err := netns.Set(h.ns); err != nil {
			h.t.Error(err)
			return
		}
		f()
	}()
	<-done
}

func (h *host) run(argv ...string) (out string) {
	h.t.Helper()
	var b []byte
	var err error
	h.in(func() { b, err = exec.Command(argv[0], argv[1:]...).CombinedOutput() })
	if err != nil {
		h.t.Fatalf("%v: %v\n%s", argv, err, b)
	}
	return string(b)
}

// get connects to an address on the host, and gives what it says.
func (h *host) get(to string) (got string, err error) {
	h.in(func() {
		c, wrong := net.DialTimeout("tcp", to, 5*time.Second)
		if err = wrong; err != nil {
			return
		}
		defer c.Close()
		if _, err = c.Write([]byte("GET / HTTP/1.0\r\n\r\n")); err == nil {
			var b []byte
			b, err = io.ReadAll(c)
			got = string(b)
		}
	})
	return got, err
}

// things are what a network consists of on the host.
func (h *host) things() string {
	return h.run("ip", "-o", "link") + h.run("ip", "-4", "route") + h.run("ip", "-6", "route") + h.run("ip", "neigh") +
		h.run("nft", "list", "ruleset")
}

// serving is a machine that answers with its name on port 80 once it is asked.
func serving(app, id string) runtime.Spec {
	s := runtime.Spec{Machine: id, App: app, Attempt: 1, Fresh: true, SwapMB: -1, Env: []string{"PATH=/bin"},
		Files: []runtime.File{{Path: "/www/index.html", Mode: 0o644, Data: []byte("I am " + id)}},
		Argv:  []string{"httpd", "-f", "-p", "[::]:80", "-h", "/www"}}
	s.Resources.CPU, s.Resources.Memory = 500, 64
	return s
}

func exe(t testing.TB, r imaged, id, script string) string {
	t.Helper()
	var out bytes.Buffer
	_, err := r.Exec(t.Context(), id, runtime.ExecRequest{Argv: []string{"sh", "-c", script}, Stdout: &out,
		Stderr: &out})
	if err != nil {
		t.Errorf("%s: %s: %v", id, script, err)
	}
	return strings.TrimSpace(out.String())
}

// TestContainerNetworksSurviveKills: real containers of two apps, over kill -9 of the reaper and of a container.
func TestContainerNetworksSurviveKills(t *testing.T) {
	t.Parallel()
	ownNetwork(t, oci.DefaultEngine)
}

// TestSandboxNetworksSurviveKills is the same by runsc (gVisor), of a version that can have one.
func TestSandboxNetworksSurviveKills(t *testing.T) {
	t.Parallel()
	engine := sandbox(t)
	if err := oci.Connectable(t.Context(), engine); err != nil {
		t.Skip(err) // also in CI: Debian has an older one
	}
	ownNetwork(t, engine)
}

func ownNetwork(t *testing.T, engine string) {
	h := hosted(t, engine)
	before := h.things()
	r := reopen(t, h.o)
	a1, a2, b := serving("a", "a1"), serving("a", "a2"), serving("b", "b1")
	a1.Network.Publish = []machine.Publish{{HostPort: 8080, Port: 80}}
	start := func(s runtime.Spec) runtime.Status {
		t.Helper()
		st, err := r.Start(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	start(a1)
	start(a2)
	victim := start(b)
	address := func(app, id string) string {
		return cluster.MachineAddress(cluster.AppNetwork(testNetwork, app), id).String()
	}
	ask := func(to string) string {
		return "printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 1 " + to + " 80 2>&1 | tail -1"
	}
	until := func(what string, ok func() bool) {
		t.Helper()
		waittest.See(t, what+" answers", func() string {
			if ok() {
				return ""
			}
			return h.things()
		}, func(things string) bool { return things == "" })
	}
	answers := func() bool {
		got, err := h.get("127.0.0.1:8080")
		return err == nil && strings.HasSuffix(got, "I am a1")
	}
	until("a published port", answers)
	until("its own app", func() bool { return exe(t, r, "a2", ask(address("a", "a1"))) == "I am a1" })
	if got, err := h.get(net.JoinHostPort(address("a", "a2"), "80")); !strings.HasSuffix(got, "I am a2") {
		t.Errorf("the host is answered %q, %v", got, err)
	}
	if got := exe(t, r, "b1", ask(address("a", "a1"))); strings.Contains(got, "I am") {
		t.Errorf("another app is answered: %q", got)
	}
	h.run("nft", "flush", "ruleset") // as a reload of the host's own firewall does
	until("a published port, once the rules are laid again,", answers)
	inside := map[string]string{
		"hostname; cat /etc/hostname":                       "a1\na1",
		"grep :.*a1 /etc/hosts":                             address("a", "a1") + "\ta1",
		"ip -6 addr add fd00::1/64 dev eth0 2>&1 | head -1": "ip: RTNETLINK answers: Operation not permitted",
		"cat /proc/sys/net/ipv4/ping_group_range /proc/sys/net/ipv4/ip_unprivileged_port_start": "0\t2147483647\n0",
		"ls /sys/class/net": "eth0\nlo",
	}
	inside["grep -c '^198\\.1[89]\\..*\ta1$' /etc/hosts"] = "1"
	for script, want := range inside {
		if engine != oci.DefaultEngine && (strings.Contains(script, "/proc/sys") || strings.Contains(script, "/sys/")) {
			continue // its own kernel says nothing of them
		}
		if got := exe(t, r, "a1", script); got != want {
			t.Errorf("%s: %q, want %q", script, got, want)
		}
	}
	kill(t, func(pid int) bool { return isReaper(pid, h.o.Process.Dir) })
	if err := syscall.Kill(victim.PID, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	if !answers() {
		t.Error("without a reaper, the published port does not answer")
	}
	h.run("nft", "flush", "ruleset") // and nobody is there to see it
	until("the device of a container that was killed", func() bool {
		_, err := r.List(t.Context()) // the next reaper
		return err == nil && strings.Count(h.run("ip", "-o", "link"), ": sk") == 2
	})
	until("a published port, with the next reaper,", answers)
	for _, id := range []string{"a1", "a2", "b1"} {
		if err := r.Remove(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	a2.Attempt, a2.Network = 1, a1.Network
	start(a2)
	until("the port, of another now", func() bool {
		got, err := h.get("127.0.0.1:8080")
		return err == nil && strings.HasSuffix(got, "I am a2")
	})
	if err := r.Remove(t.Context(), "a2"); err != nil {
		t.Error(err)
	}
	if err := r.StopReaper(t.Context()); err != nil {
		t.Error(err)
	}
	until("nothing is left", func() bool { return h.things() == before })
}

// TestExamineReportsABlockingFirewall: a host whose own firewall drops what containers send is not well.
func TestExamineReportsABlockingFirewall(t *testing.T) {
	needs.Programs(t, "iptables-nft")
	h := hosted(t, "runc")
	r := reopen(t, h.o)
	find := func() (f cluster.Finding) {
		h.in(func() {
			for _, f = range r.Examine(t.Context()) {
				if f.Name == "containers: network" {
					return
				}
			}
		})
		return f
	}
	if f := find(); !f.OK {
		t.Errorf("without a firewall: %+v", f)
	}
	h.run("iptables-nft", "-P", "FORWARD", "DROP")
	if f := find(); f.OK || !strings.Contains(f.Have, "chain ip filter FORWARD of nftables (policy drop)") {
		t.Errorf("with one that drops: %+v", f)
	}
}
