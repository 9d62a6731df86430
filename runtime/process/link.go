package process

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/unixsock"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/reaper"
	"github.com/soukhq/souk/runtime/reaper/frame"
)

// link maintains one connection to the reaper, and restarts the reaper if needed.
type link struct {
	o    Options
	done context.Context

	connecting chan struct{} // a semaphore, held while connecting
	mu         sync.Mutex
	cur        *session
	asked      bool // an upgrade was requested; guarded by connecting

	exitMu sync.Mutex
	queue  []runtime.Exit // at most one per machine and attempt
	more   chan struct{}
}

// session is one connection.
type session struct {
	conn    *net.UnixConn
	welcome frame.Welcome
	dead    chan struct{}
	let     atomic.Bool // its end is expected: this side closed it or requested an upgrade

	sendMu sync.Mutex

	mu      sync.Mutex
	nextID  uint32
	pending map[uint32]chan frame.Frame
}

func newLink(done context.Context, o Options) *link {
	return &link{o: o, done: done, connecting: make(chan struct{}, 1), more: make(chan struct{}, 1)}
}

// liveSession returns the live connection, or makes one.
func (l *link) liveSession(ctx context.Context) (*session, error) {
	if s := l.currentSession(); s != nil {
		return s, nil
	}
	select {
	case l.connecting <- struct{}{}:
		defer func() { <-l.connecting }()
	case <-ctx.Done():
		return nil, timeout(ctx, "answer")
	case <-l.done.Done():
		return nil, fault.New(fault.Unavailable, fault.CodeClosed, "the process runtime was closed")
	}
	if s := l.currentSession(); s != nil {
		return s, nil
	}
	if l.done.Err() != nil {
		return nil, fault.New(fault.Unavailable, fault.CodeClosed, "the process runtime was closed")
	}
	var last error
	for range 5 {
		s, err := l.connectSession(ctx)
		if err == nil {
			return s, nil
		}
		// A dying reaper accepts connections for a moment longer.
		if last = err; !fault.Is(err, fault.Unavailable) || !l.waitMoment(ctx) {
			break
		}
	}
	return nil, last
}

// waitMoment waits before the next try; false if there is no time for one.
func (l *link) waitMoment(ctx context.Context) bool {
	t := time.NewTimer(20 * time.Millisecond)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	case <-l.done.Done():
		return false
	}
}

func (l *link) connectSession(ctx context.Context) (*session, error) {
	conn, err := l.reachReaper(ctx)
	if err != nil {
		return nil, err
	}
	s := &session{conn: conn, dead: make(chan struct{}), pending: make(map[uint32]chan frame.Frame)}
	in := bufio.NewReaderSize(conn, 16<<10)
	if err := s.greetReaper(in); err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			l.endStuckForks(conn)
		}
		_ = conn.Close()
		return nil, err
	}
	l.mu.Lock()
	l.cur = s
	l.mu.Unlock()
	go l.receiveFrames(s, in)
	go l.watchReaper(s)
	go l.watchForks(s)
	switch moved := l.hasMoved(s.welcome.Dir); {
	case moved:
		if n := l.upgradeReaper(ctx, s); n != nil {
			return n, nil
		}
		_ = s.conn.Close()
		return nil, fault.New(fault.Precondition, codeMoved,
			"the directory %s was moved to %s while its reaper ran, and the reaper cannot follow now: end the "+
				"commands that run in its machines, or move the directory back", s.welcome.Dir, l.o.Dir)
	case s.welcome.Build != Build() && !l.asked:
		l.asked = true // only once: it works now or with the next start of souk
		if n := l.upgradeReaper(ctx, s); n != nil {
			return n, nil
		}
	}
	return s, nil
}

// hasMoved reports whether the reaper's directory differs from the one that its socket is in: the directory was
// renamed, and the reaper's path no longer leads to it. Two names of one directory are no move.
func (l *link) hasMoved(said string) bool {
	if said == "" || said == l.o.Dir {
		return false
	}
	here, err := os.Stat(l.o.Dir)
	if err != nil {
		return false
	}
	there, err := os.Stat(said)
	return err != nil || !os.SameFile(here, there)
}

