package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	runc "github.com/containerd/go-runc"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime"
)

// Sandboxes reports whether containers run on their own kernel in user space, that is, whether the runtime is runsc
// (gVisor). It decides by the name of the program.
func (e Engine) Sandboxes() bool { return strings.HasPrefix(filepath.Base(e.Path), "runsc") }

// runscFlags returns the flags for every command of runsc. Other runtimes need none.
//
//   - The container uses the network stack of its network namespace (--network=host means that), because the rules for
//     its traffic are in that namespace (package hostnet), and runsc's own network stack bypasses them.
//   - Writes go to the layer that souk made, where they are counted and can be copied.
//   - Files copied into a container are visible in it: the sandbox does not cache lookups.
func (e Engine) runscFlags() []string {
	if !e.Sandboxes() {
		return nil
	}
	network := "none"
	if e.Network {
		network = "host"
	}
	return []string{"--network=" + network, "--overlay2=none", "--file-access=shared"}
}

// grouped are the files of a command that starts in a v2 cgroup. On a host that also has v1 cgroups, runsc does not
// enter v2 groups, but souk kills and freezes by v2. The command does not get this process's environment, because a
// sandbox would inherit it, and the machine's user may read a sandbox's environment.
type grouped struct {
	*Files
	into *os.File // nil: the group of this process
}

// Set sets the files, the environment and the cgroup of a command.
func (g grouped) Set(c *exec.Cmd) {
	g.Files.Set(c)
	c.Env = []string{"PATH=" + os.Getenv("PATH")}
	if g.into != nil && c.SysProcAttr != nil {
		c.SysProcAttr.UseCgroupFD, c.SysProcAttr.CgroupFD = true, int(g.into.Fd())
	}
}

// ownFiles reopens each pipe. A sandbox makes its files non-blocking, which would otherwise affect every process that
// shares the open file.
func (f Files) ownFiles() (out Files, done func(), err error) {
	out = f
	var made []*os.File
	done = func() {
		for _, o := range made {
			_ = o.Close()
		}
	}
	for i, o := range f {
		var st unix.Stat_t
		if o == nil || unix.Fstat(int(o.Fd()), &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO {
			continue
		}
		mode := unix.O_WRONLY
		if i == 0 {
			mode = unix.O_RDONLY
		}
		fd, err := unix.Open("/proc/self/fd/"+strconv.Itoa(int(o.Fd())), mode|unix.O_CLOEXEC, 0)
		if err != nil {
			done()
			return f, nil, fault.Wrap(err, fault.Unavailable, runtime.CodePipe,
				"a pipe of the container cannot be opened")
		}
		out[i] = os.NewFile(uintptr(fd), o.Name())
		made = append(made, out[i])
	}
	return out, done, nil
}

// execInside runs a command in a sandbox. It returns a child of this process that stays until the command has ended,
// and exits with the command's code; its files are in dir. runsc could detach it (--detach), but then it reports a
// command that ends at once as failed.
func (e Engine) execInside(ctx context.Context, id, dir string, p *specs.Process, files Files) (c Command, err error) {
	process, file, inside := filepath.Join(dir, "process"), filepath.Join(dir, "pid"), filepath.Join(dir, "inside")
	raw, err := json.Marshal(p)
	if err == nil {
		err = os.WriteFile(process, raw, 0o600)
	}
	if err != nil {
		return c, fault.Wrap(err, fault.Unavailable, fault.CodeExec, "a command cannot be run now")
	}
	own, done, err := files.ownFiles()
	if err != nil {
		return c, err
	}
	defer done()
	log := filepath.Join(dir, "log")
	args := append([]string{"--root", e.State, "--log", log, "--log-format", "json"}, e.runscFlags()...)
	cmd := exec.Command(e.Path, append(args, "exec", "--process", process, "--pid-file", file,
		"--internal-pid-file", inside, id)...)
	grouped{&own, nil}.Set(cmd)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: p.Terminal}
	if err := cmd.Start(); err != nil {
		return c, fault.Wrap(err, fault.Unavailable, runtime.CodeEngine, "a command cannot be run now")
	}
	c.PID = cmd.Process.Pid
	if err := cmd.Process.Release(); err != nil { // the caller waits for it
		return c, err
	}
	if err := waitUntilBegun(ctx, c.PID, file); err != nil {
		return c, e.loggedError(log, err)
	}
	c.Inside, err = readPID(inside)
	return c, err
}

