package proxy

import (
	"context"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/proxy/hop"
)

// visit is a request or a connection that is under way at a machine. Its fields are under the owner's lock, but for those
// that each request sets or asks for.
type visit struct {
	machine string
	port    int
	stream  time.Duration   // without a byte for so long it keeps the machine up no more; 0: for however long
	most    time.Duration   // without a byte for so long its connection is closed; 0: for however long
	raw     bool            // it is no request, or not any more: it has no end that could be awaited
	conn    func() net.Conn // to the machine; nil: there is none yet
	began   time.Time
	head    atomic.Bool // of the answer has come
	halted  atomic.Bool // it was ended, as the machine is: see endHalted
}

func newVisit(id string, s *machine.Service) *visit {
	v := &visit{machine: id, port: s.InternalPort, raw: !s.IsHTTP(), began: time.Now()}
	if s.IdleStream != nil {
		v.stream = s.IdleStream.Duration
	}
	if s.IsHTTP() {
		v.most = silenceOf(s)
	}
	return v
}

// over says which connection a visit goes over.
func (o *owner) over(v *visit, conn func() net.Conn) {
	o.mu.Lock()
	v.conn = conn
	o.mu.Unlock()
}

// upgraded says that a visit has become a connection of another protocol.
func (o *owner) upgraded(v *visit) {
	o.mu.Lock()
	v.raw = true
	o.mu.Unlock()
}

// silent returns for how long no byte has passed a visit's connection, either way, by what the kernel keeps of it: so
// nothing is counted where the bytes are. It is called with the lock.
func (v *visit) silent() time.Duration {
	if v.conn == nil {
		return 0
	}
	c, is := v.conn().(syscall.Conn)
	if !is {
		return 0
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	var silent time.Duration
	_ = raw.Control(func(fd uintptr) {
		if i, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			silent = time.Duration(min(i.Last_data_sent, i.Last_data_recv)) * time.Millisecond
		}
	})
	return silent
}

// busy returns how many visits keep a machine up, and when the last of the others ceased to. It is called with the
// lock.
func (g *gate) busy(now time.Time) (n int, since time.Time) {
	since = g.since
	for v := range g.visits {
		silent := time.Duration(0)
		if v.stream > 0 {
			silent = v.silent()
		}
		if v.stream == 0 || silent < v.stream {
			n++
		} else if at := now.Add(v.stream - silent); at.After(since) {
			since = at
		}
	}
	return n, since
}

// closeSilent closes the connections that have been silent for longer than they may be.
func (o *owner) closeSilent() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, g := range o.gates {
		for v := range g.visits {
			if v.most > 0 && v.silent() > v.most {
				v.conn().Close()
			}
		}
	}
}

// comesUp reports whether a machine that was started a moment ago has not been ready yet: the time for which it may
// have nothing to do begins when it is. It has no longer for that than a request would wait for it.
func (o *owner) comesUp(ctx context.Context, t Target, changed time.Time) bool {
	if time.Since(changed) > wakeTime {
		return false
	}
	_, m, err := o.find(ctx, t)
	if err != nil || m.State != machine.Started || o.lastReady(m) != 0 {
		return false
	}
	if _, err := m.Reach(t.Port); err != nil {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if g := o.gate(m.ID); !g.looking {
		g.looking = true
		go o.look(ctx, m, t.Port)
	}
	return true
}

// look looks whether a machine's port accepts, and says so of it.
func (o *owner) look(ctx context.Context, m *machine.Machine, port int) {
	ctx, cancel := context.WithTimeout(ctx, lookEvery)
	defer cancel()
	c, err := o.dialer.Try(ctx, m, port)
	if err == nil {
		if serviceAt(m.Config, port).IsHTTP() {
			o.conns.Put(hop.NewConn(connKey(m.ID, port), c))
		} else {
			c.Close()
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	g := o.gate(m.ID)
	g.looking = false
	if err == nil {
		g.port, g.of, g.since = port, m.CurrentStart(), time.Now()
	}
}
