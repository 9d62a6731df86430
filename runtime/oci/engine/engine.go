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
	"regexp"
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
		own, done, err := files.own()
		if err != nil {
			return 0, err
		}
		defer done()
		o.IO = grouped{&own, into}
	}
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
	if there, err := e.knows(id); err != nil || !there {
		return err
	}
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	r := e.client("")
	if err := r.Delete(ctx, id, &runc.DeleteOpts{Force: true}); err != nil {
		if there, wrong := e.knows(id); wrong == nil && !there {
			return nil
		}
		return fault.Wrap(err, fault.Unavailable, "engine", "what is left of container %s cannot be removed by %s", id,
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
		return c, fault.Wrap(err, fault.Unavailable, "exec", "a command cannot be run now")
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
	err = e.client(log).Exec(ctx, id, *p, o)
	if err != nil {
		return c, said(log, err)
	}
	c.PID, err = readPID(file)
	return c, err
}

// socket is the path of a socket for the near end of a terminal.
type socket string

// Path is where it is.
func (s socket) Path() string { return string(s) }

// knows reports whether the runtime knows of a container.
func (e Engine) knows(id string) (bool, error) {
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

// client is the runtime's, which ends with the thread that calls it: one that was asked by a process that is no more
// makes nothing.
func (e Engine) client(log string) *runc.Runc {
	return &runc.Runc{Command: e.Path, Root: e.State, Log: log, LogFormat: runc.JSON, PdeathSignal: unix.SIGKILL,
		ExtraArgs: e.flags()}
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
	all := errorsIn(log)
	if len(all) == 0 {
		return fault.Wrap(err, fault.Unavailable, "engine", "the container runtime failed and does not say why")
	}
	msg := all[len(all)-1]
	if strings.Contains(msg, "uids and gids must be in range") { // runc's own; files may belong to any
		return fault.New(fault.Precondition, "user",
			"the container runtime runs nobody with a number above 2147483647: give the machine another user")
	}
	_, tried, is := strings.Cut(msg, "exec: ") // then `"name": why`
	if !is {
		_, tried, _ = strings.Cut(msg, "failed to load ") // of runsc, then `name: why`
	}
	if name, why, found := strings.Cut(tried, ": "); found {
		switch {
		case strings.Contains(why, "not found"), strings.Contains(why, "no such file"):
			return fault.New(fault.Precondition, runtime.CodeNoProgram,
				"there is no program %s in the image: name one that it has, with its path or in its PATH", name)
		case strings.Contains(why, "permission denied"), strings.Contains(why, "is a directory"):
			return fault.New(fault.Precondition, runtime.CodeNotExecutable,
				"%s in the image cannot be executed: it is a directory, or its user may not (chmod +x)", name)
		case strings.Contains(why, "exec format error"):
			return fault.New(fault.Precondition, runtime.CodeNotExecutable,
				"%s is not a program for this worker (another "+
					"architecture, or a script without a #! line)", name)
		}
	}
	code := "engine"
	switch why := initError(msg); {
	case strings.HasSuffix(msg, "error during container init: %!w(<nil>)") || strings.HasSuffix(msg, notReady):
		code = codeSilent
	case why != "" && !slices.ContainsFunc(passing, func(p string) bool { return strings.Contains(why, p) }):
		code = codeInit
	}
	return fault.Wrap(fmt.Errorf("%s: %w", strings.Join(all, ": "), err), fault.Unavailable, code,
		"the container cannot be made now")
}

// codeInit is the code of the error of a container whose first process said what was wrong with what it is to be.
const codeInit = "engine_init"

// initError is what a container's first process said, without the number that each container has; "": nothing.
func initError(text string) string {
	_, why, _ := strings.Cut(text, "error during container init: ")
	return containerNumber.ReplaceAllString(why, "")
}

// How it ends, with what go-runc adds, and how runc says that there is no directory to begin in.
var (
	toolEnd     = regexp.MustCompile(`: \S+ did not terminate successfully.*$`)
	noDirectory = regexp.MustCompile(`^(?:mkdir|chdir to cwd) \(?"?([^":]+)"?\)?(?: set in config.json failed)?: (.*)$`)
)

var containerNumber = regexp.MustCompile(`-[0-9a-f]{8}\b`)

// passing are the words of errors that are the host's of this moment.
var passing = []string{"resource temporarily unavailable", "cannot allocate memory", "no space left",
	"too many open files", "device or resource busy", "input/output error", "interrupted", "timed out",
	"no buffer space"}

// Wrong reports whether a container was not made because of what it is to be, as it seems: Refused knows after a second
// try.
func Wrong(err error) bool { return fault.CodeOf(err) == codeInit }

// Refused says what is wrong with a container that cannot be made now or later: its first process said the same twice.
// Else it returns nil.
func Refused(first, second error) error {
	if fault.CodeOf(first) != codeInit || fault.CodeOf(second) != codeInit {
		return nil
	}
	why := initError(second.Error())
	if why != initError(first.Error()) {
		return nil
	}
	why = toolEnd.ReplaceAllString(why, "")
	if m := noDirectory.FindStringSubmatch(why); m != nil {
		return fault.New(fault.Precondition, "container",
			"the program cannot begin in the directory %s: %s; change the image's WORKDIR, or what is there", m[1],
			m[2])
	}
	return fault.New(fault.Precondition, "container",
		"the container can be made neither now nor later: %s; change the image or the launch", why)
}

// codeSilent is the code of the error of a container whose first process ended, or was killed, before it said that it
// was ready or what it lacks. notReady is how runc says so from 1.2 on; before, it says that there was no error.
const (
	codeSilent = "engine_silent"
	notReady   = "procReady not received"
)

// EndedSilently reports whether a container was not made for no reason that its first process gave: it may be the next
// time. Its program has not been executed.
func EndedSilently(err error) bool { return fault.CodeOf(err) == codeSilent }

// errorsIn finds the errors in a log of JSON lines: what a container's first process has said comes before what that
// means.
func errorsIn(file string) (all []string) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	for line := range bytes.Lines(raw) {
		var l struct{ Level, Msg string }
		if json.Unmarshal(line, &l) == nil && (l.Level == "error" || l.Level == "fatal") {
			first, _, _ := strings.Cut(l.Msg, "\n") // runsc adds where in its program that was
			all = append(all, first)
		}
	}
	return all
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
