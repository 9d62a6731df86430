package gossip

import (
	"errors"
	"log/slog"
	"sync"

	"github.com/soukhq/souk/core/registry"
	"github.com/soukhq/souk/fault"
)

// storage is what a keeper writes to: disk.
type storage interface {
	appendObjects(sync bool, objs ...registry.Object) error
	rewriteObjects(objs []registry.Object) error
	needsRewrite() bool
	writeMembers(s saved) error
	close() error
}

// keeper writes what outlives the process, one write after another, in a goroutine that lives while there is
// something to write. Callers hand over, and wait where they need to know; what comes during a write shares the next
// one and its fsync. It takes no lock of the Cluster's but in the function given to compact, so nobody who holds one
// waits for the disk.
type keeper struct {
	storage storage
	log     *slog.Logger
	idle    sync.WaitGroup // of the goroutine

	mu      sync.Mutex
	saved   saved // as last written or about to be
	waiting batch
	writing bool
	closed  bool
}

// batch is what one turn of the keeper writes.
type batch struct {
	objects []registry.Object
	sync    bool
	saved   bool                     // members.json is written
	all     func() []registry.Object // not nil: the file of objects is made anew from these when it has grown,
	whole   bool                     // or in any case
	done    []chan<- error
	unheard bool // somebody does not wait for the outcome, which is logged then
}

// maxWaiting bounds the objects that nobody waits for while the disk does not move. What is beyond is found in the
// registry when the file is made anew.
const maxWaiting = 1024

func newKeeper(s storage, was saved, log *slog.Logger) *keeper {
	return &keeper{storage: s, log: log, saved: was}
}

// addToBatch adds to what is written next. It waits for nothing; the channel tells when that is done.
func (k *keeper) addToBatch(add func(*batch)) <-chan error {
	done := make(chan error, 1)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		done <- fault.New(fault.Unavailable, fault.CodeClosed,
			"this member's gossip has ended; nothing is kept any more")
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

// putObject keeps an object, and returns when it is on the platter.
func (k *keeper) putObject(o registry.Object) error {
	return <-k.addToBatch(func(b *batch) { b.objects, b.sync = append(b.objects, o), true })
}

// keepObjects hands over objects that others wrote. Who wrote them has them on disk; they are synced here too, though
// nobody waits for that, for a host that lost its power must know its tokens and apps before it has heard of anybody.
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

// compactObjects makes the file of objects anew when most of it is of the past.
func (k *keeper) compactObjects(all func() []registry.Object) {
	k.addToBatch(func(b *batch) { b.all, b.unheard = all, true })
}

// renewObjects makes the file of objects anew: it has some that are not believed.
func (k *keeper) renewObjects(all func() []registry.Object) {
	k.addToBatch(func(b *batch) { b.all, b.whole, b.unheard = all, true, true })
}

// keepIncarnation notes an incarnation, and returns when that is on the platter: before it is used.
func (k *keeper) keepIncarnation(incarnation uint64) error {
	return <-k.addToBatch(func(b *batch) { k.saved.Incarnation, b.saved = incarnation, true })
}

// lastIncarnation returns the last one begun.
func (k *keeper) lastIncarnation() uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.saved.Incarnation
}

// saveMembers saves who the others are.
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

// close waits for what is being written and takes nothing more.
func (k *keeper) close() error {
	k.mu.Lock()
	k.closed = true
	k.mu.Unlock()
	k.idle.Wait()
	return k.storage.close()
}
