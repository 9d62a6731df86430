package wire

import (
	"context"
	"sync"

	"github.com/soukhq/souk/fault"
)

// Bounds of what is remembered of asks.
const (
	maxAskers  = 4096 // callers; there are as many as gateways, and all have certificates
	maxOver    = 2048 // machines per caller
	maxWaiting = 4    // repeats of one machine's ask that wait for the one under way
)

// asks makes sure that a late ask cannot buy (docs/decisions/0006-asking-twice.md, 0011-wire-and-pki.md).
//
// A buyer numbers its asks: each one higher than all before it, whatever machine they are for. Asks of one machine by
// one caller are carried out one after the other. Once one has been answered, it and those below it are over: an ask
// that comes with such a number was given up by who sent it, and is refused without the worker hearing of it.
//
// What is over is remembered by machine, for the newest maxOver. For older ones the highest number forgotten stands in
// as a floor for all machines of that caller: nothing that is over is ever bought, and the price of a bounded memory is
// that an ask overtaken by two thousand others may be refused though nobody gave it up. A refusal is an answer: it
// costs one trip.
type asks struct {
	mu      sync.Mutex
	callers map[string]*asker
}

type asker struct {
	lowWater uint64
	over     map[string]last // by machine
	order    []string        // of over, a ring: oldest at next
	next     int
	under    map[string]*askInFlight // by machine: the ask under way
}

type last struct {
	number uint64
	unsure bool // the worker's answer left open whether it will act: only it may say no to the next
}

type askInFlight struct {
	of      *asks
	by      *asker
	machine string
	number  uint64
	unsure  bool // of the ask before this one
	waiting int
	done    chan struct{}
}

func newAsks() *asks { return &asks{callers: map[string]*asker{}} }

// beginAsk waits until no other ask of the machine is under way and begins one; nil with no error: it is late. Number 0
// is an ask without a number, which is never late.
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
			return nil, nil //nolint:nilnil // said above
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
				"machine %s is being asked for already; wait for the answer", clipText(machine, 80))
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

// endAsk lets the next one begin. unsure says that the worker may still act on this one.
func (t *askInFlight) endAsk(unsure bool) {
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	delete(t.by.under, t.machine)
	close(t.done)
	t.by.remember(t.machine, last{max(t.by.over[t.machine].number, t.number), unsure})
}

// remember remembers s, and forgets the oldest when there are too many; its number becomes the floor.
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
