package gossip

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/soukhq/souk/cluster"
)

// roots compares the hash of our registry with those that others answer probes with. Its lock is held for a few
// instructions, so a probe's answer waits for nobody.
type roots struct {
	now atomic.Uint64 // our hash

	mu     sync.Mutex
	recent [32]uint64 // hashes that we had lately, the present one among them
	at     int
	other  cluster.WorkerID // who was seen to have something else
	theirs uint64           // and its hash
	agreed time.Time        // when a member was last seen to have what we have, or its difference was taken in
}

// setOwnRoot notes our hash.
func (r *roots) setOwnRoot(root uint64) {
	if root == r.now.Load() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now.Store(root)
	r.at = (r.at + 1) % len(r.recent)
	r.recent[r.at] = root
}

// noteRoot notes that a member had this hash a moment ago, and reports whether that is a sign of something that we
// lack: one that we had lately is behind us, not before.
func (r *roots) noteRoot(id cluster.WorkerID, root uint64) (differs bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if root == r.now.Load() {
		r.agreed = time.Now()
		return false
	}
	if slices.Contains(r.recent[:], root) {
		return false
	}
	r.other, r.theirs = id, root
	return true
}

// takeDifferingMember returns who was seen to have something else that we have not had since, and forgets it.
func (r *roots) takeDifferingMember() (id cluster.WorkerID, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	id, r.other = r.other, ""
	return id, id != "" && !slices.Contains(r.recent[:], r.theirs)
}

// noteAgreement notes that a difference was taken in.
func (r *roots) noteAgreement() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.agreed = time.Now()
}

// agreedAt returns when somebody was last seen to have what we have.
func (r *roots) agreedAt() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.agreed
}

// signal wakes all who wait for a change.
type signal struct {
	mu sync.Mutex
	ch chan struct{}
}

func newSignal() *signal { return &signal{ch: make(chan struct{})} }

// nextChange returns a channel that is closed at the next change.
func (s *signal) nextChange() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ch
}

func (s *signal) signalChange() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.ch)
	s.ch = make(chan struct{})
}
