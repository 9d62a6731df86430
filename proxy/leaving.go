package proxy

import (
	"context"
	"errors"
	"io"
	"syscall"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/routing"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/backoff"
	"github.com/soukhq/souk/internal/wait"
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
		if time.Since(began) > leavingTime || wait.For(ctx, leavingPause.After(tries)) != nil {
			return &correction{routing.NoAnswer, fault.Wrap(err, fault.Unavailable, fault.CodeUnreachable,
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

// brokenOff reports whether a connection was ended while it was being made, as those are that a member has accepted when
// it ends.
func brokenOff(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.EPIPE)
}

// endMembers takes no request of another member from the end of ctx on, and returns when those are answered that are under
// way, or have had time to be.
func (p *Proxy) endMembers(ctx context.Context) {
	<-ctx.Done()
	p.members.Close()
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
	defer cancel()
	_ = p.members.Wait(late) // those that are late end with the proxy
}
