package proxy

import (
	"context"
	"errors"
	"io"
	"sync"
	"syscall"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/routing"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/backoff"
)

// isLeaving is the correction of a member that is about to end, or to be upgraded: it has done nothing, and takes no more
// requests. The member that sent the request asks the successor, whose listeners the kernel keeps open meanwhile.
const isLeaving = "leaving"

var errLeaving = errors.New("the member is about to end")

// leavingTime bounds how long a request waits for the successor of a member.
const leavingTime = 15 * time.Second

// leavingPause is the pause before a member that is leaving is asked again.
var leavingPause = backoff.Doubling{Base: 20 * time.Millisecond, Most: 250 * time.Millisecond}

// untilAnswered asks a member until it, or its successor, answers what it is asked.
func (f *farOwners) untilAnswered(ctx context.Context, id cluster.WorkerID, ask func() error) error {
	began := time.Now()
	for tries := 0; ; tries++ {
		err := ask()
		if !errors.Is(err, errLeaving) {
			return err
		}
		f.mu.Lock()
		f.returns[id] = time.Now().Add(leavingTime)
		f.mu.Unlock()
		if time.Since(began) > leavingTime || !pause(ctx, leavingPause.After(tries)) {
			return &correction{routing.NoAnswer, fault.Wrap(err, fault.Unavailable, "unreachable",
				"the member that has the machine is about to end, and takes nothing more")}
		}
	}
}

// returnsBy returns until when a member that has said that it leaves counts as one that is heard, though gossip may miss
// it; zero where it has not.
func (f *farOwners) returnsBy(id cluster.WorkerID) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.returns[id]
}

// pause waits for d; false: ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// brokenOff reports whether a connection was ended while it was being made, as those are that a member has accepted when
// it ends.
func brokenOff(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.EPIPE)
}

// guests are the requests of other members that are under way here.
type guests struct {
	mu    sync.Mutex
	n     int
	ended bool // nobody else comes in
}

// enter reports whether a request of another member may come in. One that did leaves.
func (g *guests) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended {
		return false
	}
	g.n++
	return true
}

func (g *guests) leave() {
	g.mu.Lock()
	g.n--
	g.mu.Unlock()
}

// end lets nobody in from the end of ctx on, and returns when those are answered who are in, or have had time to be.
func (g *guests) end(ctx context.Context) {
	<-ctx.Done()
	g.mu.Lock()
	g.ended = true
	g.mu.Unlock()
	for began := time.Now(); g.under() > 0 && time.Since(began) < drainTime; {
		<-time.After(lookAgain)
	}
}

func (g *guests) under() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.n
}
