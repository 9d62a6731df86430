package proxy

import (
	"context"
	"errors"
	"time"
)

// haltedAfter is how long a request waits for the head of its answer before the owner checks whether the program at the
// machine's port is stopped by a signal. The kernel accepts connections for a stopped program, so only this check tells
// it from a slow one.
const haltedAfter = 5 * time.Second

// halter is a worker that can report whether the program at a machine's port is stopped by a signal.
type halter interface {
	Halted(ctx context.Context, machine string, port int) bool
}

// endHalted ends the requests that wait for machines which are stopped by a signal. The owner's loop calls it now and
// then.
func (o *owner) endHalted(ctx context.Context, now time.Time) {
	ctx, cancel := context.WithTimeout(ctx, lookEvery)
	defer cancel()
	for id, port := range o.slowMachines(now) {
		if !o.isHalted(ctx, id, port) {
			continue
		}
		o.mu.Lock()
		for v := range o.gateOf(id).visits {
			if v.waitsForHead(now) && v.port == port {
				v.halted.Store(true)
				v.currentConn().Close()
			}
		}
		o.mu.Unlock()
	}
}

// slowMachines returns the machines with a request that has waited for haltedAfter, each with one port of such a
// request.
func (o *owner) slowMachines(now time.Time) map[string]int {
	o.mu.Lock()
	defer o.mu.Unlock()
	var out map[string]int
	for id, g := range o.gates {
		for v := range g.visits {
			if v.waitsForHead(now) {
				if out == nil {
					out = map[string]int{}
				}
				out[id] = v.port
				break
			}
		}
	}
	return out
}

// waitsForHead reports whether a request has waited for haltedAfter for the head of its answer. The caller holds the
// owner's lock.
func (v *visit) waitsForHead(now time.Time) bool {
	return !v.raw && !v.head.Load() && v.currentConn() != nil && now.Sub(v.began) >= haltedAfter
}

func (o *owner) isHalted(ctx context.Context, id string, port int) bool {
	for _, w := range o.workers {
		if h, can := w.(halter); can && h.Halted(ctx, id, port) {
			return true
		}
	}
	return false
}

// errHalted is the end of a visit that endHalted has ended.
var errHalted = errors.New("the machine is stopped by a signal")
