package worker

import (
	"context"
	"slices"
	"sync"

	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
)

// Ports lets the workers of one host know each other's ports of the host: a ledger knows only those of its own
// machines.
type Ports struct {
	mu      sync.Mutex
	workers []*Worker
	asked   map[string][]machine.Publish // by machine whose grant is in progress
}

func (p *Ports) addWorker(w *Worker) {
	if p != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.workers = append(p.workers, w)
	}
}

// claimPorts reserves a machine's host ports until done is called; by then the machine is among the worker's or was
// refused. no are the ports that machines of the other workers have. The machine that it replaces has been stopped.
func (p *Ports) claimPorts(w *Worker, app, id string, c *machine.Config) (no []machine.Clause, done func()) {
	if p == nil || !c.OnHostPorts() || len(c.Services) == 0 {
		return nil, func() {}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	ports := c.HostPorts()
	for _, port := range ports {
		if had := p.whoHasPort(w, app, port, id, c.Metadata[machine.MetadataMoved]); had != "" {
			no = append(no, inUse(port, had))
		}
	}
	if len(no) > 0 {
		return no, func() {}
	}
	if p.asked == nil {
		p.asked = map[string][]machine.Publish{}
	}
	p.asked[id] = ports
	return nil, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.asked, id)
	}
}

// whoHasPort returns what has a port at the other workers, ignoring the machines in but; "": nothing. The lock is
// held.
func (p *Ports) whoHasPort(w *Worker, app string, port machine.Publish, but ...string) string {
	for id, theirs := range p.asked {
		if !slices.Contains(but, id) && slices.ContainsFunc(theirs, port.Overlaps) {
			return "a machine that is being made on this host"
		}
	}
	for _, other := range p.workers {
		if other == w {
			continue
		}
		for _, e := range other.loop.view.listEntries("", false) {
			if slices.Contains(but, e.m.ID) || !slices.ContainsFunc(e.m.Config.HostPorts(), port.Overlaps) {
				continue
			}
			who := "a machine of another app"
			if e.m.App == app {
				who = "machine " + e.m.ID
			}
			return who + " that has it, of worker " + string(other.o.ID) + " on this host"
		}
	}
	return ""
}

func inUse(port machine.Publish, had string) machine.Clause {
	return machine.Clause{Code: placement.CodePort, Wanted: port.String() + " free", Had: had}
}

// Halted reports whether the program that listens on a machine's port is stopped by a signal. False: it is not, or it
// is unknown.
func (w *Worker) Halted(ctx context.Context, id string, port int) bool {
	h, can := w.o.Runtime.(runtime.Halter)
	return can && h.Halted(ctx, id, port)
}

// machineConnection asks the runtime about a machine's network, if it provides one, and collects which other machines
// have the host ports it needs. Those ports are reserved for it until done is called.
func (w *Worker) machineConnection(ctx context.Context, app, id string, c *machine.Config) (out lifecycle.Connection,
	done func()) {
	no, done := w.o.Ports.claimPorts(w, app, id, c)
	if r, ok := w.o.Runtime.(runtime.Connector); ok {
		out.Address, out.No = r.Connect(app, id, c)
	}
	out.No = append(out.No, no...)
	if w.own == nil || !c.OnHostPorts() {
		return out, done
	}
	for _, p := range c.HostPorts() {
		known := slices.ContainsFunc(no, func(c machine.Clause) bool { return c.Wanted == inUse(p, "").Wanted })
		if known || p.Protocol != "" {
			continue // only known for TCP
		}
		if at := w.own.Other(ctx, id, p.HostPort); at.IsValid() {
			out.No = append(out.No, inUse(p, "a program that listens on "+at.String()))
		}
	}
	return out, done
}
