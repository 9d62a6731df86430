package gossip

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/soukhq/souk/cluster"
)

// roots compares our registry's hash with the hashes that others send in answers to probes. Its lock is held only for a
// few instructions, so the answer to a probe is never delayed.
type roots struct {
	now atomic.Uint64 // our hash

	mu     sync.Mutex
	recent [32]uint64 // our recent hashes, including the current one
	at     int
	other  cluster.WorkerID // a member whose hash differed
	theirs uint64           // that member's hash
	agreed time.Time        // when a member last had our hash, or a difference was merged
}

// setOwnRoot records our hash.
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

// noteRoot records a hash that a member just sent, and reports whether we may lack something. A hash that we had
// recently means that the member is behind us.
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

// takeDifferingMember returns a member whose hash differed, unless we have had that hash since, and forgets it.
func (r *roots) takeDifferingMember() (id cluster.WorkerID, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	id, r.other = r.other, ""
	return id, id != "" && !slices.Contains(r.recent[:], r.theirs)
}

// noteAgreement records that a difference was merged.
func (r *roots) noteAgreement() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.agreed = time.Now()
}

// agreedAt returns when we were last known to agree with a member.
func (r *roots) agreedAt() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.agreed
}

// signal wakes all goroutines that wait for a change.
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
