package reaper

import (
	"context"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/osthread"
	"github.com/soukhq/souk/runtime/reaper/cgroup"
	"github.com/soukhq/souk/runtime/reaper/proc"
	"github.com/soukhq/souk/runtime/reaper/space"
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

// newThread makes one that is in no group yet, once settle has made it what it is to be. made counts it while it is
// there.
func newThread(settle func() error, made *atomic.Int64) (*parkedThread, error) {
	s := &parkedThread{jobs: make(chan func())}
	sits := make(chan error)
	made.Add(1)
	osthread.Go(func() {
		defer made.Add(-1)
		s.sitInGroup(settle, sits)
	})
	return s, <-sits
}

func (s *parkedThread) sitInGroup(settle func() error, sits chan<- error) {
	err := settle()
	sits <- err
	if err != nil {
		return
	}
	for job := range s.jobs {
		job()
	}
}

// runInGroup has job done in the group.
func (s *parkedThread) runInGroup(job func() error) error {
	done := make(chan error, 1)
	s.jobs <- func() { done <- job() }
	return <-done
}

// giveUpThread gives the parked thread up. nil has nothing to give up.
func (s *parkedThread) giveUpThread() {
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

func (y *young) addLife(l *life) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.lives = append(y.lives, l)
	if len(y.lives) == 1 {
		time.AfterFunc(threadPatience, y.retireYoung)
	}
}

func (y *young) retireYoung() {
	since := time.Now().Add(-threadPatience)
	y.mu.Lock()
	n := 0
	for n < len(y.lives) && !y.lives[n].rec.StartedAt.After(since) {
		n++
	}
	lives := y.lives[:n:n]
	if y.lives = y.lives[n:]; len(y.lives) > 0 {
		time.AfterFunc(y.lives[0].rec.StartedAt.Sub(since), y.retireYoung)
	} else {
		y.lives = nil
	}
	y.mu.Unlock()
	for _, l := range lives {
		y.old(l)
	}
}

// threads makes the threads that are parked in groups, and only while there is room for them: the Go runtime ends a
// process for which the kernel does not make a thread that it wants, so where machines have taken all there may be, a
// start would end the reaper in place of being refused.
//
// All forks come from such threads, groups or not: what a machine must not gain is taken from the thread that forks it
// (bounds.go), and not from the reaper.
type threads struct {
	headroom func() int64
	view     *space.View // of the machines; nil: the host's own
	log      *slog.Logger

	made  atomic.Int64       // of those that park, how many there are
	ready chan *parkedThread // made beforehand, in no group yet
	low   chan struct{}      // there are fewer than there may be
	short atomic.Bool        // that there is no room has been said
}

const (
	readyThreads = 4
	minHeadroom  = 16 // processes that others may make while a thread is made

	// idleThreads are the Go runtime's own, made beforehand: it makes one when more calls wait in the kernel than it
	// has threads for. One that parks is taken from them and ends. Below idleThreads they are made again, moreThreads
	// more than that at once: while the runtime makes one, what machines take meanwhile ends the process, so that it is
	// to be rare. It tries for 0.2 s.
	idleThreads = 16
	moreThreads = 8
)

// newThreads gives what parks threads in the groups of a tree.
func newThreads(ctx context.Context, t *cgroup.Tree, v *space.View, log *slog.Logger) *threads {
	headroom := proc.Headroom
	if t != nil {
		headroom = func() int64 { return min(t.Headroom(), proc.Headroom()) }
	}
	return newThreadsWithin(ctx, headroom, v, log)
}

// newThreadsWithin gives them where so many more may be made as headroom returns.
func newThreadsWithin(ctx context.Context, headroom func() int64, v *space.View, log *slog.Logger) *threads {
	p := &threads{log: log, view: v, headroom: headroom, ready: make(chan *parkedThread, readyThreads),
		low: make(chan struct{}, 1)}
	p.warmThreads(p.lackingThreads(), moreThreads+readyThreads) // before a machine is there that could take the room
	p.low <- struct{}{}
	go p.keepThreads(ctx)
	return p
}

// lackingThreads is how many threads fewer the Go runtime has for itself than it should.
func (p *threads) lackingThreads() int64 {
	st, err := proc.Read(os.Getpid())
	if err != nil {
		return 0
	}
	return max(0, idleThreads-int64(st.Threads)+p.made.Load())
}

// canMakeThread reports whether a thread may be made: beside those that the Go runtime lacks, should it want them all.
func (p *threads) canMakeThread() bool { return p.canMakeThreads(p.lackingThreads()) }

// canMakeThreads reports whether so many threads may be made.
func (p *threads) canMakeThreads(n int64) bool { return p.headroom() >= minHeadroom+n }

// warmThreads has the Go runtime make the threads that it lacks, and more than that where there is room.
func (p *threads) warmThreads(lacks, more int64) {
	switch {
	case p.canMakeThreads(lacks + more):
		warmRuntimeThreads(idleThreads + int(more))
	case p.canMakeThreads(lacks):
		warmRuntimeThreads(idleThreads)
	}
}

// warmRuntimeThreads has the Go runtime make threads, which it keeps.
func warmRuntimeThreads(n int) {
	var all, done sync.WaitGroup
	all.Add(n)
	for range n {
		done.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			all.Done()
			all.Wait() // so that each has one of its own
		})
	}
	done.Wait()
}

