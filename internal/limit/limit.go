// Package limit counts who is in. A Group is one number, with an end that can be waited for; Shares keep one key from
// taking the places of others; Lines have those wait for whom there is no place yet. All may be used from many goroutines.
package limit

import (
	"context"
	"sync"
)

// Group counts those who are in. The zero Group lets any number in.
type Group struct {
	Most int // that may be in at once; 0: any number. It is set before the first use.

	mu     sync.Mutex
	in     int
	closed bool
	empty  chan struct{} // closed when the last one leaves; nil: nobody waits for that
}

// Enter reports whether there is a place, and takes it. Whoever has one calls Leave.
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

// Close lets nobody else in. Those who are in stay.
func (g *Group) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
}

// Wait returns when nobody is in, or with the context's cause when that ends before. Unless the group is closed, somebody
// else may enter at any time.
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

// Shares bounds how many are in at once: in all, and of each key. The bounds are set before the first use.
type Shares[K comparable] struct {
	All, Each int // 0: any number

	mu sync.Mutex
	in int
	of map[K]int
}

// Enter reports whether there is a place for a key, and takes it. Whoever has one calls Leave with the same key.
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

// Lines bounds how many of each key are in at once. The others wait.
type Lines[K comparable] struct {
	Each int // at least 1, set before the first use

	mu sync.Mutex
	of map[K]*line
}

// line is who of one key is in, or waits.
type line struct {
	places chan struct{} // one value for each who is in
	n      int           // of both
}

// Enter waits for a place of a key, and takes it. Whoever has one calls Leave with the same key. An error is the context's
// cause, which has ended before.
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

// Leave gives a place of a key to the next who waits.
func (l *Lines[K]) Leave(key K) {
	l.mu.Lock()
	defer l.mu.Unlock()
	x := l.of[key]
	<-x.places
	l.drop(key, x)
}

// drop takes one out of those of a key. It is called with the lock.
func (l *Lines[K]) drop(key K, x *line) {
	if x.n--; x.n == 0 {
		delete(l.of, key)
	}
}
