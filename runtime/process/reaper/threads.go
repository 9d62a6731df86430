package reaper

import (
	"context"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime/process/cgroup"
	"github.com/soukhq/souk/runtime/process/proc"
)

// threads makes the threads that are parked in groups, and only while there is room for them: the Go runtime ends a
// process for which the kernel does not make a thread that it wants, so where machines have taken all there may be, a
// start would end the reaper in place of being refused.
type threads struct {
	headroom func() int64
	log      *slog.Logger

	ready chan *parkedThread // made beforehand, in no group yet
	low   chan struct{}      // there are fewer than there may be
	short atomic.Bool        // that there is no room has been said
}

const (
	readyThreads = 4
	minHeadroom  = 16 // processes that others may make while a thread is made

	// idleThreads are the Go runtime's own, made at the start: it makes one when more calls wait in the kernel than
	// ever before.
	idleThreads = 16
)

// newThreads gives what parks threads in the groups of a tree.
func newThreads(ctx context.Context, t *cgroup.Tree, log *slog.Logger) *threads {
	p := &threads{log: log, ready: make(chan *parkedThread, readyThreads), low: make(chan struct{}, 1)}
	p.headroom = func() int64 { return min(t.Headroom(), proc.Headroom()) }
	if p.headroom() > idleThreads+minHeadroom {
		warm(idleThreads)
	}
	p.low <- struct{}{}
	go p.keep(ctx)
	return p
}

// warm has the Go runtime make threads, which it keeps.
func warm(n int) {
	var all, done sync.WaitGroup
	all.Add(n)
	for range n {
		done.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			all.Done()
			all.Wait() // so that each has one of its own
		})
	}
	done.Wait()
}

// park puts a thread into g; nil where none is needed.
func (p *threads) park(g cgroup.Group) (*parkedThread, error) {
	if !g.NeedsEnter() {
		return nil, nil
	}
	s, err := p.take()
	if err != nil {
		return nil, err
	}
	if err := s.run(g.Enter); err != nil {
		s.leave() // Enter has left again what it had entered
		return nil, err
	}
	return s, nil
}

func (p *threads) take() (*parkedThread, error) {
	select {
	case p.low <- struct{}{}:
	default:
	}
	select {
	case s := <-p.ready:
		return s, nil
	default:
	}
	if p.headroom() < minHeadroom {
		return nil, fault.New(fault.Unavailable, "fork", "this worker has no room for another process now")
	}
	return newThread(), nil
}

// keep makes threads beforehand, so that a start does not wait for it.
func (p *threads) keep(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.low:
		}
		for len(p.ready) < readyThreads {
			if p.headroom() < minHeadroom {
				if !p.short.Swap(true) {
					p.log.Warn("there is no room for more processes; starts are refused")
				}
				break
			}
			p.short.Store(false)
			p.ready <- newThread() // nobody else puts any in
		}
	}
}