// upgradeReaper asks a reaper of another build to re-execute itself as this build, and returns the new connection. It
// returns nil if the reaper stays as it is, which is harmless: both understand its protocol.
func (l *link) upgradeReaper(ctx context.Context, s *session) *session {
	s.let.Store(true) // a reaper that upgrades closes its connections without an answer
	a, err := s.askOnce(ctx, frame.Request{Op: frame.OpUpgrade, Argv: append(slices.Clone(l.o.ReaperCommand), l.o.Dir)},
		nil)
	if err == nil {
		s.let.Store(false)
		l.o.Log.Warn("the reaper stays the one of another build", "reaper", s.welcome.Build, "err", a.Error.Err())
		return nil
	}
	_ = s.conn.Close()
	<-s.dead
	deadline := time.Now().Add(spawnPatience)
	for time.Now().Before(deadline) {
		if n, err := l.connectSession(ctx); err == nil {
			l.o.Log.Info("the reaper was upgraded", "from", s.welcome.Build, "to", n.welcome.Build)
			return n
		}
		if !l.waitMoment(ctx) {
			return nil
		}
	}
	return nil
}

func (l *link) currentSession() *session {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cur == nil {
		return nil
	}
	select {
	case <-l.cur.dead:
		return nil
	default:
		return l.cur
	}
}

func newHello(exits bool) *frame.Hello {
	return &frame.Hello{Version: frame.Version, Oldest: frame.Oldest, Build: Build(), Exits: exits}
}

func (s *session) greetReaper(in *bufio.Reader) error {
	if err := s.conn.SetDeadline(time.Now().Add(frame.HelloTimeout)); err != nil {
		return reaperGone(err)
	}
	if err := frame.Write(s.conn, 0, frame.KindRequest,
		frame.Request{Op: frame.OpHello, Hello: newHello(true)}); err != nil {
		return reaperGone(err)
	}
	f, err := frame.Read(in)
	if err != nil {
		return reaperGone(err)
	}
	var a frame.Reply
	if err := json.Unmarshal(f.Head, &a); err != nil {
		return fault.Wrap(err, fault.Internal, runtime.CodeProtocol, "the reaper's greeting cannot be understood")
	}
	if a.Error != nil {
		return a.Error.Err()
	}
	if a.Welcome == nil {
		return fault.New(fault.Internal, runtime.CodeProtocol, "the reaper's greeting is empty")
	}
	s.welcome = *a.Welcome
	if err := s.conn.SetDeadline(time.Time{}); err != nil {
		return reaperGone(err)
	}
	return nil
}

// watchReaper closes the connection when the reaper has ended: a child of it that hangs between fork and exec holds its
// descriptors, so the connection may not end by itself. Without pidfds it does nothing.
func (l *link) watchReaper(s *session) {
	ended, stop, err := untilEnd(s.welcome.PID)
	if err != nil {
		if errors.Is(err, unix.ESRCH) {
			_ = s.conn.Close()
		}
		return
	}
	defer stop()
	select {
	case <-ended:
		_ = s.conn.Close()
		reapChild(s.welcome.PID)
	case <-s.dead:
		l.reapEnding(s.welcome.PID, ended)
	}
}

// untilEnd returns a channel that is closed when a process has ended, even if it has not been waited for. stop cancels,
// and also closes the channel.
func untilEnd(pid int) (ended <-chan struct{}, stop func(), err error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, nil, err
	}
	f := os.NewFile(uintptr(fd), "reaper")
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = raw.Read(func(fd uintptr) bool {
			p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			n, err := unix.Poll(p, 0)
			return n > 0 || err != nil && !errors.Is(err, unix.EINTR)
		})
	}()
	return over, func() { _ = f.Close(); <-over }, nil
}

// receiveFrames passes answers to their callers and exits to the queue, until the connection ends.
func (l *link) receiveFrames(s *session, in *bufio.Reader) {
	defer close(s.dead)
	defer s.conn.Close()
	for {
		f, err := frame.Read(in)
		if err != nil {
			if l.done.Err() == nil && !s.let.Load() {
				l.o.Log.Warn("the connection to the reaper ended", "err", err)
			}
			return
		}
		switch f.Kind {
		case frame.KindExit:
			var x runtime.Exit
			if err := json.Unmarshal(f.Head, &x); err != nil {
				l.o.Log.Error("an exit cannot be understood", "err", err)
				continue
			}
			l.addExit(x)
		case frame.KindReply:
			s.mu.Lock()
			c := s.pending[f.ID]
			delete(s.pending, f.ID)
			s.mu.Unlock()
			if c != nil {
				c <- f
			}
		}
	}
}

