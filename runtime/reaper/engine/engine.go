// Package engine drives an OCI runtime: runc, crun or runsc. It makes containers, which then are children of this
// process, and sees to what is left of them.
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

// Engine is one OCI runtime, and where it keeps what it knows of its containers. All that lies there may hold secrets,
// for a specification has the environment in it: State must be in memory (tmpfs).
type Engine struct {
	Path  string // of the program
	State string
	// Network says that the container that is made or started has one; of others a sandbox keeps the host's kernel out.
	Network bool
}

// Files are what a process has as stdin, stdout and stderr.
type Files [3]*os.File

// Create makes a container of a bundle, which holds its specification, and returns the process that will become its
// program; it waits for Start. The thread that calls it must not end before. console is as for Exec. into is the
// container's cgroup of version 2; nil where there is none.
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

// Start has a container that was made execute its program.
func (e Engine) Start(ctx context.Context, id, bundle string) error {
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	log := filepath.Join(bundle, "log")
	if err := e.runcClient(log).Start(ctx, id); err != nil {
		return e.loggedError(log, err)
	}
	return nil
}

// Run makes a container of a bundle, waits until its program ends, and removes it. Its program has no files. The error
// says why that has not been, or with which code the program ended.
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

// Delete removes what is left of a container, and ends it first should it run. nil when there is none.
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
			"what is left of container %s cannot be removed by %s", id,
			filepath.Base(e.Path))
	}
	return nil
}

// Command is a process beside a container's first.
type Command struct {
	PID    int // a child of this process, which ends as the command does
	Inside int // what Kill knows it by; 0: PID is the command itself
}

// Exec runs a command in a container. console is the path of a socket that gets the near end of its terminal; "" is
// none. Of a sandbox, where Files are a terminal's far end the command has that one.
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

// socket is the path of a socket for the near end of a terminal.
type socket string

// Path is where it is.
func (s socket) Path() string { return string(s) }

// hasContainer reports whether the runtime knows of a container.
func (e Engine) hasContainer(id string) (bool, error) {
	all, err := e.Containers()
	return slices.Contains(all, id), err
}

// Containers lists what the runtime knows of: runc has a directory for each, runsc a file.
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

// runcClient is the runtime's, which ends with the thread that calls it: one that was asked by a process that is no more
// makes nothing.
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

// Set gives a command its files. Stdin, Stdout, Stderr and Close make Files what go-runc takes.
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

// Stdin is nil: the caller has the other end.
func (*Files) Stdin() io.WriteCloser { return nil }

// Stdout is nil, as Stdin.
func (*Files) Stdout() io.ReadCloser { return nil }

// Stderr is nil, as Stdin.
func (*Files) Stderr() io.ReadCloser { return nil }

// Close leaves the files open: they are the caller's.
func (*Files) Close() error { return nil }

// Watch has the processes of runtimes, which this package executes, forked and waited for by m.
func Watch(m runc.ProcessMonitor) { runc.Monitor = m }
