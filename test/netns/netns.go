// Package netns makes hosts of network namespaces, for tests of whole clusters of real processes: each host has an
// address on one bridge, and what it receives can be cut off, lost or delayed. The kernel needs no netem: cuts and
// losses are rules of nftables, delays a program behind NFQUEUE (which iptables reaches on kernels that lack
// nft_queue).
//
// All of it lives in namespaces (network, mounts, processes) that end with the program: whatever happens to it, no
// process, no interface and no mount is left behind. Main makes the program run in them:
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

// What the program is told when it starts itself anew.
const (
	envRole = "SOUK_NETNS"      // "init": of the namespaces; "in": inside
	envBoot = "SOUK_NETNS_BOOT" // the file that stands for the kernel's boot id
)

// bootID is the kernel's file that one of our own is mounted over.
const (
	bootID    = "/proc/sys/kernel/random/boot_id"
	wholeProc = "/mnt"
)

// Lacks says what is missing of what is needed; "" when nothing is.
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

// Main runs f in namespaces of its own and gives its exit code: it starts this program anew there, with the same
// arguments. Where something is lacking f runs as it is; it then finds that it is not Inside.
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

// enter starts this program as the first process of new namespaces. It ends with this one, and all others with it.
func enter() (int, error) {
	runtime.LockOSThread() // the child ends with the thread that made it
	boot, err := os.CreateTemp("", "souk-boot-*")
	if err != nil {
		return 0, err
	}
	defer os.Remove(boot.Name()) // it is gone by now, unless the start failed
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

// initMain is the first process: it makes the mounts, starts the program proper, and waits for everybody's orphans.
func initMain() (int, error) {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return 0, fmt.Errorf("keep mounts to ourselves: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return 0, fmt.Errorf("mount /proc: %w", err)
	}
	// Another one that nothing will be mounted over: the kernel lets a container mount no /proc that would show what
	// its host does not see.
	if err := unix.Mount("proc", wholeProc, "proc", 0, ""); err != nil {
		return 0, fmt.Errorf("mount another /proc: %w", err)
	}
	boot := os.Getenv(envBoot)
	if err := unix.Mount(boot, bootID, "", unix.MS_BIND, ""); err != nil {
		return 0, fmt.Errorf("put a boot id of our own in place: %w", err)
	}
	if err := os.Remove(boot); err != nil { // the mount keeps it, and nothing stays if we are killed
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
		case pid != p.Pid: // somebody's orphan
		case ws.Signaled():
			return 128 + int(ws.Signal()), nil
		default:
			return ws.ExitStatus(), nil
		}
	}
}

// AnotherBoot returns a command that does what argv says under a boot id of its own, which it writes to file: hosts
// share one kernel, and who looks finds what runs on another.
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

// NewBoot makes the kernel's boot id another one for all processes inside, as after a power loss.
func NewBoot() error {
	raw, err := os.ReadFile("/proc/sys/kernel/random/uuid")
	if err == nil {
		err = os.WriteFile(bootID, raw, 0o600) // in place: it is mounted
	}
	if err != nil {
		return fault.Wrap(err, fault.Internal, codeBootID, "the boot id cannot be made another")
	}
	return nil
}
