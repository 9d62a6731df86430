package gossip

import (
	"errors"
	"log/slog"
	"sync"

	"github.com/soukhq/souk/core/registry"
	"github.com/soukhq/souk/fault"
)

// storage is what a keeper writes to; disk implements it.
type storage interface {
	appendObjects(sync bool, objs ...registry.Object) error
	rewriteObjects(objs []registry.Object) error
	needsRewrite() bool
	writeMembers(s saved) error
	close() error
}

// keeper writes the state that survives the process, one batch after another, in a goroutine that runs only while there
// is something to write. Callers add to the next batch, and wait only if they need the result; all additions during a
// write share the next write and its fsync. It takes no lock of the Cluster except inside the function given to
// compactObjects or renewObjects, so no holder of such a lock waits for the disk.
type keeper struct {
	storage storage
	log     *slog.Logger
	idle    sync.WaitGroup // waits for run to end

	mu      sync.Mutex
	saved   saved // as last written, or as the next write will write it
	waiting batch
	writing bool
	closed  bool
}

// batch is one write of the keeper.
type batch struct {
	objects []registry.Object
	sync    bool
	saved   bool                     // write members.json
	all     func() []registry.Object // not nil: rewrite the file of objects with these, if it has grown
	whole   bool                     // rewrite it in any case
	done    []chan<- error
	unheard bool // some caller does not read the outcome, so an error is logged
}

// maxWaiting bounds the waiting objects of callers that do not wait, while the disk hangs. Beyond it the file is
// rewritten from the registry instead.
const maxWaiting = 1024

func newKeeper(s storage, was saved, log *slog.Logger) *keeper {
	return &keeper{storage: s, log: log, saved: was}
}

// addToBatch adds to the next write. It does not block; the channel receives the outcome of that write.
func (k *keeper) addToBatch(add func(*batch)) <-chan error {
	done := make(chan error, 1)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		done <- fault.New(fault.Unavailable, fault.CodeClosed,
			"this member's gossip has ended, so it saves nothing more")
		return done
	}
	add(&k.waiting)
	k.waiting.done = append(k.waiting.done, done)
	if !k.writing {
		k.writing = true
		k.idle.Go(k.run)
	}
	return done
}

// putObject writes an object, and returns when it is synced.
func (k *keeper) putObject(o registry.Object) error {
	return <-k.addToBatch(func(b *batch) { b.objects, b.sync = append(b.objects, o), true })
}

// keepObjects queues objects that other members wrote. Their writers have them on disk already; we sync them too,
// without a caller waiting, because a host that lost power must know its tokens and apps before it reaches another
// member.
func (k *keeper) keepObjects(objs []registry.Object, all func() []registry.Object) {
	if len(objs) == 0 {
		return
	}
	k.addToBatch(func(b *batch) {
		b.unheard, b.sync = true, true
		if len(b.objects)+len(objs) > maxWaiting {
			b.all, b.whole = all, true
			return
		}
		b.objects = append(b.objects, objs...)
	})
}

// compactObjects rewrites the file of objects if most of it is outdated.
func (k *keeper) compactObjects(all func() []registry.Object) {
	k.addToBatch(func(b *batch) { b.all, b.unheard = all, true })
}

// renewObjects rewrites the file of objects, to drop objects that failed verification.
func (k *keeper) renewObjects(all func() []registry.Object) {
	k.addToBatch(func(b *batch) { b.all, b.whole, b.unheard = all, true, true })
}

// keepIncarnation writes an incarnation, and returns when it is synced. Call it before the incarnation is used.
func (k *keeper) keepIncarnation(incarnation uint64) error {
	return <-k.addToBatch(func(b *batch) { k.saved.Incarnation, b.saved = incarnation, true })
}

// lastIncarnation returns the last incarnation begun.
func (k *keeper) lastIncarnation() uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.saved.Incarnation
}

// saveMembers saves the addresses of the other members.
func (k *keeper) saveMembers(a addresses) error {
	return <-k.addToBatch(func(b *batch) { k.saved.addresses, b.saved = a, true })
}

// run writes until nothing waits.
func (k *keeper) run() {
	for {
		k.mu.Lock()
		b, s := k.waiting, saved{k.saved.Incarnation, k.saved.clone()}
		k.waiting = batch{}
		if len(b.done) == 0 {
			k.writing = false
			k.mu.Unlock()
			return
		}
		k.mu.Unlock()
		err := k.writeBatch(b, s)
		if err != nil && b.unheard {
			k.log.Error("what the cluster must know after a restart is not kept", "err", err)
		}
		for _, done := range b.done {
			done <- err
		}
	}
}

func (k *keeper) writeBatch(b batch, s saved) error {
	var errs []error
	if len(b.objects) > 0 {
		errs = append(errs, k.storage.appendObjects(b.sync, b.objects...))
	}
	if b.saved {
		errs = append(errs, k.storage.writeMembers(s))
	}
	if b.all != nil && (b.whole || k.storage.needsRewrite()) {
		errs = append(errs, k.storage.rewriteObjects(b.all()))
	}
	return errors.Join(errs...)
}

// close refuses further additions, finishes the queued writes and closes the storage.
func (k *keeper) close() error {
	k.mu.Lock()
	k.closed = true
	k.mu.Unlock()
	k.idle.Wait()
	return k.storage.close()
}
