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
	// maxAgreed bounds the members of a cluster in which an answer waits for all of them: in a larger one that would
	// cost each change more than it is worth, and gossip alone brings it.
	maxAgreed = 128
)

// agreement is a member's rounds: changes that come while one is under way share the next.
type agreement struct {
	mu     sync.Mutex
	asked  uint64 // changes that have asked for a round
	worker bool   // one of those that wait has changed what a worker has

	round sync.Mutex // held over a round
	done  uint64     // changes that a finished round covers; guarded by round
}

// imports is how far the member's importer has come in what the registry says.
type imports struct {
	mu    sync.Mutex
	index uint64
	moved chan struct{} // closed when index grows; nil: nobody waits
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

// awaitIndex waits until all up to an index is in the catalog, or ctx ends.
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

// Agree waits until the members that can be heard know what this one knows, so that what a client is answered here it
// finds at any of them. worker says that a worker, here or elsewhere, has changed: what it told is fetched first. A
// member that does not answer is waited for until it is taken for dead, 5 s at most.
//
// It returns no error. What was changed is done, and on the disk of who did it: an error would have the client do it
// again, and one member that takes no calls would have each change fail, at every other. So of such a member the answer
// promises less:
//
//   - one that is heard and takes no calls, or is late, learns by gossip, some tenths of a second later;
//   - one that is dead or cut off learns when it is back;
//   - a worker that did what was asked, answered, and died before it could be pulled from, is known as it last told. Its machines
//     are listed as unreachable, whatever became of them; the end of their app waits for it, or for "souk node rm".
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

// agreeOnce is one round: all others learn from this member.
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
				_ = m.cluster.PullFrom(ctx, f.id) // what it does not say here it says by gossip
			}
		})
		m.catchUp()
	}
	forEachFar(others, func(f *Far) {
		ctx, cancel := f.whileHeard(ctx)
		defer cancel()
		_ = f.Link.Agree(ctx, true) // one that cannot be asked learns by gossip
	})
}

// whileHeard returns a context that ends when the member is taken for dead.
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

// Learn has this member know what another one knows, and answers when its fleet and its catalog show it. With "" it
// only tells what it has not told yet itself.
func (m *Member) Learn(ctx context.Context, from cluster.WorkerID) error {
	m.announceNow()
	if from == "" {
		return nil
	}
	if err := m.cluster.PullFrom(ctx, from); err != nil {
		return err
	}
	index := m.cluster.Index()
	remover{m}.refresh() // who was removed is shown nowhere any more
	m.catchUp()
	return m.imports.awaitIndex(ctx, index)
}

// announceNow writes to the registry what this member's worker has told and others have not been told yet.
func (m *Member) announceNow() {
	m.tellRecord()
	m.cluster.AnnounceNow()
}