// waitUntilBegun returns once a command has written the file that signals its start.
func waitUntilBegun(ctx context.Context, pid int, file string) error {
	t := time.NewTicker(time.Millisecond)
	defer t.Stop()
	for {
		var ended unix.Siginfo // with WNOWAIT: a child that has ended, but is not reaped here
		err := unix.Waitid(unix.P_PID, pid, &ended, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil)
		over := errors.Is(err, unix.ECHILD) || err == nil && ended.Signo != 0
		if raw, err := os.ReadFile(file); err == nil && len(raw) > 0 {
			return nil
		}
		if over {
			return errors.New("it ended before it had begun")
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return errors.Join(ctx.Err(), unix.Kill(pid, unix.SIGKILL))
		}
	}
}

// Process is a process in a sandbox.
type Process struct {
	PID, Parent int // numbers inside the sandbox
	Name        string
}

// Processes lists the processes in a sandbox; the host sees only the sandbox itself.
func (e Engine) Processes(ctx context.Context, id string) ([]Process, error) {
	out, err := e.commandOutput(ctx, "ps", "--format", "table", id)
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, runtime.CodeEngine,
			"the processes of container %s cannot be listed", id)
	}
	return parseProcesses(string(out)), nil
}

// parseProcesses parses a table with a header line, whose last column is CMD.
func parseProcesses(table string) (out []Process) {
	head, rest, _ := strings.Cut(table, "\n")
	at := map[string]int{}
	for i, name := range strings.Fields(head) {
		at[name] = i
	}
	for line := range strings.Lines(rest) {
		f := strings.Fields(line)
		if len(f) < len(at) || len(at) == 0 {
			continue
		}
		pid, err := strconv.Atoi(f[at["PID"]])
		parent, wrong := strconv.Atoi(f[at["PPID"]])
		if err == nil && wrong == nil {
			out = append(out, Process{pid, parent, strings.Join(f[at["CMD"]:], " ")})
		}
	}
	return out
}

// Kill kills a process in a sandbox, and all of its descendants.
func (e Engine) Kill(ctx context.Context, id string, pid int) error {
	all, err := e.Processes(ctx, id)
	if err != nil {
		return err
	}
	for _, p := range processTree(all, pid) {
		_, wrong := e.commandOutput(ctx, "kill", "--pid", strconv.Itoa(p), id, strconv.Itoa(int(syscall.SIGKILL)))
		if err == nil {
			err = wrong
		}
	}
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, runtime.CodeEngine, "a command in container %s cannot be ended", id)
	}
	return nil
}

// processTree returns a process and all of its descendants; nothing if it is gone.
func processTree(all []Process, pid int) (out []int) {
	for _, p := range all {
		if p.PID == pid {
			out = append(out, pid)
		}
	}
	for _, p := range all {
		if p.Parent == pid && p.PID != pid {
			out = append(out, processTree(all, p.PID)...)
		}
	}
	return out
}

// commandOutput runs one command of the runtime and returns its output.
func (e Engine) commandOutput(ctx context.Context, args ...string) ([]byte, error) {
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	args = append(append([]string{"--root", e.State}, e.runscFlags()...), args...)
	var out, said bytes.Buffer
	cmd := exec.CommandContext(ctx, e.Path, args...)
	cmd.Stdout, cmd.Stderr = &out, &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	ended, err := runc.Monitor.StartLocked(cmd)
	if err != nil {
		return nil, err
	}
	code, err := runc.Monitor.Wait(cmd, ended)
	if err == nil && code != 0 {
		err = &runc.ExitError{Status: code}
		first, _, _ := strings.Cut(said.String(), "\n")
		err = fault.Wrap(err, fault.Unavailable, runtime.CodeEngine, "%s", first)
	}
	return out.Bytes(), err
}
