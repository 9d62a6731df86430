package worker

import (
	"cmp"
	"context"
	crand "crypto/rand"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/fault"
)

// answers matches replies with their waiting callers.
type answers struct {
	mu      sync.Mutex
	waiting map[uint64]chan lifecycle.Reply
}

func (a *answers) expectReply(ticket uint64) chan lifecycle.Reply {
	ch := make(chan lifecycle.Reply, 1)
	a.mu.Lock()
	a.waiting[ticket] = ch
	a.mu.Unlock()
	return ch
}

func (a *answers) deliverReply(r lifecycle.Reply) {
	a.mu.Lock()
	ch := a.waiting[r.Ticket]
	delete(a.waiting, r.Ticket)
	a.mu.Unlock()
	if ch != nil {
		ch <- r
	}
}

func (a *answers) forgetTicket(ticket uint64) {
	a.mu.Lock()
	delete(a.waiting, ticket)
	a.mu.Unlock()
}

// callSupervisor passes a command to the supervisor and waits for its reply. If patience runs out first, the reply is
// that the operation has begun, or does not begin; either way it is the supervisor's, and durable.
func (l *loop) callSupervisor(ctx context.Context, f func(now time.Time, ticket uint64) lifecycle.Out) (lifecycle.Reply,
	error) {
	ticket := l.tickets.Add(1)
	ch := l.answers.expectReply(ticket)
	defer l.answers.forgetTicket(ticket)
	in := input{f: func(now time.Time) lifecycle.Out { return f(now, ticket) }}
	for range 2 {
		r, answered, err := l.awaitReply(ctx, in, ch)
		if answered || err != nil {
			return r, cmp.Or(err, r.Err)
		}
		in = input{f: func(now time.Time) lifecycle.Out { return l.sup.Overdue(now, ticket) }}
	}
	return lifecycle.Reply{}, fault.New(fault.Timeout, fault.CodeNoAnswer,
		"worker %s did not say within %v whether it has begun the command; look at the state, then ask again", l.o.ID,
		2*l.o.Patience)
}

// awaitReply passes an input to the loop and waits for the reply to a ticket, as long as patience lasts.
func (l *loop) awaitReply(ctx context.Context, in input, reply <-chan lifecycle.Reply) (
	r lifecycle.Reply, answered bool, err error) {
	patience := time.NewTimer(l.o.Patience)
	defer patience.Stop()
	inputs := l.inputs
	for {
		select {
		case inputs <- in:
			inputs = nil
		case r = <-reply:
			return r, true, nil
		case <-patience.C:
			return r, false, nil
		case <-ctx.Done():
			return r, false, callerGone(ctx)
		case <-l.stopped:
			return r, false, l.errStopped()
		}
	}
}

// commitStats counts the commits of the journal.
type commitStats struct{ commits, records, nanos atomic.Uint64 }

func (c *commitStats) addCommit(records int, took time.Duration) {
	c.commits.Add(1)
	c.records.Add(uint64(records))
	c.nanos.Add(uint64(took))
}

// systemRand makes an unpredictable source of random numbers: nonces of leases come from it.
func systemRand() *rand.Rand {
	var seed [32]byte
	crand.Read(seed[:]) // never fails: it ends the program instead
	return rand.New(rand.NewChaCha8(seed))
}
