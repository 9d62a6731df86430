package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/internal/needs"
	"github.com/soukhq/souk/runtime/reaper/cgroup"
)

// readmeHost is a host of README's cluster: namespaces of its own (network, mounts, processes, name) in which the
// directories that a souk uses are empty, and nothing is set. So everything can be called there as it is on a real one.
type readmeHost struct {
	name, addr string
	init       *exec.Cmd // its first process; all others end with it
	hold       io.Closer // the init ends when it is closed, or when this process ends
}

// lacksForHosts says what is missing of what hosts need; nil when nothing is.
func lacksForHosts() error {
	if os.Geteuid() != 0 {
		return errors.New("hosts of their own need root")
	}
	return needs.Lacks("ip", "nsenter")
}

// newHosts makes hosts of these names, at 10.0.0.1 and so on, on one bridge; the bridge is the first one's.
func newHosts(t *testing.T, exe string, names ...string) map[string]*readmeHost {
	t.Helper()
	all := map[string]*readmeHost{}
	for i, name := range names {
		h := &readmeHost{name: name, addr: fmt.Sprintf("10.0.0.%d", i+1)}
		h.start(t, exe)
		all[name] = h
	}
	first := all[names[0]]
	first.ip(t, "link", "set", "lo", "up")
	first.ip(t, "link", "add", "eth0", "type", "bridge")
	for _, name := range names[1:] {
		h := all[name]
		first.ip(t, "link", "add", "to-"+name, "type", "veth", "peer", "name", "eth0", "netns",
			strconv.Itoa(h.init.Process.Pid))
		first.ip(t, "link", "set", "to-"+name, "master", "eth0", "up")
		h.ip(t, "link", "set", "lo", "up")
	}
	for _, h := range all {
		h.ip(t, "addr", "add", h.addr+"/24", "dev", "eth0")
		h.ip(t, "link", "set", "eth0", "up")
	}
	return all
}

// start starts the host's first process, and waits until it has made the host.
func (h *readmeHost) start(t *testing.T, exe string) {
	t.Helper()
	dir := t.TempDir()
	bin := filepath.Join(dir, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	// Two builds: a reaper tells them apart by their times.
	for name, flag := range map[string]string{"bin/souk": "--link", "souk.new": "--no-preserve=timestamps"} {
		if out, err := exec.Command("cp", flag, exe, filepath.Join(dir, name)).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	h.init = exec.Command(filepath.Join(filepath.Dir(exe), "souk-host"), h.name, dir)
	h.init.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC}
	hold, err := h.init.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	up, err := h.init.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var why strings.Builder
	h.init.Stderr = &why
	if err := h.init.Start(); err != nil {
		t.Fatal(err)
	}
	h.hold = hold
	t.Cleanup(h.end)
	if _, err := up.Read(make([]byte, 1)); err != nil {
		_ = h.init.Wait()
		t.Fatalf("host %s was not made: %v\n%s", h.name, err, why.String())
	}
}

// end ends all that runs on the host, and with that the host.
func (h *readmeHost) end() {
	_ = h.hold.Close() // the host may have ended already
	_ = h.init.Wait()
}

func (h *readmeHost) ip(t *testing.T, args ...string) {
	t.Helper()
	pid := strconv.Itoa(h.init.Process.Pid)
	out, err := exec.Command("nsenter", append([]string{"--target", pid, "--net", "ip"}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("ip %v on host %s: %v\n%s", args, h.name, err, out)
	}
}

// command returns a line of the shell that runs on the host, with nothing in its environment but what a login has.
func (h *readmeHost) command(line string) *exec.Cmd {
	cmd := exec.Command("nsenter", "--target", strconv.Itoa(h.init.Process.Pid), "--net", "--mount", "--pid", "--uts",
		"--ipc", "/bin/sh", "-c", "cd; "+line)
	cmd.Env = []string{"HOME=/root", "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
		"GORACE=" + os.Getenv("GORACE")}
	cmd.WaitDelay = time.Second
	return cmd
}

// hostMain is the first process of a host: it makes the mounts, says so, and waits for everybody's orphans until its
// stdin ends.
func hostMain() {
	if err := makeHost(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	fmt.Println("up")
	go func() {
		for range ended {
			for {
				pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
				if pid <= 0 && !errors.Is(err, syscall.EINTR) {
					break
				}
			}
		}
	}()
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

// makeHost gives the host a name, and what dir holds as its programs. Its cgroups are hidden: hosts share one kernel,
// and the cgroups of a directory are named after its path, which is the same on each.
func makeHost(name, dir string) error {
	if err := unix.Sethostname([]byte(name)); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return err
	}
	mounts, err := cgroup.Mounts()
	if err != nil {
		return err
	}
	for _, m := range slices.Backward(mounts) {
		if err := unix.Unmount(m.Dir, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount %s: %w", m.Dir, err)
		}
	}
	etc := filepath.Join(dir, "etc")
	if out, err := exec.Command("cp", "-a", "/etc", etc).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	root := filepath.Join(dir, "root")
	if err := os.Mkdir(root, 0o700); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(dir, "souk.new"), filepath.Join(root, "souk.new")); err != nil {
		return err
	}
	for _, b := range [][2]string{{etc, "/etc"}, {root, "/root"}, {filepath.Join(dir, "bin"), "/usr/local/bin"}} {
		if err := unix.Mount(b[0], b[1], "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s at %s: %w", b[0], b[1], err)
		}
	}
	for _, empty := range []string{"/run", "/var/lib"} {
		if err := unix.Mount("tmpfs", empty, "tmpfs", 0, "mode=755"); err != nil {
			return fmt.Errorf("mount %s: %w", empty, err)
		}
	}
	return nil
}
