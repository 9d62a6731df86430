package reaper

import (
	"sync"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime/reaper/frame"
)

// turns have what is done to one machine done in the order in which it was asked for: a start that souk has given up
// may still lie in the socket, and the kill that takes it back must not overtake it.
type turns struct {
	mu sync.Mutex
	of map[string]*queued // each machine that has any under way
}

// queued is the requests for one machine that are under way.
type queued struct {
	last  chan struct{} // closed when the newest of them is over
	count int
}

// maxTurns bounds the requests that wait for one machine. What hangs in the kernel is asked for again and again.
const maxTurns = 16

// queueRequest gives a request its place. wait returns when its turn has come, and errs when there is no place for it;
// done is called in either case.
func (t *turns) queueRequest(q *frame.Request) (wait func() error, done func()) {
	switch q.Op {
	case frame.OpPrepare, frame.OpCheck, frame.OpReady, frame.OpStart, frame.OpSignal, frame.OpKill, frame.OpRemove,
		frame.OpPause, frame.OpResume, frame.OpResize, frame.OpHibernate, frame.OpWake:
	default:
		return func() error { return nil }, func() {}
	}
	id := q.Machine
	t.mu.Lock()
	defer t.mu.Unlock()
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
			return fault.New(fault.Unavailable, codeTurns, "%d requests for machine %s wait for one that takes long",
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
