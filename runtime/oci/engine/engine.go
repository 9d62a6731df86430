// Package engine drives an OCI runtime: runc, crun or runsc. It makes containers, which then are children of this
// process, and sees to what is left of them.
package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"strings"

	runc "github.com/containerd/go-runc"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
)

// Engine is one OCI runtime, and where it keeps what it knows of its containers. All that lies there may hold secrets,
// for a specification has the environment in it: State must be in memory (tmpfs).
type Engine struct {
	Path  string // of the program
	State string
}

// Files are what a process has as stdin, stdout and stderr.
type Files [3]*os.File

// Create makes a container of a bundle, which holds its specification, and returns the process that will become its
// program; it waits for Start. The thread that calls it must not end before. console is as for Exec.
func (e Engine) Create(ctx context.Context, id, bundle string, files Files, console string) (pid int, err error) {
	file := filepath.Join(bundle, "pid")
	log := filepath.Join(bundle, "log")
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	o := &runc.CreateOpts{IO: &files, PidFile: file}
	if console != "" {
		o.ConsoleSocket = socket(console)
	}
	err = e.client(log).Create(ctx, id, bundle, o)
	if err != nil {
		return 0, said(log, err)
	}
	return readPID(file)
}

// Start has a container that was made execute its program.
func (e Engine) Start(ctx context.Context, id, bundle string) error {
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	log := filepath.Join(bundle, "log")
	if err := e.client(log).Start(ctx, id); err != nil {
		return said(log, err)
	}
	return nil
}

// Delete removes what is left of a container, and ends it first should it run. nil when there is none.
func (e Engine) Delete(ctx context.Context, id string) error {
	if _, err := os.Lstat(filepath.Join(e.State, id)); os.IsNotExist(err) {
		return nil
	}
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	r := e.client("")
	if err := r.Delete(ctx, id, &runc.DeleteOpts{Force: true}); err != nil {
		if _, gone := os.Lstat(filepath.Join(e.State, id)); os.IsNotExist(gone) {
			return nil
		}
		return fault.Wrap(err, fault.Unavailable, "engine", "what is left of container %s cannot be removed by %s", id,
			filepath.Base(e.Path))
	}
	return nil
}

// Exec runs a command in a container and returns its process, a child of this one. console is the path of a socket that
// gets the near end of its terminal; "" is none.
func (e Engine) Exec(ctx context.Context, id, bundle string, p *specs.Process, files Files,
	console string) (pid int, err error) {
	dir, err := os.MkdirTemp(bundle, "exec-")
	if err != nil {
		return 0, fault.Wrap(err, fault.Unavailable, "exec", "a command cannot be run now")
	}
	defer os.RemoveAll(dir)
	log := filepath.Join(dir, "log")
	file := filepath.Join(dir, "pid")
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	o := &runc.ExecOpts{IO: &files, PidFile: file, Detach: true}
	if console != "" {
		o.ConsoleSocket = socket(console)
	}
	err = e.client(log).Exec(ctx, id, *p, o)
	if err != nil {
		return 0, said(log, err)
	}
	return readPID(file)
}

// socket is the path of a socket for the near end of a terminal.
type socket string

// Path is where it is.
func (s socket) Path() string { return string(s) }

// Containers lists what the runtime knows of.
func (e Engine) Containers() ([]string, error) {
	es, err := os.ReadDir(e.State)
	if os.IsNotExist(err) {
		return nil, nil
	}
	out := make([]string, 0, len(es))
	for _, x := range es {
		if x.IsDir() {
			out = append(out, x.Name())
		}
	}
	return out, err
}

// client is the runtime's, which ends with the thread that calls it: one that was asked by a process that is no more
// makes nothing.
func (e Engine) client(log string) *runc.Runc {
	return &runc.Runc{Command: e.Path, Root: e.State, Log: log, LogFormat: runc.JSON, PdeathSignal: unix.SIGKILL}
}

func readPID(file string) (int, error) {
	raw, err := os.ReadFile(file)
	if err == nil {
		var pid int
		if pid, err = strconv.Atoi(strings.TrimSpace(string(raw))); err == nil {
			return pid, nil
		}
	}
	return 0, fault.Wrap(err, fault.Unavailable, "engine", "the container runtime does not say which process it made")
}

// said makes what a runtime wrote into its log an error: what was wrong with the container, or the runtime's words.
func said(log string, err error) error {
	msg := lastError(log)
	if msg == "" {
		return fault.Wrap(err, fault.Unavailable, "engine", "the container runtime failed and does not say why")
	}
	_, tried, _ := strings.Cut(msg, "exec: ") // then `"name": why`
	if name, why, found := strings.Cut(tried, ": "); found {
		switch {
		case strings.Contains(why, "not found"), strings.Contains(why, "no such file"):
			return fault.New(fault.Precondition, "program",
				"there is no program %s in the image: name one that it has, with its path or in its PATH", name)
		case strings.Contains(why, "permission denied"), strings.Contains(why, "is a directory"):
			return fault.New(fault.Precondition, "program",
				"%s in the image cannot be executed: it is a directory, or its user may not (chmod +x)", name)
		case strings.Contains(why, "exec format error"):
			return fault.New(fault.Precondition, "program", "%s is not a program for this worker (another "+
				"architecture, or a script without a #! line)", name)
		}
	}
	return fault.Wrap(fmt.Errorf("%s: %w", msg, err), fault.Unavailable, "engine", "the container cannot be made now")
}

// lastError finds the last error in a log of JSON lines.
func lastError(file string) string {
	raw, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	last := ""
	for line := range bytes.Lines(raw) {
		var l struct{ Level, Msg string }
		if json.Unmarshal(line, &l) == nil && (l.Level == "error" || l.Level == "fatal") {
			last = l.Msg
		}
	}
	return last
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
