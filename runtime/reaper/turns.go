package reaper

import (
	"errors"
	"sync"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime/reaper/frame"
)

// turns carry out the requests for one machine in the order in which they arrived: a start that souk has given up may
// still be in the socket, and the kill that undoes it must not overtake it.
type turns struct {
	mu sync.Mutex
	of map[string]*queued // each machine with a request in progress
}

// queued is the requests in progress for one machine.
type queued struct {
	last  chan struct{} // closed when the newest of them is done
	count int
}

// maxTurns bounds the requests that wait for one machine: a request that hangs in the kernel is repeated again and
// again.
const maxTurns = 16

// queueRequest gives a request its place in the queue. wait returns when its turn has come, with an error when the
// queue is full. done must be called in either case.
func (t *turns) queueRequest(q *frame.Request) (wait func() error, done func()) {
	switch q.Op {
	case frame.OpPrepare, frame.OpCheck, frame.OpReady, frame.OpStart, frame.OpSignal, frame.OpKill, frame.OpRemove,
		frame.OpPause, frame.OpResume, frame.OpResize, frame.OpHibernate, frame.OpWake:
	default:
		return func() error { return nil }, func() {}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if q.Machine != "" || len(q.Machines) == 0 {
		return t.queueLocked(q.Machine)
	}
	waits, dones := make([]func() error, len(q.Machines)), make([]func(), len(q.Machines))
	for i, id := range q.Machines {
		waits[i], dones[i] = t.queueLocked(id)
	}
	wait = func() (err error) {
		for _, w := range waits {
			err = errors.Join(err, w())
		}
		return err
	}
	return wait, func() {
		for _, d := range dones {
			d()
		}
	}
}

// queueLocked is queueRequest for one machine. The caller holds t.mu.
func (t *turns) queueLocked(id string) (wait func() error, done func()) {
	l := t.of[id]
	switch {
	case l == nil:
		if t.of == nil {
			t.of = make(map[string]*queued)
		}
		l = &queued{}
		t.of[id] = l
	case l.count >= maxTurns:
		return func() error {
			return fault.New(fault.Unavailable, codeTurns, "%d requests for machine %s wait already for one that "+
				"takes long; try again when it has ended",
				maxTurns, id)
		}, func() {}
	}
	before, mine := l.last, make(chan struct{})
	l.last = mine
	l.count++
	wait = func() error {
		if before != nil {
			<-before
		}
		return nil
	}
	return wait, func() { t.leaveQueue(id, l, mine) }
}

func (t *turns) leaveQueue(id string, l *queued, mine chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	close(mine)
	if l.count--; l.count == 0 {
		delete(t.of, id)
	}
}
