package wire

import (
	"context"
	"sync"

	"github.com/soukhq/souk/fault"
)

// Limits of the memory of asks.
const (
	maxAskers  = 4096 // callers: at most one per gateway, since each needs a certificate
	maxOver    = 2048 // machines per caller
	maxWaiting = 4    // repeats of one machine's ask that wait for the current one
)

// asks makes sure that a late ask cannot make a machine (docs/decisions/0006-asking-twice.md, 0011-wire-and-pki.md).
//
// A caller numbers its asks in ascending order, across all machines. Asks of one machine by one caller are carried out
// one after the other. Once an ask is answered, its number and all lower ones are over for that machine: the caller has
// given up an ask that arrives with such a number, so it is refused without asking the worker.
//
// The highest number that is over is remembered for the newest maxOver machines. For the machines forgotten, the
// highest number forgotten becomes a floor for all machines of that caller: an ask that is over never makes a machine.
// The price of the bounded memory: an ask overtaken by two thousand others may be refused although its caller still
// waits. A refusal is an answer and costs one round trip.
type asks struct {
	mu      sync.Mutex
	callers map[string]*asker
}

type asker struct {
	lowWater uint64
	over     map[string]last // by machine
	order    []string        // keys of over, a ring buffer with the oldest at next
	next     int
	under    map[string]*askInFlight // by machine: the ask in progress
}

type last struct {
	number uint64
	unsure bool // the worker may still act on the ask, so only the worker may refuse the next one
}

type askInFlight struct {
	of      *asks
	by      *asker
	machine string
	number  uint64
	unsure  bool // unsure of the previous ask
	waiting int
	done    chan struct{}
}

func newAsks() *asks { return &asks{callers: map[string]*asker{}} }

// beginAsk waits until no other ask of the machine is in progress, then begins one. It returns nil without an error if
// the ask is late. Number 0 is an ask without a number, which is never late.
func (a *asks) beginAsk(ctx context.Context, caller, machine string, number uint64) (*askInFlight, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	by := a.callers[caller]
	if by == nil {
		if len(a.callers) >= maxAskers {
			return nil, busyError(fault.Unavailable, "asked")
		}
		by = &asker{over: map[string]last{}, under: map[string]*askInFlight{}}
		a.callers[caller] = by
	}
	for {
		s := by.over[machine]
		if number != 0 && (number <= by.lowWater || number <= s.number) {
			return nil, nil //nolint:nilnil // see the doc comment
		}
		u := by.under[machine]
		if u == nil {
			t := &askInFlight{of: a, by: by, machine: machine, number: number, unsure: s.unsure,
				done: make(chan struct{})}
			by.under[machine] = t
			return t, nil
		}
		if u.waiting >= maxWaiting {
			return nil, fault.New(fault.Unavailable, fault.CodeBusy,
				"too many requests for machine %s wait already; wait for an answer first", clipText(machine, 80))
		}
		u.waiting++
		a.mu.Unlock()
		var err error
		select {
		case <-u.done:
		case <-ctx.Done():
			err = callerGone(ctx)
		}
		a.mu.Lock()
		if u.waiting--; err != nil {
			return nil, err
		}
	}
}

// endAsk lets the next ask begin. unsure means that the worker may still act on this one.
func (t *askInFlight) endAsk(unsure bool) {
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	delete(t.by.under, t.machine)
	close(t.done)
	t.by.remember(t.machine, last{max(t.by.over[t.machine].number, t.number), unsure})
}

// remember stores s. When there are too many it forgets the oldest, and raises the floor to the oldest's number.
func (b *asker) remember(machine string, s last) {
	if _, there := b.over[machine]; !there {
		if len(b.order) < maxOver {
			b.order = append(b.order, machine)
		} else {
			oldest := b.order[b.next]
			b.lowWater = max(b.lowWater, b.over[oldest].number)
			delete(b.over, oldest)
			b.order[b.next] = machine
			b.next = (b.next + 1) % maxOver
		}
	}
	b.over[machine] = s
}
