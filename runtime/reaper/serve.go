package reaper

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/unixsock"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/reaper/frame"
)

// maxRequests bounds the concurrent requests of one connection; more wait in the socket.
const maxRequests = 512

// places bounds the concurrent connections, by operation. Each operation has its own limit, so that log followers do
// not block commands, and neither blocks a souk that wants to stop a machine.
var places = map[string]int{
	"":            2048, // before the first request, which must come within frame.HelloTimeout
	frame.OpHello: 64,   // one souk, and its earlier connections that are not closed yet
	frame.OpWatch: 2048,
	frame.OpExec:  2048,

	frame.OpAttach: 2048,
}

// conn is a connection from a worker.
type conn struct {
	r    *Reaper
	op   string // the operation whose limit it counts against; guarded by r.mu
	unix *net.UnixConn
	in   *bufio.Reader
	fds  *frame.Receiver

	mu sync.Mutex // serializes frames
}

func (r *Reaper) accept(ln *net.UnixListener) {
	for {
		u, err := ln.AcceptUnix()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			r.log.Error("a connection could not be accepted", "err", err)
			time.Sleep(50 * time.Millisecond) // usually out of file descriptors
			continue
		}
		c := &conn{r: r, unix: u, fds: &frame.Receiver{Conn: u}}
		c.in = bufio.NewReaderSize(c.fds, 4096)
		if err := errors.Join(unixsock.CheckPeer(u), c.enterOperation("")); err != nil {
			r.log.Warn("a connection was refused", "err", err)
			c.close()
			continue
		}
		go c.serveConn()
	}
}

func (c *conn) close() {
	_ = c.unix.Close()
	c.r.mu.Lock()
	c.leaveLocked()
	delete(c.r.subs, c)
	c.r.mu.Unlock()
	c.r.lookIdle()
}

// enterOperation counts the connection against an operation's limit, instead of the one it had.
func (c *conn) enterOperation(op string) error {
	r := c.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if most := places[op]; r.places[op] >= most {
		return fault.New(fault.Exhausted, codeConnections, "%s; try again when some have ended", fullText(op, most))
	}
	c.leaveLocked()
	c.op, r.conns[c] = op, true
	r.places[op]++
	return nil
}

// leaveLocked stops counting the connection. The caller holds r.mu.
func (c *conn) leaveLocked() {
	if c.r.conns[c] {
		delete(c.r.conns, c)
		c.r.places[c.op]--
	}
}

// fullText returns a sentence about a limit that is reached.
func fullText(op string, most int) string {
	switch op {
	case frame.OpWatch:
		return fmt.Sprintf("%d logs of the worker's machines are followed already, the most at once", most)
	case frame.OpAttach:
		return fmt.Sprintf("%d terminals of the worker's machines are looked at already, the most at once", most)
	case frame.OpExec:
		return fmt.Sprintf("%d commands run beside the worker's machines already, the most at once", most)
	}
	return fmt.Sprintf("the reaper has %d connections of this kind already, the most at once", most)
}

func (r *Reaper) closeConns() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.conns {
		_ = c.unix.Close()
	}
}

// sendFrame writes one frame, with descriptors. A worker that does not read for sendPatience is disconnected; it
// reconnects if it is alive.
func (c *conn) sendFrame(id uint32, kind frame.Kind, head any, files ...*os.File) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.unix.SetWriteDeadline(time.Now().Add(sendPatience))
	if err := frame.Write(&frame.Sender{Conn: c.unix, Files: files}, id, kind, head); err != nil {
		_ = c.unix.Close()
	}
}

// sendOutput sends a machine's terminal output. A worker that has not read it at time by is disconnected.
func (c *conn) sendOutput(id uint32, p []byte, by time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.unix.SetWriteDeadline(by)
	if err := frame.Write(c.unix, id, frame.KindOutput, nil, p); err != nil {
		_ = c.unix.Close()
	}
}

func (c *conn) sendExit(x runtime.Exit) { c.sendFrame(0, frame.KindExit, x) }

func (c *conn) sendError(id uint32, err error) {
	c.sendFrame(id, frame.KindReply, frame.Reply{Error: frame.ToError(err)})
}

