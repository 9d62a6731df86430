package reach_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime/hostnet"
	"github.com/soukhq/souk/runtime/hostnet/netplan"
	"github.com/soukhq/souk/runtime/reach"
)

// counting is a Dialer that says what it has dialled.
func counting() (d *reach.Dialer, dialled func() []string) {
	var mu sync.Mutex
	var list []string
	d = &reach.Dialer{}
	d.ControlContext = func(_ context.Context, _, address string, _ syscall.RawConn) error {
		mu.Lock()
		defer mu.Unlock()
		host, _, err := net.SplitHostPort(address)
		list = append(list, host)
		return err
	}
	return d, func() (out []string) {
		mu.Lock()
		defer mu.Unlock()
		out, list = list, nil
		return out
	}
}

func started(m machine.Machine, n int) *machine.Machine {
	m.Events = []machine.Event{{ID: fmt.Sprint("start", n), Type: "start"}}
	return &m
}

// TestHostProgramIsReachedAtEitherLoopback: a program of the host is reached at the loopback it listens on.
func TestHostProgramIsReachedAtEitherLoopback(t *testing.T) {
	m := started(machine.Machine{ID: "m", Config: &machine.Config{Image: machine.HostImage}}, 1)
	for _, c := range []struct{ listen, at, why string }{
		{"127.0.0.1", "127.0.0.1", ""},
		{"0.0.0.0", "127.0.0.1", ""},
		{"[::1]", "::1", ""},
		{"[::]", "127.0.0.1", ""},
		{"127.0.0.9", "", "the program listens on 127.0.0.9 only; make it listen on 127.0.0.1 or 0.0.0.0"},
	} {
		network := "tcp"
		if c.listen == "0.0.0.0" {
			network = "tcp4"
		}
		ln, err := net.Listen(network, c.listen+":0")
		if err != nil {
			t.Fatal(err)
		}
		port := ln.Addr().(*net.TCPAddr).Port
		d, dialled := counting()
		conn, err := d.Dial(t.Context(), m, port)
		switch {
		case c.why != "":
			if fault.CodeOf(err) != "listens_elsewhere" || !strings.Contains(err.Error(), c.why) ||
				!errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("%s: %v", c.listen, err)
			}
		case err != nil:
			t.Errorf("%s: %v", c.listen, err)
		default:
			if at := conn.RemoteAddr().(*net.TCPAddr).IP.String(); at != c.at {
				t.Errorf("%s: reached at %s", c.listen, at)
			}
			conn.Close()
		}
		dialled()
		if conn, err = d.Dial(t.Context(), m, port); err == nil { // it is remembered
			conn.Close()
			if again := dialled(); len(again) != 1 || again[0] != c.at {
				t.Errorf("%s: the second time it dialled %v", c.listen, again)
			}
		}
		ln.Close()
		if _, err = d.Dial(t.Context(), m, port); !errors.Is(err, syscall.ECONNREFUSED) || fault.CodeOf(err) != "" {
			t.Errorf("%s: with nothing there: %v", c.listen, err)
		}
	}
}

