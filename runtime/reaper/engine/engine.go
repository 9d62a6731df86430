// Package engine drives an OCI runtime: runc, crun or runsc. It makes containers, which become children of this
// process, and removes their leftovers.
package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"

	runc "github.com/containerd/go-runc"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime"
)

// Engine is an OCI runtime and its state directory. The state may contain secrets, since a specification includes the
// environment: State must be on a tmpfs.
type Engine struct {
	Path  string // of the program
	State string
	// Network means that the container to be made or started has a network; a sandbox isolates other containers from
	// the host's network stack.
	Network bool
}

// Files are the stdin, stdout and stderr of a process.
type Files [3]*os.File

// Create makes a container from a bundle, which holds its specification, and returns the process that will execute its
// program; it waits for Start. The calling thread must not end before that process. console is as for Exec. into is the
// container's v2 cgroup, nil if there is none.
func (e Engine) Create(ctx context.Context, id, bundle string, files Files, into *os.File,
	console string) (pid int, err error) {
	file := filepath.Join(bundle, "pid")
	log := filepath.Join(bundle, "log")
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	o := &runc.CreateOpts{IO: &files, PidFile: file}
	if e.Sandboxes() {
		own, done, err := files.ownFiles()
		if err != nil {
			return 0, err
		}
		defer done()
		o.IO = grouped{&own, into}
	}
	if console != "" {
		o.ConsoleSocket = socket(console)
	}
	err = e.runcClient(log).Create(ctx, id, bundle, o)
	if err != nil {
		return 0, e.loggedError(log, err)
	}
	return readPID(file)
}

// Start makes a container execute its program.
func (e Engine) Start(ctx context.Context, id, bundle string) error {
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	log := filepath.Join(bundle, "log")
	if err := e.runcClient(log).Start(ctx, id); err != nil {
		return e.loggedError(log, err)
	}
	return nil
}

// Run makes a container from a bundle, waits until its program ends, and removes it. The program has no files. The
// error says why it failed, or with which code the program ended.
func (e Engine) Run(ctx context.Context, id, bundle string) error {
	log := filepath.Join(bundle, "log")
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	o := &runc.CreateOpts{IO: &Files{}}
	if e.Sandboxes() {
		o.IO = grouped{&Files{}, nil}
	}
	code, err := e.runcClient(log).Run(ctx, id, bundle, o)
	if err == nil && code == 0 {
		return nil
	}
	if len(errorsIn(log)) > 0 || err == nil {
		err = e.loggedError(log, fmt.Errorf("it ended with %d: %w", code, cmp.Or(err, errEnded)))
	}
	return errors.Join(err, e.Delete(context.WithoutCancel(ctx), id))
}

var errEnded = errors.New("its program was executed")

// Delete removes a container, and kills it first if it runs; nil if there is none.
func (e Engine) Delete(ctx context.Context, id string) error {
	if there, err := e.hasContainer(id); err != nil || !there {
		return err
	}
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	r := e.runcClient("")
	if err := r.Delete(ctx, id, &runc.DeleteOpts{Force: true}); err != nil {
		if there, wrong := e.hasContainer(id); wrong == nil && !there {
			return nil
		}
		return fault.Wrap(err, fault.Unavailable, runtime.CodeEngine,
			"the remains of container %s cannot be removed by %s", id,
			filepath.Base(e.Path))
	}
	return nil
}

// Command is an additional process in a container.
type Command struct {
	PID    int // a child of this process, which ends when the command does
	Inside int // the argument for Kill; 0: PID is the command itself
}

// Exec runs a command in a container. console is the path of a socket that receives the near end of its terminal; "":
// no terminal. In a sandbox, the command instead uses a terminal if Files are its far end.
func (e Engine) Exec(ctx context.Context, id, bundle string, p *specs.Process, files Files,
	console string) (c Command, err error) {
	dir, err := os.MkdirTemp(bundle, "exec-")
	if err != nil {
		return c, fault.Wrap(err, fault.Unavailable, fault.CodeExec, "a command cannot be run now")
	}
	defer os.RemoveAll(dir)
	if e.Sandboxes() {
		return e.execInside(ctx, id, dir, p, files)
	}
	log := filepath.Join(dir, "log")
	file := filepath.Join(dir, "pid")
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	o := &runc.ExecOpts{IO: &files, PidFile: file, Detach: true}
	if console != "" {
		o.ConsoleSocket = socket(console)
	}
	err = e.runcClient(log).Exec(ctx, id, *p, o)
	if err != nil {
		return c, e.loggedError(log, err)
	}
	c.PID, err = readPID(file)
	return c, err
}

// socket is the path of a socket that receives the near end of a terminal.
type socket string

// Path returns the path.
func (s socket) Path() string { return string(s) }

// hasContainer reports whether the runtime has a container.
func (e Engine) hasContainer(id string) (bool, error) {
	all, err := e.Containers()
	return slices.Contains(all, id), err
}

// Containers lists the runtime's containers: runc has a directory for each, runsc a file.
func (e Engine) Containers() ([]string, error) {
	es, err := os.ReadDir(e.State)
	if os.IsNotExist(err) {
		return nil, nil
	}
	out := make([]string, 0, len(es))
	for _, x := range es {
		switch id, _, of := strings.Cut(x.Name(), "_sandbox:"); {
		case !e.Sandboxes() && x.IsDir():
			out = append(out, x.Name())
		case e.Sandboxes() && of && strings.HasSuffix(x.Name(), ".state"):
			out = append(out, id)
		}
	}
	return out, err
}

// runcClient returns a client whose commands are killed when the calling thread ends: so a runtime started by a dead
// process makes nothing.
func (e Engine) runcClient(log string) *runc.Runc {
	return &runc.Runc{Command: e.Path, Root: e.State, Log: log, LogFormat: runc.JSON, PdeathSignal: unix.SIGKILL,
		ExtraArgs: e.runscFlags()}
}

func readPID(file string) (int, error) {
	raw, err := os.ReadFile(file)
	if err == nil {
		var pid int
		if pid, err = strconv.Atoi(strings.TrimSpace(string(raw))); err == nil {
			return pid, nil
		}
	}
	return 0, fault.Wrap(err, fault.Unavailable, runtime.CodeEngine,
		"the container runtime does not say which process it made")
}

// Set sets the files of a command. Set, Stdin, Stdout, Stderr and Close implement go-runc's IO.
func (f *Files) Set(c *exec.Cmd) {
	for i, to := range []*io.Writer{1: &c.Stdout, 2: &c.Stderr} {
		if to != nil && f[i] != nil {
			*to = f[i]
		}
	}
	if f[0] != nil {
		c.Stdin = f[0]
	}
}

// Stdin returns nil: the caller has the other end.
func (*Files) Stdin() io.WriteCloser { return nil }

// Stdout returns nil, like Stdin.
func (*Files) Stdout() io.ReadCloser { return nil }

// Stderr returns nil, like Stdin.
func (*Files) Stderr() io.ReadCloser { return nil }

// Close leaves the files open: the caller closes them.
func (*Files) Close() error { return nil }

// Watch makes m fork and wait for the processes of runtimes.
func Watch(m runc.ProcessMonitor) { runc.Monitor = m }
