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

// Sandboxes reports whether a container's programs run on a kernel of their own, in user space: whether the runtime is
// runsc (gVisor). It goes by the name of the program.
func (e Engine) Sandboxes() bool { return strings.HasPrefix(filepath.Base(e.Path), "runsc") }

// runscFlags are what runsc is told with each command. All others need nothing.
//
//   - A container's network is what the kernel has in its namespace (host means: that of the namespace), for who may
//     reach it and whom it may reach is said by rules there (package hostnet), which runsc's own network passes by.
//   - What is written goes to the layer that souk made for it, where it is counted and can be copied.
//   - What is copied into a container is seen in there: it asks again what a path is.
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

// grouped are files of a command that is born in a cgroup of version 2. runsc enters no such group where there are
// those of version 1 too, and what souk kills and freezes by is that of version 2. The command has nothing of this
// process's environment, for a sandbox would inherit it, and its machine's user may look at what that has.
type grouped struct {
	*Files
	into *os.File // nil: where this process is
}

// Set gives a command its files, and its group.
func (g grouped) Set(c *exec.Cmd) {
	g.Files.Set(c)
	c.Env = []string{"PATH=" + os.Getenv("PATH")}
	if g.into != nil && c.SysProcAttr != nil {
		c.SysProcAttr.UseCgroupFD, c.SysProcAttr.CgroupFD = true, int(g.into.Fd())
	}
}

// ownFiles makes each pipe a file of its own. A sandbox has its files not wait, which then holds for all that share
// one, and shows to the next program what it has done to the one before.
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

// execInside runs a command in a sandbox, by a process that stays until the command has ended, and ends as it did.
// That is a child of this process, and what it says is in dir. runsc could leave it behind by itself (--detach), but
// then takes a command that ends at once for one that failed.
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

// waitUntilBegun returns once a command has written the file that says that it has begun.
func waitUntilBegun(ctx context.Context, pid int, file string) error {
	t := time.NewTicker(time.Millisecond)
	defer t.Stop()
	for {
		var ended unix.Siginfo // of a child that has ended and is waited for later, or has been
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

// Process is one that runs in a sandbox.
type Process struct {
	PID, Parent int // as they are numbered in there
	Name        string
}

// Processes lists what runs in a sandbox, where the host sees nothing but the sandbox itself.
func (e Engine) Processes(ctx context.Context, id string) ([]Process, error) {
	out, err := e.commandOutput(ctx, "ps", "--format", "table", id)
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, runtime.CodeEngine,
			"what runs in container %s cannot be listed", id)
	}
	return parseProcesses(string(out)), nil
}

// parseProcesses reads a table whose columns are named in its first line, and CMD is the last.
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

// Kill ends a process in a sandbox, and those that it has forked.
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

// processTree gives a process and all that it and those have forked; nothing where it is gone.
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

// commandOutput runs one command of the runtime and returns what it says.
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
