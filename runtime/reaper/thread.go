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

// parkedThread is a thread that waits in a group's v1 hierarchies and forks there, so that its children are born in the
// group. To move a thread into a group the kernel takes a lock that the whole host shares, and waits for every CPU to
// pass a quiescent state. A parked thread therefore stays in its group and serves one life after the other for as long
// as the group is reused. It costs a thread; when a machine lives on, its thread is released (see threadPatience).
type parkedThread struct {
	jobs chan func() // closing it releases the thread: it ends and so leaves the group
}

// threadPatience is how long a machine must live until its parked thread is released.
const threadPatience = time.Second

// newThread starts a thread that is in no group yet and on which settle has run. made counts the thread while it
// exists.
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

// runInGroup runs job on the thread, and so in its group.
func (s *parkedThread) runInGroup(job func() error) error {
	done := make(chan error, 1)
	s.jobs <- func() { done <- job() }
	return <-done
}

// giveUpThread ends the parked thread. It does nothing for nil.
func (s *parkedThread) giveUpThread() {
	if s != nil {
		close(s.jobs)
	}
}

// young are the lives that may still have their threads. Once a life has lasted for threadPatience it is passed to old.
// One timer serves all lives: setting a timer in each start would wake another thread each time.
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

// threads makes the threads that are parked in groups, and only while there is room for them. The Go runtime crashes
// the process when the kernel refuses it a thread, so where machines have used up all processes, a start would crash
// the reaper instead of being refused.
//
// All forks come from such threads, with or without groups: rights that a machine must not get are dropped by the
// thread that forks it (space.Confine), not by the reaper.
type threads struct {
	headroom func() int64
	view     *space.View // of the machines; nil: the host's own view
	log      *slog.Logger

	made  atomic.Int64       // how many threads for parking exist
	ready chan *parkedThread // made in advance, in no group yet
	low   chan struct{}      // asks keepThreads to check
	short atomic.Bool        // the lack of room has been logged
}

const (
	readyThreads = 4
	minHeadroom  = 16 // processes that others may create while a thread is being made

	// idleThreads are threads of the Go runtime itself, made in advance: it needs another when more calls block in the
	// kernel than it has threads for. A thread that parks is taken from them and ends later. When fewer than
	// idleThreads are left they are made again, moreThreads more than needed at once: if machines take the room while
	// the runtime makes a thread, the process crashes, so that this should be rare. The runtime retries for 0.2 s.
	idleThreads = 16
	moreThreads = 8
)

// newThreads returns the maker of threads that park in the groups of a tree.
func newThreads(ctx context.Context, t *cgroup.Tree, v *space.View, log *slog.Logger) *threads {
	headroom := proc.Headroom
	if t != nil {
		headroom = func() int64 { return min(t.Headroom(), proc.Headroom()) }
	}
	return newThreadsWithin(ctx, headroom, v, log)
}

// newThreadsWithin is newThreads with room for as many threads as headroom returns.
func newThreadsWithin(ctx context.Context, headroom func() int64, v *space.View, log *slog.Logger) *threads {
	p := &threads{log: log, view: v, headroom: headroom, ready: make(chan *parkedThread, readyThreads),
		low: make(chan struct{}, 1)}
	p.warmThreads(p.lackingThreads(), moreThreads+readyThreads) // before a machine exists that could take the room
	p.low <- struct{}{}
	go p.keepThreads(ctx)
	return p
}

// lackingThreads returns how many threads the Go runtime has less than it should.
func (p *threads) lackingThreads() int64 {
	st, err := proc.Read(os.Getpid())
	if err != nil {
		return 0
	}
	return max(0, idleThreads-int64(st.Threads)+p.made.Load())
}

// canMakeThread reports whether a thread may be made, in addition to those that the Go runtime lacks, should it need
// all of them.
func (p *threads) canMakeThread() bool { return p.canMakeThreads(p.lackingThreads()) }

// canMakeThreads reports whether n threads may be made.
func (p *threads) canMakeThreads(n int64) bool { return p.headroom() >= minHeadroom+n }

// warmThreads makes the Go runtime create the threads that it lacks, and some more where there is room.
func (p *threads) warmThreads(lacks, more int64) {
	switch {
	case p.canMakeThreads(lacks + more):
		warmRuntimeThreads(idleThreads + int(more))
	case p.canMakeThreads(lacks):
		warmRuntimeThreads(idleThreads)
	}
}

// warmRuntimeThreads makes the Go runtime create n threads, which it keeps.
func warmRuntimeThreads(n int) {
	var all, done sync.WaitGroup
	all.Add(n)
	for range n {
		done.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			all.Done()
			all.Wait() // so that each goroutine has a thread of its own
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
	return enterGroup(s, g)
}

// parkFor is parkThread for a process that runs as o. Ready threads cannot fork a process that is root.
func (p *threads) parkFor(o *owner, g *cgroup.Group) (s *parkedThread, err error) {
	if !o.isRoot() {
		s, err = p.takeThread()
	} else if s, err = p.makeThread(p.settleRoot); err != nil {
		return nil, err
	}
	if err != nil || g == nil {
		return s, err
	}
	return enterGroup(s, *g)
}

// enterGroup puts a thread into g. On an error it gives the thread up and returns none, so that it is not given up twice.
func enterGroup(s *parkedThread, g cgroup.Group) (*parkedThread, error) {
	if !g.NeedsEnter() {
		return s, nil
	}
	if err := s.runInGroup(g.Enter); err != nil {
		s.giveUpThread() // Enter has already undone a partial move
		return nil, err
	}
	return s, nil
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

// requestCheck makes keepThreads check whether enough threads exist.
func (p *threads) requestCheck() {
	select {
	case p.low <- struct{}{}:
	default:
	}
}

// makeThread makes a thread if there is room for one.
func (p *threads) makeThread(settle func() error) (*parkedThread, error) {
	if !p.canMakeThread() {
		return nil, fault.New(fault.Unavailable, codeFork, "this worker has no room for another process now")
	}
	defer p.requestCheck()
	s, err := newThread(settle, &p.made)
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, codeThread, "no thread to start machines can be made")
	}
	return s, nil
}

// giveBackThread keeps a thread that is in no group for the next start.
func (p *threads) giveBackThread(s *parkedThread) {
	select {
	case p.ready <- s:
	default:
		s.giveUpThread()
	}
}

// keepThreads makes threads in advance, so that a start does not wait for them.
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
				p.log.Error("no thread to start machines can be made", "err", err)
				break
			}
			p.giveBackThread(s)
		}
		if n := p.lackingThreads(); n > 0 {
			p.warmThreads(n, moreThreads)
		}
	}
}
