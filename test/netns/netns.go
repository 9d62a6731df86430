// Package netns makes hosts of network namespaces, for tests of whole clusters of real processes: each host has an
// address on one bridge, and what it receives can be cut off, lost or delayed. The kernel needs no netem: cuts and
// losses are rules of nftables, delays a program behind NFQUEUE (which iptables reaches on kernels that lack
// nft_queue).
//
// Everything is in namespaces (network, mounts, processes) that end with the program: even after a crash no process,
// interface or mount is left behind. Main makes the program run in them:
//
//	func TestMain(m *testing.M) { os.Exit(netns.Main(m.Run)) }
//
// It needs root, iproute2, nftables and iptables; Lacks says what is missing.
package netns

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
)

// Environment variables for the program when it starts itself again.
const (
	envRole = "SOUK_NETNS"      // "init": first process of the namespaces; "in": inside
	envBoot = "SOUK_NETNS_BOOT" // the file mounted over the kernel's boot id
)

// bootID is the kernel's file of the boot id, over which one of our own is mounted.
const (
	bootID    = "/proc/sys/kernel/random/boot_id"
	wholeProc = "/mnt"
)

// Lacks says which requirement is missing; "": none.
func Lacks() string {
	var lacks []string
	if os.Geteuid() != 0 {
		lacks = append(lacks, "root")
	}
	for _, p := range []struct{ program, debian string }{{"ip", "iproute2"}, {"nft", "nftables"},
		{"iptables", "iptables"}} {
		if _, err := exec.LookPath(p.program); err != nil {
			lacks = append(lacks, fmt.Sprintf("the program %s (Debian: apt-get install %s)", p.program, p.debian))
		}
	}
	return strings.Join(lacks, ", ")
}

// Inside reports whether the program runs in namespaces of its own.
func Inside() bool { return os.Getenv(envRole) == "in" }

// Main runs f in new namespaces and returns its exit code: it starts this program again there, with the same arguments.
// If a requirement is missing it runs f directly, and Inside is false.
func Main(f func() int) int {
	switch os.Getenv(envRole) {
	case "in":
		return f()
	case "init":
		code, err := initMain()
		if err != nil {
			fmt.Fprintln(os.Stderr, "netns:", err)
			return 1
		}
		return code
	}
	if Lacks() != "" {
		return f()
	}
	code, err := enter()
	if err != nil {
		fmt.Fprintln(os.Stderr, "netns:", err)
		return 1
	}
	return code
}

// enter starts this program as the first process of new namespaces. It ends with this process, and all others inside
// with it.
func enter() (int, error) {
	runtime.LockOSThread() // the child ends with the thread that made it
	boot, err := os.CreateTemp("", "souk-boot-*")
	if err != nil {
		return 0, err
	}
	defer os.Remove(boot.Name()) // removed already, unless the start failed
	if err := boot.Close(); err != nil {
		return 0, err
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), envRole+"=init", envBoot+"="+boot.Name())
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID,
		Pdeathsig:  syscall.SIGKILL,
	}
	err = cmd.Run()
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		return max(ended.ExitCode(), 1), nil
	}
	return 0, err
}

// initMain is the first process: it makes the mounts, starts the real program, and reaps orphans.
func initMain() (int, error) {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return 0, fmt.Errorf("keep mounts to ourselves: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return 0, fmt.Errorf("mount /proc: %w", err)
	}
	// Mount another /proc without mounts over it: the kernel lets a container mount /proc only if an unobstructed one
	// is visible.
	if err := unix.Mount("proc", wholeProc, "proc", 0, ""); err != nil {
		return 0, fmt.Errorf("mount another /proc: %w", err)
	}
	boot := os.Getenv(envBoot)
	if err := unix.Mount(boot, bootID, "", unix.MS_BIND, ""); err != nil {
		return 0, fmt.Errorf("put a boot id of our own in place: %w", err)
	}
	if err := os.Remove(boot); err != nil { // the mount keeps the file; nothing is left if we are killed
		return 0, err
	}
	if err := NewBoot(); err != nil {
		return 0, err
	}
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, envRole+"=") })
	p, err := os.StartProcess("/proc/self/exe", os.Args,
		&os.ProcAttr{Env: append(env, envRole+"=in"), Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}})
	if err != nil {
		return 0, err
	}
	for {
		var ws syscall.WaitStatus
		switch pid, err := syscall.Wait4(-1, &ws, 0, nil); {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return 0, err
		case pid != p.Pid: // an orphan
		case ws.Signaled():
			return 128 + int(ws.Signal()), nil
		default:
			return ws.ExitStatus(), nil
		}
	}
}

// AnotherBoot returns a command that runs argv under its own boot id, which it writes to file: hosts share one kernel,
// so a process with the same boot id could take another host's processes for its own.
func AnotherBoot(file string, argv ...string) ([]string, error) {
	raw, err := os.ReadFile("/proc/sys/kernel/random/uuid")
	if err == nil {
		err = os.WriteFile(file, raw, 0o600)
	}
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, codeBootID, "another boot id cannot be written to %s", file)
	}
	// the kernel mounts nothing over a file that was removed, as ours is
	script := `umount ` + bootID + ` && mount --bind "$0" ` + bootID + ` && exec "$@"`
	return append([]string{"unshare", "--mount", "sh", "-c", script, file}, argv...), nil
}

// NewBoot changes the boot id that all processes inside see, as after a reboot.
func NewBoot() error {
	raw, err := os.ReadFile("/proc/sys/kernel/random/uuid")
	if err == nil {
		err = os.WriteFile(bootID, raw, 0o600) // in place: it is mounted
	}
	if err != nil {
		return fault.Wrap(err, fault.Internal, codeBootID, "the boot id cannot be changed")
	}
	return nil
}
