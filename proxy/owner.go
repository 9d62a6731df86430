package proxy

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/core/routing"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/proxy/hop"
	"github.com/soukhq/souk/runtime/reach"
)

// Worker is what the proxy needs of a worker of its own process.
type Worker interface {
	ID() cluster.WorkerID
	Machine(ctx context.Context, app, id string) (*machine.Machine, error)
	Do(ctx context.Context, c lifecycle.Command) (lifecycle.Outcome, error)
	// Watch calls f with a machine now and after each change, until f returns false or ctx ends.
	Watch(ctx context.Context, app, id string, f func(*machine.Machine) bool) error
	// CheckNow runs a machine's failing checks at once.
	CheckNow(machine string)
	Logs(ctx context.Context, app, id string, q machine.LogQuery, emit func(machine.LogLine) error) error
}

// Target is a port of a machine.
type Target struct {
	App     string
	Machine string
	Port    int // the port inside the machine
}

// connKey is the key of connections to a machine's port.
func connKey(id string, port int) string { return id + ":" + strconv.Itoa(port) }

// correction is the owner's answer that it did not take a request.
type correction struct {
	kind routing.Correction
	err  error
}

func (c *correction) Error() string { return c.err.Error() }
func (c *correction) Unwrap() error { return c.err }

// owner has the machines of this process's workers.
type owner struct {
	workers []Worker
	conns   hop.Conns
	dials   dials
	h2      h2Clients
	report  func(machine string, load int)
	dialer  reach.Dialer

	looking atomic.Int32 // number of ports being polled until they accept

	mu    sync.Mutex
	gates map[string]*gate
}

// gate holds the visits to one machine, and its wake or rest.
type gate struct {
	visits  map[*visit]struct{}
	fewer   chan struct{} // closed when a visit ends or becomes raw; nil: nobody waits
	looking bool          // a probe of its port is under way
	since   time.Time     // when the last visit ended
	resting chan struct{} // not nil: it is being stopped as idle; closed when that ends
	waking  *waking       // nil: it is not being woken
	leaving bool          // the machine's start named left is being drained, or was
	left    string
	port    int      // last seen to accept
	of      string   // the start in which port was seen to accept
	ready   expected // learned from its starts
}

// waking is a wake that is under way, shared by all that wait for it.
type waking struct {
	done   chan struct{}
	phases Phases
	err    error
	wanted bool // a request waits for it
}

func newOwner(workers []Worker, report func(string, int)) *owner {
	if report == nil {
		report = func(string, int) {}
	}
	o := &owner{workers: workers, report: report, gates: map[string]*gate{},
		conns: hop.Conns{Unused: keptTime, Once: onceTime}}
	o.dialer.Timeout, o.dialer.KeepAlive = dialTime, -1
	o.dials.conns, o.dials.lines.Each = &o.conns, ownDials
	return o
}

// Bounds of a machine's connections that are kept: many a server closes one after 5 s, and a request that meets the
// close is lost. One that cannot be sent twice dials anew, which costs less than 0.1 ms on the same host.
const (
	keptTime = 4 * time.Second
	onceTime = 100 * time.Millisecond
)

const dialTime = 10 * time.Second // to a machine of this host, which may be busy: one that is not there refuses at once

// findMachine returns a machine of this process's workers, and its worker.
func (o *owner) findMachine(ctx context.Context, t Target) (Worker, *machine.Machine, error) {
	for _, w := range o.workers {
		m, err := w.Machine(ctx, t.App, t.Machine)
		if err == nil && m.State != machine.Destroyed {
			return w, m, nil
		}
		if err != nil && !fault.Is(err, fault.NotFound) {
			return nil, nil, &correction{routing.NoAnswer, err}
		}
	}
	return nil, nil, &correction{routing.NotHere, fault.New(fault.NotFound, fault.CodeMachineNotFound,
		"machine %s is not at this worker", t.Machine)}
}

// serviceAt returns the service of a config that a port belongs to; nil: none, so the proxy lets nothing through to the
// port.
func serviceAt(c *machine.Config, port int) *machine.Service {
	list := c.RoutedServices()
	for i := range list {
		if list[i].InternalPort == port {
			return &list[i]
		}
	}
	return nil
}

// silenceOf returns how long a service's raw or upgraded connection may be silent before it is closed.
func silenceOf(s *machine.Service) time.Duration {
	for _, p := range s.Ports {
		if o := p.HTTPOptions; o != nil && o.IdleTimeout != nil && *o.IdleTimeout > 0 {
			return time.Duration(*o.IdleTimeout) * time.Second
		}
	}
	return silentTime
}