// parkThread puts a thread into g, where groups must be entered.
func (p *threads) parkThread(g cgroup.Group) (*parkedThread, error) {
	s, err := p.takeThread()
	if err != nil {
		return nil, err
	}
	return s, enterGroup(s, g)
}

// parkFor is park for what runs as a user. Threads that are ready can fork none who is root.
func (p *threads) parkFor(o *owner, g *cgroup.Group) (s *parkedThread, err error) {
	if !o.isRoot() {
		s, err = p.takeThread()
	} else if s, err = p.makeThread(p.settleRoot); err != nil {
		return nil, err
	}
	if err != nil || g == nil {
		return s, err
	}
	return s, enterGroup(s, *g)
}

func enterGroup(s *parkedThread, g cgroup.Group) error {
	if !g.NeedsEnter() {
		return nil
	}
	if err := s.runInGroup(g.Enter); err != nil {
		s.giveUpThread() // Enter has left again what it had entered
		return err
	}
	return nil
}

func (p *threads) takeThread() (*parkedThread, error) {
	p.requestCheck()
	select {
	case s := <-p.ready:
		return s, nil
	default:
	}
	return p.makeThread(p.settleThread)
}

// requestCheck has keep look whether there are as many threads as there should be.
func (p *threads) requestCheck() {
	select {
	case p.low <- struct{}{}:
	default:
	}
}

// makeThread makes a thread where there is room for one.
func (p *threads) makeThread(settle func() error) (*parkedThread, error) {
	if !p.canMakeThread() {
		return nil, fault.New(fault.Unavailable, codeFork, "this worker has no room for another process now")
	}
	defer p.requestCheck()
	s, err := newThread(settle, &p.made)
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, codeThread, "no thread can be made that starts machines")
	}
	return s, nil
}

// giveBackThread takes a thread that is in no group for the next.
func (p *threads) giveBackThread(s *parkedThread) {
	select {
	case p.ready <- s:
	default:
		s.giveUpThread()
	}
}

// keepThreads makes threads beforehand, so that a start does not wait for it.
func (p *threads) keepThreads(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.low:
		}
		for len(p.ready) < readyThreads {
			if !p.canMakeThread() {
				if !p.short.Swap(true) {
					p.log.Warn("there is no room for more processes; starts are refused")
				}
				break
			}
			p.short.Store(false)
			s, err := newThread(p.settleThread, &p.made)
			if err != nil {
				p.log.Error("no thread can be made that starts machines", "err", err)
				break
			}
			p.giveBackThread(s)
		}
		if n := p.lackingThreads(); n > 0 {
			p.warmThreads(n, moreThreads)
		}
	}
}
