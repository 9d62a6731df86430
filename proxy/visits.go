package proxy

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/core/routing"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/proxy/hop"
)

// visit is a request or a connection that is under way at a machine. The owner's lock guards its fields, except the
// atomic ones.
type visit struct {
	owner   *owner
	gate    *gate            // kept as long as it has visits
	machine *machine.Machine // as it was when the visit began
	port    int
	stream  time.Duration // silent for longer it no longer keeps the machine up; 0: no limit
	most    time.Duration // silent for longer its connection is closed; 0: no limit
	raw     bool          // no request, or upgraded: a drain does not wait for its end
	conn    net.Conn      // to the machine; nil: none yet, or over's
	over    *h2Client     // the HTTP/2 client that it uses; nil: conn
	began   time.Time
	head    atomic.Bool // the head of the answer has come
	halted  atomic.Bool // ended since the machine is stopped by a signal: see endHalted
}

// visitMachine connects to a machine, and calls use with the connection, which counts as the machine's load until use
// returns. raw says that it carries no request. An error is a correction: use was not called.
func (o *owner) visitMachine(ctx context.Context, t Target, raw bool, use func(net.Conn)) error {
	v, err := o.beginVisit(ctx, t)
	if err != nil {
		return err
	}
	defer v.endVisit()
	c, err := v.dialMachine(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	v.goesOver(c)
	if raw {
		v.becomeRaw()
	}
	use(c)
	return nil
}

// carryRequest sends a request to a machine, within a visit.
func (o *owner) carryRequest(ctx context.Context, w http.ResponseWriter, r *hop.Request, b *backend) (res hop.Result,
	err error) {
	v, err := o.beginVisit(ctx, b.Target)
	if err != nil {
		return res, err
	}
	defer v.endVisit()
	answer := r.Answer
	r.Answer = func(resp *http.Response) error {
		v.head.Store(true)
		if resp.StatusCode == http.StatusSwitchingProtocols {
			v.becomeRaw()
		}
		return answer(resp)
	}
	if b.h2 {
		m := v.machine // the visit may be over long before the client
		client := o.h2.clientFor(b, func(ctx context.Context) (net.Conn, error) {
			return o.dialMachine(ctx, m,
				b.Port)
		})
		o.mu.Lock()
		v.over = client
		o.mu.Unlock()
		res, err = hop.RoundTrip(w, r, client)
	} else {
		res, err = o.dials.sendRequest(ctx, w, r, b.conn, v)
	}
	if v.halted.Load() {
		err = haltedError(v.machine.ID, r.IsRepeatable())
	}
	return res, err
}

// beginVisit begins a visit, which endVisit ends. An error is a correction: nothing was done.
func (o *owner) beginVisit(ctx context.Context, t Target) (*visit, error) {
	_, m, err := o.findMachine(ctx, t)
	if err != nil {
		return nil, err
	}
	s := serviceAt(m.Config, t.Port)
	if s == nil {
		return nil, &correction{routing.NotHere, fault.New(fault.NotFound, codeService,
			"machine %s has no service at its port %d", t.Machine, t.Port)}
	}
	if m.State != machine.Started {
		return nil, doesNotRun(m)
	}
	v := &visit{owner: o, machine: m, port: t.Port, raw: !s.IsHTTP(), began: time.Now()}
	if s.IdleStream != nil {
		v.stream = s.IdleStream.Duration
	}
	if s.IsHTTP() {
		v.most = silenceOf(s)
	}
	hard := 0
	if s.Concurrency != nil {
		hard = s.Concurrency.HardLimit
	}
	o.mu.Lock()
	v.gate = o.gateOf(m.ID)
	load, err := v.gate.admitVisit(v, hard)
	o.mu.Unlock()
	if err != nil {
		return nil, err
	}
	o.report(m.ID, load)
	return v, nil
}

func (v *visit) endVisit() {
	v.owner.mu.Lock()
	delete(v.gate.visits, v)
	v.gate.tellFewer()
	load := len(v.gate.visits)
	if load == 0 {
		v.gate.since = time.Now()
	}
	v.owner.mu.Unlock()
	v.owner.report(v.machine.ID, load)
}

// tellFewer wakes those that wait for the end of visits. The caller holds the lock.
func (g *gate) tellFewer() {
	if g.fewer != nil {
		close(g.fewer)
		g.fewer = nil
	}
}

// dialMachine makes a visit's connection.
func (v *visit) dialMachine(ctx context.Context) (net.Conn, error) {
	if v.halted.Load() { // a new connection would not help
		return nil, errHalted
	}
	return v.owner.dialMachine(ctx, v.machine, v.port)
}

// goesOver records which connection a visit uses.
func (v *visit) goesOver(c net.Conn) {
	v.owner.mu.Lock()
	v.conn = c
	v.owner.mu.Unlock()
}

// becomeRaw marks a visit as raw: no request, or upgraded to another protocol.
func (v *visit) becomeRaw() {
	v.owner.mu.Lock()
	v.raw = true
	v.gate.tellFewer()
	v.owner.mu.Unlock()
}

// currentConn returns the connection that a visit uses; nil: none yet. The caller holds the lock.
func (v *visit) currentConn() net.Conn {
	if v.over != nil {
		return v.over.newestConn()
	}
	return v.conn
}

// silentFor returns how long no byte has passed a visit's connection, either way. It reads the kernel's counters, so
// copying needs no bookkeeping. The caller holds the lock.
func (v *visit) silentFor() time.Duration {
	c, is := v.currentConn().(syscall.Conn)
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

// busyVisits returns how many visits keep a machine up, and when the last of the others stopped doing so. The caller
// holds the lock.
func (g *gate) busyVisits(now time.Time) (n int, since time.Time) {
	since = g.since
	for v := range g.visits {
		silent := time.Duration(0)
		if v.stream > 0 {
			silent = v.silentFor()
		}
		if v.stream == 0 || silent < v.stream {
			n++
		} else if at := now.Add(v.stream - silent); at.After(since) {
			since = at
		}
	}
	return n, since
}

// isIdle reports whether a machine may be stopped as idle. The caller holds the lock.
func (g *gate) isIdle() bool {
	busy, _ := g.busyVisits(time.Now())
	return busy == 0 && g.waking == nil && g.resting == nil
}

// closeSilent closes the connections that have been silent for longer than they may be.
func (o *owner) closeSilent() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, g := range o.gates {
		for v := range g.visits {
			if v.most > 0 && v.silentFor() > v.most {
				v.currentConn().Close()
			}
		}
	}
}

// comesUp reports whether a machine was just started and is not ready yet: its idle time begins when it is, but no
// later than a request would wait for it.
func (o *owner) comesUp(ctx context.Context, t Target, changed time.Time) bool {
	if time.Since(changed) > wakeTime {
		return false
	}
	_, m, err := o.findMachine(ctx, t)
	if err != nil || m.State != machine.Started || o.lastReady(m) != 0 {
		return false
	}
	if _, err := m.Reach(t.Port); err != nil {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if g := o.gateOf(m.ID); !g.looking {
		g.looking = true
		go o.probePort(ctx, m, t.Port)
	}
	return true
}

// probePort checks whether a machine's port accepts, and records it.
func (o *owner) probePort(ctx context.Context, m *machine.Machine, port int) {
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
	g := o.gateOf(m.ID)
	g.looking = false
	if err == nil {
		g.port, g.of, g.since = port, m.CurrentStart(), time.Now()
	}
}
