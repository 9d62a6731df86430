package member

import (
	"context"
	"sync"
	"time"

	"github.com/soukhq/souk/cluster"
)

// Bounds of one round of agreement.
const (
	agreeTime    = 5 * time.Second // a member that has not answered by then learns by gossip
	agreedAtOnce = 32              // members that are called side by side
	// maxAgreed is the largest cluster in which an answer waits for all members: in a larger one that would cost each
	// change too much, and members learn by gossip alone.
	maxAgreed = 128
)

// agreement runs a member's rounds of agreement: changes that come during a round share the next.
type agreement struct {
	mu     sync.Mutex
	asked  uint64 // changes that have asked for a round
	worker bool   // a waiting change has changed a worker

	round sync.Mutex // held over a round
	done  uint64     // changes that a finished round covers; guarded by round
}

// imports tracks how far the importer has come in the registry's changes.
type imports struct {
	mu    sync.Mutex
	index uint64
	moved chan struct{} // closed when index grows; nil: no waiter
}

func (i *imports) noteReached(index uint64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.index = index
	if i.moved != nil {
		close(i.moved)
		i.moved = nil
	}
}

// awaitIndex waits until the catalog has all changes up to an index, or ctx ends.
func (i *imports) awaitIndex(ctx context.Context, index uint64) error {
	for {
		i.mu.Lock()
		if i.index >= index {
			i.mu.Unlock()
			return nil
		}
		if i.moved == nil {
			i.moved = make(chan struct{})
		}
		moved := i.moved
		i.mu.Unlock()
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Agree waits until the reachable members know what this one knows, so that a client finds the result of its change at
// any of them. worker says that a worker, here or elsewhere, has changed: its news is fetched first. Agree waits for a
// silent member until it is declared dead, 5 s at most.
//
// It returns no error. The change is made, and on disk where it was made: an error would make the client repeat it, and
// one member that accepts no calls would make every change fail, at every other member. So the answer promises less
// about such members:
//
//   - one that gossips but accepts no calls, or is late, learns by gossip, some tenths of a second later;
//   - one that is dead or cut off learns when it is back;
//   - a worker that made a change, answered, and died before its news was fetched, is known by its previous report. Its
//     machines are listed as unreachable, whatever their state; deleting their app waits for the worker, or for
//     "souk node rm".
func (m *Member) Agree(ctx context.Context, worker bool) {
	a := &m.agreement
	a.mu.Lock()
	a.asked++
	mine := a.asked
	a.worker = a.worker || worker
	a.mu.Unlock()
	a.round.Lock()
	defer a.round.Unlock()
	if a.done >= mine {
		return
	}
	a.mu.Lock()
	all, worker := a.asked, a.worker
	a.worker = false
	a.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), agreeTime)
	defer cancel()
	m.agreeOnce(ctx, worker)
	a.done = all
}

// agreeOnce runs one round: all others learn from this member.
func (m *Member) agreeOnce(ctx context.Context, worker bool) {
	m.announceNow()
	var others []*Far
	for _, f := range m.Others() {
		if f.unheardError() == nil {
			others = append(others, f)
		}
	}
	if len(others) > maxAgreed {
		return
	}
	if worker {
		forEachFar(others, func(f *Far) {
			ctx, cancel := f.whileHeard(ctx)
			defer cancel()
			if f.Link.Agree(ctx, false) == nil {
				_ = m.cluster.PullFrom(ctx, f.id) // on failure its news comes by gossip
			}
		})
		m.catchUp()
	}
	forEachFar(others, func(f *Far) {
		ctx, cancel := f.whileHeard(ctx)
		defer cancel()
		_ = f.Link.Agree(ctx, true) // an unreachable one learns by gossip
	})
}

// whileHeard returns a context that ends when the member is declared dead.
func (f *Far) whileHeard(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		for {
			past := f.m.fleet.Snapshot().Past()
			if f.unheardError() != nil {
				cancel()
			}
			select {
			case <-past:
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, cancel
}

func forEachFar(others []*Far, do func(*Far)) {
	var all sync.WaitGroup
	free := make(chan struct{}, agreedAtOnce)
	for _, f := range others {
		free <- struct{}{}
		all.Go(func() {
			defer func() { <-free }()
			do(f)
		})
	}
	all.Wait()
}

// Learn fetches what another member knows, and returns when this member's fleet and catalog show it. With from "" it
// only announces this member's own news.
func (m *Member) Learn(ctx context.Context, from cluster.WorkerID) error {
	m.announceNow()
	if from == "" {
		return nil
	}
	if err := m.cluster.PullFrom(ctx, from); err != nil {
		return err
	}
	index := m.cluster.Index()
	remover{m}.refresh() // removed members disappear from the fleet
	m.catchUp()
	return m.imports.awaitIndex(ctx, index)
}

// announceNow writes the own worker's unannounced news to the registry.
func (m *Member) announceNow() {
	m.tellRecord()
	m.cluster.AnnounceNow()
}
