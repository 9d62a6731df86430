package netns

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
)

// Hosts are hosts on one bridge.
type Hosts []*Host

// Host is one host. Its methods are for one goroutine, except Do and Dial.
type Host struct {
	Name string
	Addr string // IPv4, without prefix length
	ns   *os.File
	cuts []string // addresses that it does not receive from
	shut int      // the blocked TCP port; 0: none
	loss int      // percent of received packets that are lost
	late *delayer // nil: no delay
}

// New makes n hosts, at most 200, named h1 to hn. The program must be Inside, and call New once.
func New(n int) (Hosts, error) {
	if !Inside() || n < 1 || n > 200 {
		return nil, fault.New(fault.Precondition, codeNetns,
			"hosts are made by a program that netns.Main runs, 1 to 200 of them; it lacks %s", Lacks())
	}
	if err := command("ip", "link", "set", "lo", "up"); err != nil {
		return nil, err
	}
	if err := command("ip", "link", "add", "souk0", "type", "bridge"); err != nil {
		return nil, err
	}
	if err := command("ip", "link", "set", "souk0", "up"); err != nil {
		return nil, err
	}
	var hs Hosts
	for i := range n {
		h, err := newHost(i + 1)
		if err != nil {
			return nil, err
		}
		hs = append(hs, h)
	}
	return hs, nil
}

func newHost(number int) (*Host, error) {
	h := &Host{Name: fmt.Sprintf("h%d", number), Addr: fmt.Sprintf("10.77.0.%d", number)}
	made := make(chan error)
	go func() { // on its own thread, which enters the new namespace
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			h.ns, err = os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()))
		}
		made <- err
	}()
	if err := <-made; err != nil {
		return nil, fault.Wrap(err, fault.Internal, codeNetns, "a network namespace cannot be made")
	}
	near, ns := "v"+h.Name, fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), h.ns.Fd())
	for _, argv := range [][]string{
		{"ip", "link", "add", near, "type", "veth", "peer", "name", "eth0", "netns", ns},
		{"ip", "link", "set", near, "master", "souk0", "up"},
	} {
		if err := command(argv...); err != nil {
			return nil, err
		}
	}
	return h, h.Do(func() error {
		for _, argv := range [][]string{
			{"ip", "link", "set", "lo", "up"}, {"ip", "addr", "add", h.Addr + "/24", "dev", "eth0"},
			{"ip", "link", "set", "eth0", "up"},
		} {
			if err := command(argv...); err != nil {
				return err
			}
		}
		return nil
	})
}

func command(argv ...string) error {
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		return fault.Wrap(err, fault.Internal, codeNetns, "%s: %s", strings.Join(argv, " "),
			strings.TrimSpace(string(out)))
	}
	return nil
}

// Do calls f on a thread in the host's network namespace: sockets and processes that f makes belong to the host.
func (h *Host) Do(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends here
		err := unix.Setns(int(h.ns.Fd()), unix.CLONE_NEWNET)
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

// Dial makes a connection from the host, for instance to its own loopback.
func (h *Host) Dial(ctx context.Context, network, addr string) (c net.Conn, err error) {
	err = h.Do(func() error {
		c, err = new(net.Dialer).DialContext(ctx, network, addr)
		return err
	})
	return c, err
}

// Processes lists the processes that are on the host.
func (h *Host) Processes() (pids []int) {
	mine, err := inode(fmt.Sprintf("/proc/self/fd/%d", h.ns.Fd()))
	if err != nil {
		return nil
	}
	links, _ := filepath.Glob("/proc/[0-9]*/ns/net") // the pattern is well-formed
	for _, l := range links {
		if n, err := inode(l); err != nil || n != mine {
			continue // it has ended meanwhile, or is elsewhere
		}
		if pid, err := strconv.Atoi(strings.Split(l, "/")[2]); err == nil && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}

func inode(path string) (uint64, error) {
	var st unix.Stat_t
	err := unix.Stat(path, &st)
	return st.Ino, err
}

// PowerOff kills every process of the host, until none is left.
func (h *Host) PowerOff() {
	for range 100 { // a forking process may escape a few times
		pids := h.Processes()
		if len(pids) == 0 {
			return
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended meanwhile
		}
	}
}