// TestContainerIsReachedByIPv6OrIPv4: a container is reached by IPv6, or by IPv4 if it listens there only; the choice
// is remembered until it changes or the container restarts.
func TestContainerIsReachedByIPv6OrIPv4(t *testing.T) {
	h := apart(t)
	for _, c := range []struct {
		network, listen, first, why string
	}{
		{"tcp4", "0.0.0.0:80", "v4", ""},
		{"tcp", "[::]:80", "v6", ""},
		{"tcp6", "[::]:80", "v6", ""},
		{"tcp4", "127.0.0.1:80", "", "the program listens on 127.0.0.1 only; make it listen on 0.0.0.0 or [::]"},
		{"tcp6", "[::1]:80", "", "the program listens on ::1 only; make it listen on 0.0.0.0 or [::]"},
	} {
		d, dialled := counting()
		now := started(h.m, 1)
		ln := h.listen(c.network, c.listen)
		conn, err := d.Dial(t.Context(), now, 80)
		if c.why != "" {
			if fault.CodeOf(err) != "listens_elsewhere" || !strings.Contains(err.Error(), c.why) {
				t.Errorf("%s %s: %v", c.network, c.listen, err)
			}
			ln.Close()
			continue
		}
		if err != nil {
			t.Errorf("%s %s: %v", c.network, c.listen, err)
			ln.Close()
			continue
		}
		conn.Close()
		want := map[string]string{"v4": h.at.V4.String(), "v6": h.at.V6.String()}[c.first]
		dialled()
		if conn, err = d.Dial(t.Context(), now, 80); err != nil {
			t.Error(err)
		} else {
			conn.Close()
		}
		if again := dialled(); !slices.Equal(again, []string{want}) {
			t.Errorf("%s %s: the second time it dialled %v, not %s", c.network, c.listen, again, want)
		}
		ln.Close()
		other := h.listen("tcp6", "[::]:80") // the program listens anew, on the other kind
		if conn, err = d.Dial(t.Context(), now, 80); err != nil {
			t.Errorf("%s %s, then [::]: %v", c.network, c.listen, err)
		} else {
			conn.Close()
		}
		dialled()
		if conn, err = d.Dial(t.Context(), started(h.m, 2), 80); err != nil {
			t.Error(err)
		} else {
			conn.Close()
		}
		if again := dialled(); !slices.Equal(again, []string{h.at.V6.String()}) {
			t.Errorf("after a start it dialled %v", again)
		}
		other.Close()
	}
	d, dialled := counting()
	elsewhere := h.m
	elsewhere.PrivateIP = "fd00::77"
	if _, err := d.Dial(t.Context(), started(elsewhere, 1), 80); err == nil || fault.CodeOf(err) != "" {
		t.Errorf("a machine that is not there: %v", err)
	}
	if list := dialled(); !slices.Equal(list, []string{"fd00::77"}) {
		t.Errorf("of a machine that is not there it dialled %v", list)
	}
}

// box is a namespace that has a container's network, of the host that the test is in.
type box struct {
	t  *testing.T
	ns netns.NsHandle
	at hostnet.Addresses
	m  machine.Machine
}

// apart puts the test into a network namespace of its own, with one container's.
func apart(t *testing.T) *box {
	t.Helper()
	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("this needs root")
		}
		t.Skip("this needs root")
	}
	runtime.LockOSThread() // the thread ends with the test
	must(t, unix.Unshare(unix.CLONE_NEWNET))
	lo, err := netlink.LinkByName("lo")
	must(t, err)
	must(t, netlink.LinkSetUp(lo))
	cmd := exec.Command("sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	ns, err := netns.GetFromPid(cmd.Process.Pid)
	must(t, err)
	t.Cleanup(func() { _ = ns.Close() })
	b := &box{t: t, ns: ns}
	app := cluster.AppNetwork(cluster.Network("test"), "a")
	p := &netplan.Network{Cluster: cluster.Network("test"), App: app,
		Address: cluster.MachineAddress(app, "m"), Realm: "r"}
	b.at, err = hostnet.New("souk-reach").Attach(cmd.Process.Pid, "c", p)
	must(t, err)
	b.m = machine.Machine{ID: "m", App: "a", PrivateIP: b.at.V6.String(), Config: &machine.Config{Image: "x"}}
	return b
}

// listen listens in the container's namespace.
func (b *box) listen(network, at string) net.Listener {
	b.t.Helper()
	var ln net.Listener
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and ends with it
		err := netns.Set(b.ns)
		if err == nil {
			ln, err = net.Listen(network, at)
		}
		done <- err
	}()
	must(b.t, <-done)
	return ln
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestAwaitReturnsOnceAPortAccepts returns once a port accepts.
func TestAwaitReturnsOnceAPortAccepts(t *testing.T) {
	m := started(machine.Machine{ID: "m", Config: &machine.Config{Image: machine.HostImage}}, 1)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	port := ln.Addr().(*net.TCPAddr).Port
	var d reach.Dialer
	must(t, d.Await(t.Context(), m, port, time.Millisecond))
	ln.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := d.Await(ctx, m, port, time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}
