package reaper

import (
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// parkedThread is a thread that waits in a group's v1 hierarchies and forks there: what it forks is born in the group.
// To move a thread into a group the kernel takes a lock that the whole host shares and waits for every CPU to pass a
// quiet point, so a parked thread stays where it is and serves one life after the other, as long as its group is used
// again. It costs a thread; one whose machine lives on is given up (see threadPatience).
type parkedThread struct {
	jobs chan func() // closed: the parked thread is given up, its thread ends and so leaves the group
}

// threadPatience is how long a machine must live for its parked thread to be given up.
const threadPatience = time.Second

// newThread makes one that is in no group yet.
func newThread() *parkedThread {
	s := &parkedThread{jobs: make(chan func())}
	sits := make(chan struct{})
	go s.sit(sits)
	<-sits
	return s
}

func (s *parkedThread) sit(sits chan<- struct{}) {
	runtime.LockOSThread()
	if syscall.Gettid() == os.Getpid() {
		// The first thread cannot end before the process does: it would stay in the group.
		go s.sit(sits)
		runtime.UnlockOSThread()
		return
	}
	close(sits)
	for job := range s.jobs {
		job()
	}
	// Not unlocked: the thread ends, wherever it is.
}

// run has job done in the group.
func (s *parkedThread) run(job func() error) error {
	done := make(chan error, 1)
	s.jobs <- func() { done <- job() }
	return <-done
}

// leave gives the parked thread up. nil has nothing to give up.
func (s *parkedThread) leave() {
	if s != nil {
		close(s.jobs)
	}
}

// young are the lives that may still have their threads: once one has gone on for threadPatience it is given to old.
// One timer serves all, because to set one in each start would wake another thread in it.
type young struct {
	old func(*life)

	mu    sync.Mutex
	lives []*life // oldest first; some may have ended
}

func (y *young) add(l *life) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.lives = append(y.lives, l)
	if len(y.lives) == 1 {
		time.AfterFunc(threadPatience, y.age)
	}
}

func (y *young) age() {
	since := time.Now().Add(-threadPatience)
	y.mu.Lock()
	n := 0
	for n < len(y.lives) && !y.lives[n].rec.StartedAt.After(since) {
		n++
	}
	lives := y.lives[:n:n]
	if y.lives = y.lives[n:]; len(y.lives) > 0 {
		time.AfterFunc(y.lives[0].rec.StartedAt.Sub(since), y.age)
	} else {
		y.lives = nil
	}
	y.mu.Unlock()
	for _, l := range lives {
		y.old(l)
	}
}
