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

// isLeaving is the correction of a member that is about to end, or to be upgraded: it has done nothing with the
// request, and takes no more. The sender asks the member's next process, for which the kernel keeps the listeners open.
const isLeaving = "leaving"

var errLeaving = errors.New("the member is about to end")

// leavingTime bounds how long a request waits for the next process of a leaving member.
const leavingTime = 15 * time.Second

// leavingPause is the pause before a member that is leaving is asked again.
var leavingPause = backoff.Doubling{Base: 20 * time.Millisecond, Most: 250 * time.Millisecond}

// untilAnswered calls ask until the member, or its next process, answers.
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
				"the member that has the machine is ending and takes no more requests")}
		}
	}
}

// returnsBy returns until when a member that announced its leaving counts as reachable, even if gossip has lost it;
// zero if it announced none.
func (f *farOwners) returnsBy(id cluster.WorkerID) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.returns[id]
}

// brokenOff reports whether a connection closed during its handshake, as happens when a member ends.
func brokenOff(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.EPIPE)
}

// endMembers waits for the end of ctx, then refuses other members' requests. It returns when those under way are
// answered, or after a time.
func (p *Proxy) endMembers(ctx context.Context) {
	<-ctx.Done()
	p.members.Close()
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
	defer cancel()
	_ = p.members.Wait(late) // late ones end with the proxy
}
