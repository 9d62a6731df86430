// Package limit bounds concurrent work. A Group counts entries and can be waited for; Shares keeps one key from taking
// all places; Lines makes entries wait for a free place. All may be used from many goroutines.
package limit

import (
	"context"
	"sync"
)

// Group counts current entries. The zero Group has no limit.
type Group struct {
	Most int // entries at once; 0: no limit. Set before the first use.

	mu     sync.Mutex
	in     int
	closed bool
	empty  chan struct{} // closed when the last entry leaves; nil: no waiter
}

// Enter reports whether there is a place, and takes it. Call Leave to give it back.
func (g *Group) Enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed || g.Most > 0 && g.in >= g.Most {
		return false
	}
	g.in++
	return true
}

// Leave gives a place back.
func (g *Group) Leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.in--; g.in == 0 && g.empty != nil {
		close(g.empty)
		g.empty = nil
	}
}

// Close refuses new entries. Current ones stay.
func (g *Group) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
}

// Wait returns when there are no entries, or with the context's cause if that ends before. Unless the group is closed,
// a new entry may come at any time.
func (g *Group) Wait(ctx context.Context) error {
	g.mu.Lock()
	if g.in == 0 {
		g.mu.Unlock()
		return nil
	}
	if g.empty == nil {
		g.empty = make(chan struct{})
	}
	empty := g.empty
	g.mu.Unlock()
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Shares bounds the entries at once: in all, and for each key. The bounds are set before the first use.
type Shares[K comparable] struct {
	All, Each int // 0: no limit

	mu sync.Mutex
	in int
	of map[K]int
}

// Enter reports whether there is a place for a key, and takes it. Call Leave with the same key to give it back.
func (s *Shares[K]) Enter(key K) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.All > 0 && s.in >= s.All || s.Each > 0 && s.of[key] >= s.Each {
		return false
	}
	if s.of == nil {
		s.of = map[K]int{}
	}
	s.in++
	s.of[key]++
	return true
}

// Leave gives a place of a key back.
func (s *Shares[K]) Leave(key K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.in--
	if s.of[key]--; s.of[key] == 0 {
		delete(s.of, key)
	}
}

// Lines bounds the entries at once for each key. Others wait.
type Lines[K comparable] struct {
	Each int // at least 1, set before the first use

	mu sync.Mutex
	of map[K]*line
}

// line has the entries and waiters of one key.
type line struct {
	places chan struct{} // one value per entry
	n      int           // entries plus waiters
}

// Enter waits for a place of a key, and takes it. Call Leave with the same key to give it back. The error is the cause
// of a context that ended before.
func (l *Lines[K]) Enter(ctx context.Context, key K) error {
	l.mu.Lock()
	x := l.of[key]
	if x == nil {
		if l.of == nil {
			l.of = map[K]*line{}
		}
		x = &line{places: make(chan struct{}, l.Each)}
		l.of[key] = x
	}
	x.n++
	l.mu.Unlock()
	select {
	case x.places <- struct{}{}:
		return nil
	case <-ctx.Done():
		l.mu.Lock()
		defer l.mu.Unlock()
		l.drop(key, x)
		return context.Cause(ctx)
	}
}

// Leave gives a place of a key to the next waiter.
func (l *Lines[K]) Leave(key K) {
	l.mu.Lock()
	defer l.mu.Unlock()
	x := l.of[key]
	<-x.places
	l.drop(key, x)
}

// drop removes an entry or waiter of a key. The caller holds the lock.
func (l *Lines[K]) drop(key K, x *line) {
	if x.n--; x.n == 0 {
		delete(l.of, key)
	}
}
