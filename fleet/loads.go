package fleet

import (
	"context"
	"math/bits"
	"sync"
	"time"
)

// Load is how many requests or connections a proxy has under way at a machine.
type Load struct {
	Machine string
	Load    int
}

// Loads decides which changes of loads are reported: those to and from zero, and those by about two fifths. It reports a
// machine once a second at most, and a hundred machines a second in all, because a report is signed and sent to every
// member. A report carries the load at the time it is sent.
//
// Set may be called from many goroutines. Run sends the reports, until its context ends.
type Loads struct {
	tell func([]Load)
	wake chan struct{}

	mu       sync.Mutex
	machines map[string]*load
	due      []string // ids of machines to report, longest wait first
	sweepAt  int      // number of machines at which those without load are forgotten
}

// load is the state of one machine's load.
type load struct {
	now, said int
	at        time.Time // time of the last report
	waits     bool      // it is in due
}

// The pace of Loads.
const (
	loadEvery    = time.Second // between two reports of one machine
	loadTick     = 250 * time.Millisecond
	loadsATick   = 25
	sweepLoadsAt = 1024 // machines
)

// NewLoads makes Loads that report by calling tell, from one goroutine.
func NewLoads(tell func([]Load)) *Loads {
	return &Loads{tell: tell, wake: make(chan struct{}, 1), machines: map[string]*load{}, sweepAt: sweepLoadsAt}
}

// Step returns which step of the scale a load is on: 0, 1, and two for each doubling. Changes within a step are not
// reported.
func Step(load int) int {
	if load < 2 {
		return max(0, load)
	}
	length := bits.Len(uint(load))
	return 2*length + load>>(length-2)&1
}

// Set records a machine's current load.
func (l *Loads) Set(machine string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	x := l.machines[machine]
	if x == nil {
		if n == 0 {
			return
		}
		x = &load{}
		l.machines[machine] = x
	}
	x.now = max(0, n)
	if x.waits || Step(x.now) == Step(x.said) {
		return
	}
	x.waits = true
	l.due = append(l.due, machine)
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Run sends reports until ctx ends.
func (l *Loads) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
		}
		for more := true; more; {
			var list []Load
			if list, more = l.takeDue(time.Now()); len(list) > 0 {
				l.tell(list)
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(loadTick):
			}
		}
	}
}

// takeDue returns the loads to report now; more says that others wait.
func (l *Loads) takeDue(now time.Time) (list []Load, more bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	left := l.due[:0]
	for _, id := range l.due {
		x := l.machines[id]
		switch {
		case Step(x.now) == Step(x.said): // back on the reported step
			x.waits = false
		case len(list) >= loadsATick || now.Sub(x.at) < loadEvery:
			left = append(left, id)
		default:
			x.said, x.at, x.waits = x.now, now, false
			list = append(list, Load{Machine: id, Load: x.now})
		}
	}
	l.due = left
	l.sweepIdle(now)
	return list, len(left) > 0
}

// sweepIdle forgets machines without load, once there are many. A machine reported within the last second is kept, or
// the limit of one report a second would be forgotten with it. The caller holds the lock.
func (l *Loads) sweepIdle(now time.Time) {
	if len(l.machines) < l.sweepAt {
		return
	}
	for id, x := range l.machines {
		if x.now == 0 && x.said == 0 && !x.waits && now.Sub(x.at) >= loadEvery {
			delete(l.machines, id)
		}
	}
	l.sweepAt = max(sweepLoadsAt, 2*len(l.machines))
}