// admitVisit adds a visit if there are fewer than hard (0: no limit), and returns the new number. The caller holds the
// lock.
func (g *gate) admitVisit(v *visit, hard int) (load int, err error) {
	m := v.machine
	switch {
	case g.resting != nil || g.waking != nil:
		return 0, doesNotRun(m)
	case !m.Ready():
		return 0, isNotFit(m)
	case g.leaving && g.left == lastUp(m):
		return 0, isStopped(m)
	case hard > 0 && len(g.visits) >= hard:
		return 0, &correction{routing.AtItsLimit, fault.New(fault.Exhausted, codeAtItsLimit,
			"machine %s has %d of %d requests", m.ID, len(g.visits), hard)}
	}
	g.visits[v] = struct{}{}
	return len(g.visits), nil
}

func doesNotRun(m *machine.Machine) error {
	return &correction{routing.DoesNotRun, fault.New(fault.Precondition, fault.CodeNotRunning,
		"machine %s is %s", m.ID, m.State)}
}

func isNotFit(m *machine.Machine) error {
	return &correction{routing.DoesNotRun, fault.New(fault.Precondition, fault.CodeNotRunning,
		"machine %s has not passed its checks since it was started", m.ID)}
}

func isStopped(m *machine.Machine) error {
	return &correction{routing.DoesNotRun, fault.New(fault.Precondition, fault.CodeNotRunning,
		"machine %s is being stopped", m.ID)}
}

// lastUp names a machine's latest completed start. Unlike Machine.CurrentStart it does not change while a next start is
// under way.
func lastUp(m *machine.Machine) string {
	for _, e := range m.Events {
		if e.Type == "start" {
			return e.ID
		}
	}
	return ""
}

// gateOf returns a machine's gate, and makes it if needed. The caller holds the lock.
func (o *owner) gateOf(machine string) *gate {
	g := o.gates[machine]
	if g == nil {
		g = &gate{visits: map[*visit]struct{}{}}
		o.gates[machine] = g
	}
	return g
}

// dialMachine connects to a machine that is visited. If nothing listens it is not ready, or never will be: the caller
// then wakes it, which waits until it is.
func (o *owner) dialMachine(ctx context.Context, m *machine.Machine, port int) (net.Conn, error) {
	c, err := o.dialer.Try(ctx, m, port)
	if err == nil {
		o.mu.Lock()
		g := o.gateOf(m.ID)
		g.port, g.of = port, m.CurrentStart()
		o.mu.Unlock()
		return c, nil
	}
	kind := routing.NoAnswer
	if isRefused(err) && o.lastReady(m) != port {
		kind = routing.DoesNotRun
	}
	if fault.CodeOf(err) != "" { // the machine has no address
		return nil, &correction{kind, err}
	}
	why := ""
	if kind == routing.NoAnswer {
		why = o.listensElsewhere(m, port, err)
	}
	return nil, &correction{kind, fault.Wrap(err, fault.Unavailable, fault.CodeNoListener,
		"machine %s runs, and nothing answers at its port %d%s; see souk logs %s", m.ID, port, why, m.ID)}
}

// listensElsewhere returns a clause that says where a refusing machine listens instead, for the error that it does not
// answer.
func (o *owner) listensElsewhere(m *machine.Machine, port int, err error) string {
	if why := o.dialer.Explain(m, port, err); why != "" {
		return ": " + why
	}
	return ""
}

// lastReady returns the port that was seen to accept since the machine's present start; 0: none yet.
func (o *owner) lastReady(m *machine.Machine) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	if g := o.gates[m.ID]; g != nil && g.of == m.CurrentStart() {
		return g.port
	}
	return 0
}

// forgetGates drops the gates of machines that have left this process; kept reports which remain.
func (o *owner) forgetGates(kept func(machine string) bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for id, g := range o.gates {
		if len(g.visits) == 0 && g.waking == nil && g.resting == nil && !kept(id) {
			delete(o.gates, id)
			o.conns.Drop(id)
		}
	}
}

// loadOf returns how many visits keep a machine up now, and since when it has none.
func (o *owner) loadOf(machine string) (load int, since time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if g := o.gates[machine]; g != nil {
		load, since = g.busyVisits(time.Now())
		if g.waking != nil {
			load++
		}
		return load, since
	}
	return 0, time.Time{}
}

// restMachine stops or suspends a machine, unless a request has come for it meanwhile. A request that comes during the
// stop wakes it again.
func (o *owner) restMachine(ctx context.Context, t Target, suspend bool) error {
	w, _, err := o.findMachine(ctx, t)
	if err != nil {
		return err
	}
	o.mu.Lock()
	g := o.gateOf(t.Machine)
	if !g.isIdle() {
		o.mu.Unlock()
		return nil
	}
	g.resting = make(chan struct{})
	o.mu.Unlock()
	o.conns.Drop(t.Machine)
	verb := lifecycle.Stop
	if suspend {
		verb = lifecycle.Suspend
	}
	_, err = w.Do(ctx, lifecycle.Command{Verb: verb, App: t.App, Machine: t.Machine, Source: machine.SourceProxy})
	o.mu.Lock()
	close(g.resting)
	g.resting = nil
	o.mu.Unlock()
	return err
}

func isRefused(err error) bool { return errors.Is(err, errRefused) }