// callReaper sends a request and waits for the answer. Requests are idempotent, so it retries with the next reaper if
// the reaper goes away; a once request is not retried, as it may have been carried out.
func (l *link) callReaper(ctx context.Context, q frame.Request, once bool, body ...[]byte) (frame.Reply, error) {
	var last error
	for range 3 {
		s, err := l.liveSession(ctx)
		if err != nil {
			return frame.Reply{}, err
		}
		a, err := s.askOnce(ctx, q, body)
		if err == nil {
			return a, a.Error.Err()
		}
		if ctx.Err() != nil {
			return frame.Reply{}, timeout(ctx, q.Op)
		}
		if last = err; once {
			break
		}
	}
	return frame.Reply{}, reaperGone(last)
}

var errDead = errors.New("the connection ended")

func (s *session) askOnce(ctx context.Context, q frame.Request, body [][]byte) (frame.Reply, error) {
	c := make(chan frame.Frame, 1)
	s.mu.Lock()
	s.nextID++
	id := s.nextID
	s.pending[id] = c
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.pending, id)
	}()
	s.sendMu.Lock()
	err := s.conn.SetWriteDeadline(time.Now().Add(frame.HelloTimeout))
	if err == nil {
		err = frame.Write(s.conn, id, frame.KindRequest, q, body...)
	}
	s.sendMu.Unlock()
	if err != nil {
		_ = s.conn.Close() // half a frame may have been sent
		<-s.dead           // so that this connection is not used again
		return frame.Reply{}, err
	}
	var f frame.Frame
	select {
	case f = <-c:
	case <-s.dead:
		return frame.Reply{}, errDead
	case <-ctx.Done():
		return frame.Reply{}, ctx.Err()
	}
	var a frame.Reply
	if err := json.Unmarshal(f.Head, &a); err != nil {
		return a, err
	}
	return a, nil
}

// keepConnected reconnects whenever the connection ends, so that exits keep arriving and machines are not without a
// reaper for long.
func (l *link) keepConnected() {
	wait := time.Duration(0)
	for {
		s := l.currentSession()
		if s == nil {
			var err error
			if s, err = l.liveSession(l.done); err != nil {
				if l.done.Err() != nil {
					return
				}
				wait = min(max(2*wait, 20*time.Millisecond), 5*time.Second)
				l.o.Log.Error("there is no reaper", "err", err, "again_in", wait)
				select {
				case <-time.After(wait):
				case <-l.done.Done():
					return
				}
				continue
			}
			wait = 0
		}
		select {
		case <-s.dead:
		case <-l.done.Done():
			return
		}
	}
}

// shutDown closes the connection for good.
func (l *link) shutDown() error {
	l.connecting <- struct{}{} // no new connection is made afterwards, because done has ended
	defer func() { <-l.connecting }()
	l.mu.Lock()
	s := l.cur
	l.mu.Unlock()
	if s == nil {
		return nil
	}
	err := s.conn.Close()
	<-s.dead
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (l *link) addExit(x runtime.Exit) {
	l.exitMu.Lock()
	same := func(o runtime.Exit) bool { return o.Machine == x.Machine && o.Attempt == x.Attempt }
	if !slices.ContainsFunc(l.queue, same) {
		l.queue = append(l.queue, x)
	}
	l.exitMu.Unlock()
	select {
	case l.more <- struct{}{}:
	default:
	}
}

func (l *link) nextExit(ctx context.Context) (runtime.Exit, bool) {
	for {
		l.exitMu.Lock()
		if len(l.queue) > 0 {
			x := l.queue[0]
			l.queue = l.queue[1:]
			l.exitMu.Unlock()
			return x, true
		}
		l.queue = nil
		l.exitMu.Unlock()
		select {
		case <-l.more:
		case <-ctx.Done():
			return runtime.Exit{}, false
		}
	}
}

// dialReaper connects to a running reaper.
func (l *link) dialReaper(ctx context.Context) (*net.UnixConn, error) {
	return unixsock.Dial(ctx, filepath.Join(l.o.Dir, reaper.SocketFile))
}
