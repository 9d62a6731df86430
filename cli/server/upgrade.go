package server

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/handover"
	"github.com/soukhq/souk/node"
)

// succession lets another binary replace a running server in the same process, by execve(2), so that its listeners stay
// open and the service manager sees no exit.
type succession struct {
	doors *handover.Doors
	exe   string   // path at which this process started: an upgrade puts the new file there
	env   []string // includes the service manager's socket, which child processes do not get
	due   atomic.Bool
	life  context.Context //nolint:containedctx // of this process: who ends it wants no successor
	log   *slog.Logger
	up    chan struct{} // closed when this program serves
}

// Bounds of an upgrade.
const (
	settledAfter = 10 * time.Second // after the start: unused listeners of the previous program are closed
	tryTime      = 20 * time.Second // for the new program to print its version
	pipeTime     = time.Second      // wait for its output after its end
	leaveTime    = 2 * time.Second  // for a reaper to answer
)

// followUpgrades takes over the previous program's listeners. It ends ctx when SIGUSR2 asks for an upgrade and the
// program now at this path can be executed.
func followUpgrades(ctx context.Context, log *slog.Logger) (context.Context, *succession, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, nil, fault.Wrap(err, fault.Internal, fault.CodeUpgrade, "the path of this program is not known")
	}
	doors, err := handover.Inherit()
	if err != nil {
		return nil, nil, fault.Wrap(err, fault.Internal, fault.CodeUpgrade,
			"the sockets that the previous program left open cannot be taken over: start souk again")
	}
	time.AfterFunc(settledAfter, doors.Settled)
	s := &succession{doors: doors, exe: exe, env: os.Environ(), life: ctx, log: log,
		up: make(chan struct{})}
	ctx, end := context.WithCancel(ctx)
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR2) // for good: the default action would kill an ending process
	go s.follow(ctx, asked, end)
	return ctx, s, nil
}

// serves says that this program serves: from now on another may replace it. An earlier request waits, since a
// half-started program can only fail.
func (s *succession) serves() { close(s.up) }

// follow calls end once a requested program can replace this one.
func (s *succession) follow(ctx context.Context, asked <-chan os.Signal, end func()) {
	select {
	case <-s.up:
	case <-s.life.Done():
		return
	}
	for {
		select {
		case <-asked:
		case <-s.life.Done():
			return
		}
		if s.due.Load() {
			s.log.Info("another program takes this one's place already, as soon as requests under way have ended",
				"program", s.exe)
			continue
		}
		version, err := s.prepare(ctx, tryTime)
		if err != nil {
			s.log.Error("the program cannot take this one's place, which goes on", "program", s.exe, "err", err)
			continue
		}
		s.log.Info("another program takes this one's place", "program", s.exe, "version", version)
		end()
	}
}

// prepare checks that the new program runs and is a souk, returns its version, and keeps the listeners for it.
func (s *succession) prepare(ctx context.Context, within time.Duration) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.exe, "version", "--json")
	cmd.WaitDelay = pipeTime // its child processes may keep the output open
	var said, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &errs
	err = cmd.Run()
	switch {
	case ctx.Err() != nil:
		return "", fault.New(fault.Precondition, fault.CodeUpgrade,
			"%s did not say its version within %v", s.exe, within)
	case err != nil:
		return "", fault.Wrap(err, fault.Precondition, fault.CodeUpgrade, "%s version failed: %.200q", s.exe,
			append(errs.Bytes(), said.Bytes()...))
	}
	var v struct {
		Version string `json:"version"`
		Go      string `json:"go"`
	}
	if err := json.Unmarshal(said.Bytes(), &v); err != nil || v.Version == "" || v.Go == "" {
		return "", fault.New(fault.Precondition, fault.CodeUpgrade,
			"%s is no souk: asked for its version it says %.200q; put a build of souk there", s.exe, said.Bytes())
	}
	if err := s.doors.Leave(); err != nil {
		return "", fault.Wrap(err, fault.Internal, fault.CodeUpgrade, "the listeners cannot be kept open")
	}
	s.due.Store(true)
	return v.Version, nil
}

// leave counts the running machines. If there are none and no program follows, it ends what the server keeps on the
// host for machines.
func (s *succession) leave(ctx context.Context, n *node.Node, log *slog.Logger) (left int) {
	ctx = context.WithoutCancel(ctx)
	left = n.Running(ctx)
	if left > 0 || s.due.Load() && s.life.Err() == nil {
		return left
	}
	ctx, cancel := context.WithTimeout(ctx, leaveTime)
	defer cancel()
	if err := n.Leave(ctx); err != nil {
		log.Info("what is there for machines was not told that souk ends; it ends by itself in a minute", "err", err)
	}
	return left
}

// done ends this program. If an upgrade is due it executes the new program, and does not return.
func (s *succession) done(err error, stopped func()) error {
	if !s.due.Load() || s.life.Err() != nil {
		stopped()
		return err
	}
	signal.Ignore(syscall.SIGUSR2) // kept by execve: otherwise the signal could kill the new program before it listens
	berr := s.doors.Become(s.exe, os.Args, s.env)
	return fault.Wrap(berr, fault.Internal, fault.CodeUpgrade,
		"%s could not be executed in place of this program: start souk again", s.exe)
}
