package node

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/wait"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime/hostnet"
	"github.com/soukhq/souk/worker"
)

// Bounds of emptying.
const (
	emptyMost = 16              // machines destroyed concurrently
	emptyTime = 2 * time.Minute // time to empty a worker
	emptyLook = 20 * time.Millisecond
)

// Holdings are what the workers of a process have.
type Holdings struct {
	Machines int
	Tasks    int // and other running programs that are no machines
	Volumes  []machine.Volume
}

// Holdings lists what the workers of this process have.
func (n *Node) Holdings(ctx context.Context) (h Holdings, err error) {
	for i, w := range n.workers {
		ms, err := w.Machines(ctx, "", false)
		if err != nil {
			return h, err
		}
		known := map[string]bool{}
		for _, m := range ms {
			known[m.ID] = true
		}
		vs, err := w.Volumes(ctx, "")
		if err != nil {
			return h, err
		}
		lives, err := n.runtimes[i].List(ctx)
		if err != nil {
			return h, err
		}
		for _, l := range lives {
			if l.Running && !known[l.Machine] {
				h.Tasks++
			}
		}
		h.Machines, h.Volumes = h.Machines+len(ms), append(h.Volumes, vs...)
	}
	return h, nil
}

// Empty destroys all that the workers of this process have: machines, tasks and volumes with their data, then the
// reapers, and the host's network rules. It is called instead of Run: nothing is served, so nothing is made again
// meanwhile.
func (n *Node) Empty(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, emptyTime)
	defer cancel()
	g, work := errgroup.WithContext(ctx)
	stopped, stop := context.WithCancel(work)
	defer stop()
	for _, w := range n.workers {
		g.Go(func() error { return w.Run(stopped) })
	}
	var errs []error
	for _, w := range n.workers {
		errs = append(errs, emptyWorker(ctx, w))
	}
	stop()
	errs = append(errs, g.Wait())
	for _, r := range n.runtimes {
		errs = append(errs, emptyRuntime(ctx, r))
	}
	if n.network != nil && n.network.Lacks == nil {
		errs = append(errs, hostnet.RemoveTunnel(n.network.Realm), hostnet.RemoveEntry(n.network.Realm))
	}
	return errors.Join(errs...)
}

// emptyWorker destroys the machines and the volumes of a worker.
func emptyWorker(ctx context.Context, w *worker.Worker) error {
	ms, err := w.Machines(ctx, "", false)
	if err != nil {
		return err
	}
	var g errgroup.Group
	g.SetLimit(emptyMost)
	for _, m := range ms {
		g.Go(func() error {
			_, err := w.Do(ctx, lifecycle.Command{Verb: lifecycle.Destroy, App: m.App, Machine: m.ID, Kill: true})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if err := untilNone(ctx, func() (int, error) {
		ms, err := w.Machines(ctx, "", false)
		return len(ms), err
	}); err != nil {
		return err
	}
	vs, err := w.Volumes(ctx, "")
	if err != nil {
		return err
	}
	for _, v := range vs {
		if _, err := w.Volume(ctx, lifecycle.VolumeCommand{Verb: "destroy", App: v.App, Volume: v.ID}); err != nil {
			return err
		}
	}
	return untilNone(ctx, func() (int, error) {
		vs, err := w.Volumes(ctx, "")
		return len(vs), err
	})
}

// untilNone waits until left returns 0.
func untilNone(ctx context.Context, left func() (int, error)) (err error) {
	n := 0
	late := wait.Until(ctx, emptyLook, func() bool {
		n, err = left()
		return err != nil || n == 0
	})
	if err == nil && late != nil {
		err = fault.New(fault.Timeout, fault.CodeNotEmpty,
			"%d machines or volumes of the worker are still there after %v; try again", n,
			emptyTime)
	}
	return err
}

// emptyRuntime ends programs that are no machines, and the reaper.
func emptyRuntime(ctx context.Context, r Runtime) error {
	lives, err := r.List(ctx)
	if err != nil {
		return err
	}
	for _, l := range lives {
		if err := r.Remove(ctx, l.Machine); err != nil {
			return err
		}
	}
	if reaped, is := r.(interface{ StopReaper(context.Context) error }); is {
		return reaped.StopReaper(ctx)
	}
	return nil
}