// serveConn reads the first request, which determines what the connection is for.
func (c *conn) serveConn() {
	defer c.close()
	defer c.fds.Close()
	_ = c.unix.SetReadDeadline(time.Now().Add(frame.HelloTimeout))
	f, q, err := c.nextRequest()
	if err != nil || q.Hello == nil {
		return
	}
	_ = c.unix.SetReadDeadline(time.Time{})
	if q.Hello.Version < frame.Oldest || q.Hello.Oldest > frame.Version {
		c.sendError(f.ID, fault.New(fault.Unavailable, runtime.CodeProtocol,
			"the reaper speaks protocol %d to %d and souk %d to %d: use a souk between the two",
			frame.Oldest, frame.Version, q.Hello.Oldest, q.Hello.Version))
		return
	}
	if _, known := places[q.Op]; known {
		if err := c.enterOperation(q.Op); err != nil {
			c.r.log.Warn("a connection was refused", "err", err)
			c.sendError(f.ID, err)
			return
		}
	}
	switch q.Op {
	case frame.OpHello:
		c.r.leaving.Store(false)
		c.answerHello(f.ID, q.Hello)
		c.serveRequests()
	case frame.OpWatch:
		c.watchLog(f.ID, q.Machine)
	case frame.OpExec:
		c.serveExec(f.ID, q)
	case frame.OpAttach:
		c.serveAttach(f.ID, &q)
	default:
		c.sendError(f.ID, fault.New(fault.Invalid, fault.CodeOp, "a connection cannot begin with %q", q.Op))
	}
}

func (c *conn) nextRequest() (frame.Frame, frame.Request, error) {
	var q frame.Request
	f, err := frame.Read(c.in)
	if err != nil {
		return f, q, err
	}
	if f.Kind != frame.KindRequest {
		return f, q, fmt.Errorf("a frame of kind %q where a request belongs", f.Kind)
	}
	return f, q, json.Unmarshal(f.Head, &q)
}

// answerHello answers a hello. If the client wants exits, it first sends those not acknowledged; later ones follow as
// they are announced.
func (c *conn) answerHello(id uint32, h *frame.Hello) {
	r := c.r
	w := &frame.Welcome{
		Version: frame.Version, Build: r.build, PID: os.Getpid(), Dir: r.dir, Tree: r.tree, Lacks: r.lacks,
		View: r.apart.view != nil, As: true, Stdio: true,
	}
	if r.apart.noUsers != nil {
		w.NoUsers = r.apart.noUsers.Error()
	}
	c.sendFrame(id, frame.KindReply, frame.Reply{Welcome: w})
	if !h.Exits {
		return
	}
	var old []runtime.Exit
	r.mu.Lock()
	r.subs[c] = true
	for _, m := range r.machines {
		for _, x := range m.exits {
			if m.life == nil || m.life.over || m.life.attempt != x.Attempt {
				old = append(old, x)
			}
		}
	}
	r.mu.Unlock()
	for _, x := range old {
		c.sendExit(x)
	}
}

// serveRequests serves requests until the worker disconnects. Requests for different machines run concurrently.
func (c *conn) serveRequests() {
	slots := make(chan struct{}, maxRequests)
	for {
		f, q, err := c.nextRequest()
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) && !errors.Is(err, syscall.ECONNRESET) {
				c.r.log.Warn("a worker's connection was cut off", "err", err)
			}
			return
		}
		slots <- struct{}{}
		wait, done := c.r.turns.queueRequest(&q)
		c.r.pool.runBeside(func() {
			defer func() { <-slots }()
			defer done()
			interruptSave(c.r, &q)
			if err := wait(); err != nil {
				c.sendError(f.ID, err)
				return
			}
			c.serveRequest(f, q)
		})
	}
}

