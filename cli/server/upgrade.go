package server

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/handover"
	"github.com/soukhq/souk/node"
)

// succession is how another build takes the place of a server that serves: in the same process, by execve(2), so that
// its listeners stay open and whoever manages the process sees no end of it.
type succession struct {
	doors *handover.Doors
	exe   string   // as it was named when this process began: an upgrade puts another file there
	env   []string // with the service manager's socket, which what this process starts does not get
	due   atomic.Bool
	life  context.Context //nolint:containedctx // of this process: who ends it wants no successor
}

// Bounds of an upgrade.
const (
	settledAfter = 10 * time.Second // from the start until listeners of the program before are closed that nobody wants
	tryTime      = 20 * time.Second // for the new program to say its version
	leaveTime    = 2 * time.Second  // for a reaper to answer
)

// followUpgrades takes over the listeners of the program before, and has ctx end once this one is asked by SIGUSR2 to give
// its place to the program that is at its path now, if that can be executed.
func followUpgrades(ctx context.Context, log *slog.Logger) (context.Context, *succession, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, nil, fault.Wrap(err, fault.Internal, "upgrade", "the path of this program is not known")
	}
	doors, err := handover.Inherit()
	if err != nil {
		return nil, nil, fault.Wrap(err, fault.Internal, "upgrade",
			"what the program before left open cannot be taken over: start souk again")
	}
	time.AfterFunc(settledAfter, doors.Settled)
	s := &succession{doors: doors, exe: exe, env: os.Environ(), life: ctx}
	ctx, end := context.WithCancel(ctx)
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR2)
	go func() {
		defer signal.Stop(asked)
		for {
			select {
			case <-asked:
			case <-ctx.Done():
				return
			}
			if err := s.prepare(ctx); err != nil {
				log.Error("the program cannot take this one's place, which goes on", "program", exe, "err", err)
				continue
			}
			end()
		}
	}()
	return ctx, s, nil
}

// prepare sees that the new program runs at all, and keeps the listeners for it.
func (s *succession) prepare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	if out, err := exec.CommandContext(ctx, s.exe, "version").CombinedOutput(); err != nil {
		return fault.Wrap(err, fault.Precondition, "upgrade", "%s version failed: %.200q", s.exe, out)
	}
	if err := s.doors.Leave(); err != nil {
		return fault.Wrap(err, fault.Internal, "upgrade", "the listeners cannot be kept open")
	}
	s.due.Store(true)
	return nil
}

// leave has what is there for machines end with a server that has no successor, where there are none, and returns how
// many there are.
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

// done ends what this program was: by the one that takes its place, where that is due, and it does not return then.
func (s *succession) done(err error, stopped func()) error {
	if !s.due.Load() || s.life.Err() != nil {
		stopped()
		return err
	}
	berr := s.doors.Become(s.exe, os.Args, s.env)
	return fault.Wrap(berr, fault.Internal, "upgrade", "%s did not take this program's place: start souk again", s.exe)
}
