// Package process runs machines as plain processes of the host. It works everywhere, with and without root, and is the
// default runtime. Its image is souk/host; a machine runs a program that is installed on the worker.
//
// # How it is built
//
// souk does not start machines itself. A small *reaper* (package reaper), souk's own binary re-executed once per
// directory, is their parent, and this package is its client. The reaper keeps running when souk is stopped, killed or
// upgraded, and with it the machines, their output, and their exits. See docs/decisions/0003-one-reaper-per-worker.md.
//
// # What a machine gets
//
//   - a directory of its own, which is its current directory unless Spec.Dir names another; files and mounts are placed
//     below it by their paths
//   - if souk is root, an unprivileged user of its own, and its files and mounts also at their real paths (packages
//     users and space; docs/decisions/0038-a-machine-is-not-souk.md)
//   - a session and process group of its own, and exactly the environment it was given
//   - if the host allows it, cgroups: limits on CPU, memory and processes, and a way to kill all of them at once
//   - its stdout and stderr kept in files of bounded size, unless Spec.Stdio names files for them
//
// A machine ends with its main process: remaining processes are killed.
//
// It shares the host's files and network. With Spec.TTY it has a terminal for its stdin, stdout and stderr. A separate
// process (package keeper) keeps the terminal open, so that the machine does not notice when the reaper is replaced.
//
// # Directory
//
//	DIR/lives             running and ended lives, appended by the reaper
//	DIR/reaper.sock       mode 0600; both ends check the other's user
//	DIR/reaper.lock       held by the reaper
//	DIR/reaper.log        the reaper's own log
//	DIR/spool             output between the machines' pipes and their logs
//	DIR/terminals         the socket of the keeper of terminals, if there are any
//	DIR/machines/ID       the machine's directory
//	DIR/logs/ID           its output, once there is any
package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/devices"
	"github.com/soukhq/souk/runtime/reaper"
)

// Options of a process runtime.
type Options struct {
	Dir string // used by this runtime alone; made if it does not exist
	Log *slog.Logger

	// ReaperCommand is the command to run the reaper; nil: this program with the argument "reaper". The directory is
	// appended as an argument and set as SOUK_REAPER_DIR, for ReaperHook.
	ReaperCommand []string

	AllowRoot    bool          // machines may run as root, if their config asks for it
	OwnUsersOnly bool          // programs run as people of the host by Spec.As alone, never by Spec.User
	LogFileBytes int64         // size of one log file; 0: 1 MiB
	LogFiles     int           // log files kept per machine; 0: 4
	ReaperIdle   time.Duration // how long an idle reaper stays; 0: a minute; takes effect when the reaper is started
	Devices      *devices.Set  // the host's devices, given to machines that hold them and denied to others; nil: none
	NoCgroups    bool          // behave as on a host without cgroups; takes effect when the reaper is started
}

// Defaults and limits.
const (
	defaultLogBytes = 1 << 20
	defaultLogFiles = 4
	maxPIDs         = 4096 // processes of one machine
	maxFileBytes    = 16 << 20
)

// Runtime is the client of one reaper.
type Runtime struct {
	o     Options
	link  *link
	exits chan runtime.Exit
	done  context.Context
	close context.CancelFunc
	wg    sync.WaitGroup
}

// The optional interfaces it implements.
var (
	_ runtime.Runtime = (*Runtime)(nil)
	_ runtime.Pauser  = (*Runtime)(nil)
	_ runtime.Resizer = (*Runtime)(nil)
	_ runtime.Meter   = (*Runtime)(nil)
	_ runtime.Copier  = (*Runtime)(nil)
	_ runtime.Doctor  = (*Runtime)(nil)
	_ runtime.Acker   = (*Runtime)(nil)
	_ runtime.Pinger  = (*Runtime)(nil)
	_ runtime.Remover = (*Runtime)(nil)

	_ runtime.DirFinder = (*Runtime)(nil)
)

// Open connects to the reaper of o.Dir, and starts one if there is none. Running machines are visible at once.
func Open(o Options) (*Runtime, error) {
	if os.Getenv(reaper.EnvDir) != "" {
		return nil, fault.New(fault.Internal, codeReaper,
			"a reaper must not open a runtime: call process.ReaperHook first thing in main or TestMain")
	}
	if err := settleOptions(&o); err != nil {
		return nil, err
	}
	r := &Runtime{o: o, exits: make(chan runtime.Exit)}
	r.done, r.close = context.WithCancel(context.Background())
	r.link = newLink(r.done, o)
	if _, err := r.link.liveSession(r.done); err != nil {
		r.close()
		return nil, err
	}
	r.wg.Go(r.feedExits)
	r.wg.Go(r.link.keepConnected)
	return r, nil
}