// serveRequest carries out one request and answers it.
func (c *conn) serveRequest(f frame.Frame, q frame.Request) {
	if q.Op == frame.OpUpgrade {
		// On success the connection ends, which is the answer.
		err := c.r.upgradeTo(q.Argv)
		c.sendError(f.ID, err)
		return
	}
	c.r.gate.RLock()
	defer c.r.gate.RUnlock()
	if q.Op == frame.OpStart {
		tell := func(st runtime.Status) { c.sendFrame(f.ID, frame.KindReply, frame.Reply{Status: &st}) }
		if err := c.r.startAttempt(q.Machine, q.Attempt, q.Start, f.Body, tell); err != nil {
			c.sendError(f.ID, err)
		}
		return
	}
	if q.Op == frame.OpWake {
		st, err := wakeLife(c.r, q, f.Body)
		c.sendFrame(f.ID, frame.KindReply, frame.Reply{Status: &st, Error: frame.ToError(err)})
		return
	}
	var a frame.Reply
	if q.Op == frame.OpReady {
		if err := c.r.containers.getReady(q, f.Body); err != nil {
			a = frame.Reply{Error: frame.ToError(err)}
		}
	} else if err := c.r.doRequest(q, &a); err != nil {
		a = frame.Reply{Error: frame.ToError(err)}
	}
	c.sendFrame(f.ID, frame.KindReply, a)
}

// doRequest carries out one request other than a start.
func (r *Reaper) doRequest(q frame.Request, a *frame.Reply) error {
	switch q.Op {
	case frame.OpPrepare:
		return r.prepareMachine(q.Machine)
	case frame.OpCheck:
		return checkStart(r, q.Machine, q.Start)
	case frame.OpFindDir:
		return findDir(r, q.Dir, q.Start)
	case frame.OpSignal:
		return r.signalMachine(q.Machine, syscall.Signal(q.Signal), q.All)
	case frame.OpKill:
		return r.killMachine(q.Machine)
	case frame.OpRemove:
		if q.Machine == "" && len(q.Machines) > 0 {
			return r.removeMachines(q.Machines)
		}
		return r.removeMachine(q.Machine)
	case frame.OpList:
		a.List = r.listStatuses()
		return nil
	case frame.OpLife:
		m, err := r.findMachine(q.Machine)
		if err != nil {
			return err
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		st := m.statusLocked()
		a.Status = &st
		a.Container = m.life != nil && m.life.rec.Container != ""
		if a.Container && st.Running {
			a.Sandbox = r.containers.store.Sandbox(nameOf(m.life))
		}
		if l := m.life; l != nil && st.Running && !st.OnDisk && l.rec.Group != "" {
			a.Group = &frame.Group{Name: l.rec.Group, CPU: time.Duration(l.rec.BaseCPU),
				Throttled: time.Duration(l.rec.BaseSlow)}
		}
		return nil
	case frame.OpAck:
		for _, a := range q.Acks {
			if err := r.forgetExit(a.Machine, a.Attempt); err != nil {
				return err
			}
		}
		if q.Machine == "" {
			return nil
		}
		return r.forgetExit(q.Machine, q.Attempt)
	case frame.OpPing:
		r.forkMu.Lock() // a thread that holds it for long blocks everything
		r.mu.Lock()
		defer r.forkMu.Unlock()
		defer r.mu.Unlock()
		return nil
	case frame.OpLeave:
		r.leaving.Store(true) // takes effect when the connection is closed
		return nil
	case frame.OpPause:
		return r.pauseMachine(q.Machine, true)
	case frame.OpResume:
		return r.pauseMachine(q.Machine, false)
	case frame.OpHibernate:
		return hibernateLife(r, q.Machine, q.Attempt)
	case frame.OpResize:
		return resizeLife(r, q.Machine, q.Attempt, q.Limits)
	}
	return fault.New(fault.Unimplemented, fault.CodeOp,
		"this reaper does not know the request %q: it is older than souk", q.Op)
}

// watchLog notifies a worker whenever a machine's log has grown, until the connection is closed or the machine is
// removed.
func (c *conn) watchLog(id uint32, machine string) {
	m, err := c.r.findMachine(machine)
	if err != nil {
		c.sendError(id, err)
		return
	}
	grown, stop := m.watchLog()
	defer stop()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = c.in.ReadByte() // returns when the connection ends: nothing is sent
	}()
	c.sendFrame(id, frame.KindGrown, nil)
	for {
		select {
		case _, ok := <-grown:
			if !ok {
				c.sendFrame(id, frame.KindReply, frame.Reply{})
				return
			}
			c.sendFrame(id, frame.KindGrown, nil)
		case <-gone:
			return
		}
	}
}
