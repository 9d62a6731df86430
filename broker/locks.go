package broker

import (
	"context"
	"sync"
)

// keyLocks is a lock for each key that is in use. Unused keys take no memory.
type keyLocks struct {
	mu   sync.Mutex
	held map[string]*keyLock
}

type keyLock struct {
	free  chan struct{} // holds one token while the lock is free
	users int
}

func newKeyLocks() *keyLocks { return &keyLocks{held: map[string]*keyLock{}} }

// lockKey waits for the key until ctx ends. The returned function unlocks it.
func (l *keyLocks) lockKey(ctx context.Context, key string) (func(), error) {
	l.mu.Lock()
	k := l.held[key]
	if k == nil {
		k = &keyLock{free: make(chan struct{}, 1)}
		k.free <- struct{}{}
		l.held[key] = k
	}
	k.users++
	l.mu.Unlock()
	leave := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if k.users--; k.users == 0 {
			delete(l.held, key)
		}
	}
	select {
	case <-k.free:
		return func() { k.free <- struct{}{}; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}