// settleOptions fills in defaults and makes the directory.
func settleOptions(o *Options) error {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.LogFileBytes == 0 {
		o.LogFileBytes = defaultLogBytes
	}
	if o.LogFiles == 0 {
		o.LogFiles = defaultLogFiles
	}
	if len(o.ReaperCommand) == 0 {
		exe, err := os.Executable()
		if err != nil {
			return fault.Wrap(err, fault.Internal, codeReaper, "souk cannot find its own program")
		}
		if strings.HasSuffix(exe, ".test") {
			return fault.New(fault.Internal, codeReaper,
				"a test must set process.Options.ReaperCommand to its own os.Args[0] and call process.ReaperHook in "+
					"TestMain")
		}
		o.ReaperCommand = []string{exe, "reaper"}
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil || o.Dir == "" {
		return fault.New(fault.Invalid, fault.CodeDir, "the process runtime needs a directory, %q is none", o.Dir)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fault.Wrap(err, fault.Precondition, fault.CodeDir, "the directory %s cannot be made", dir)
	}
	if o.Dir, err = filepath.EvalSymlinks(dir); err != nil {
		return fault.Wrap(err, fault.Precondition, fault.CodeDir, "the directory %s cannot be found", dir)
	}
	return ownDir(o.Dir)
}

// ownDir refuses a directory that another user could write.
func ownDir(dir string) error {
	st, err := os.Stat(dir)
	if err != nil {
		return fault.Wrap(err, fault.Precondition, fault.CodeDir, "the directory %s cannot be looked at", dir)
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !st.IsDir() || !ok || int(sys.Uid) != os.Geteuid() {
		return fault.New(fault.Precondition, fault.CodeDir,
			"%s must be a directory that belongs to the user souk runs as (%d)",
			dir, os.Geteuid())
	}
	if st.Mode()&0o066 != 0 { // 0711 is what machines with their own users need
		if err := os.Chmod(dir, 0o700); err != nil {
			return fault.Wrap(err, fault.Precondition, fault.CodeDir,
				"the mode of the directory %s cannot be changed to keep other users out", dir)
		}
	}
	return nil
}

// Name returns "process".
func (*Runtime) Name() string { return "process" }

// CanRun accepts souk/host with any tag.
func (*Runtime) CanRun(image, _ string) error {
	name, _, _ := strings.Cut(image, "@")
	if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, '/') {
		name = name[:i]
	}
	for _, registry := range []string{"docker.io/", "registry.fly.io/"} {
		name = strings.TrimPrefix(name, registry)
	}
	if name == "souk/host" {
		return nil
	}
	return fault.New(fault.Invalid, machine.CodeImage,
		"this worker runs programs of its own host and cannot run the image %q: use the image souk/host and name an "+
			"installed program in config.init.exec", image)
}

// Exits delivers each exit that is not acknowledged. Close closes the channel.
func (r *Runtime) Exits() <-chan runtime.Exit { return r.exits }

// feedExits passes exits to the channel, in the order they came.
func (r *Runtime) feedExits() {
	defer close(r.exits)
	for {
		x, ok := r.link.nextExit(r.done)
		if !ok {
			return
		}
		select {
		case r.exits <- x:
		case <-r.done.Done():
			return
		}
	}
}

// Close closes the connection to the reaper, which keeps running with the machines.
func (r *Runtime) Close() error {
	r.close()
	err := r.link.shutDown()
	r.wg.Wait()
	return err
}

// StopReaper ends the reaper itself, for tests and for removing a worker for good. It refuses while machines run,
// because their output and exits would be lost.
func (r *Runtime) StopReaper(ctx context.Context) error {
	all, err := r.List(ctx)
	if err != nil {
		return err
	}
	for _, s := range all {
		if s.Running {
			return fault.New(fault.Precondition, codeRunning,
				"machine %s still runs: remove it before its reaper is stopped", s.Machine)
		}
	}
	s, err := r.link.liveSession(ctx)
	if err != nil {
		return err
	}
	pid := s.welcome.PID
	if err := r.Close(); err != nil {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fault.Wrap(err, fault.Internal, codeReaper, "the reaper cannot be ended")
	}
	if err := r.link.waitUntilGone(ctx, pid); err != nil {
		return err
	}
	if t := s.welcome.Tree; t != nil {
		if err := t.Destroy(); err != nil {
			return fault.Wrap(err, fault.Internal, runtime.CodeCgroup, "souk's own cgroups cannot be removed")
		}
	}
	return nil
}

// checkPrepared returns an error unless the machine's directory exists.
func (r *Runtime) checkPrepared(id, dir string) error {
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return fault.New(fault.NotFound, runtime.CodeUnknownMachine,
			"the process runtime does not know a machine %s: it was never prepared here, or was removed", id)
	} else if err != nil {
		return fault.Wrap(err, fault.Unavailable, runtime.CodeDirectory,
			"the directory of machine %s cannot be looked at", id)
	}
	return nil
}

func reaperGone(err error) error {
	return fault.Wrap(err, fault.Unavailable, codeReaper, "the reaper did not answer; it is started again")
}

// undialedError returns the error for a failed connection to the reaper.
func undialedError(ctx context.Context, err error) error {
	// the dialer may notice the deadline before ctx does
	if ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded) {
		return fault.Wrap(err, fault.Timeout, "", "the reaper did not answer in the time given")
	}
	return reaperGone(err)
}

func timeout(ctx context.Context, what string) error {
	return fault.Wrap(ctx.Err(), fault.Timeout, "", "%s",
		fmt.Sprintf("the process runtime did not %s in the time given", what))
}
