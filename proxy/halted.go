package proxy

import (
	"context"
	"time"

	"github.com/soukhq/souk/core/routing"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/proxy/hop"
)

// haltedAfter is how long a request waits for the head of its answer before it is looked whether what listens at the
// machine's port is stopped by a signal. The kernel takes connections and requests for a program that is, so nothing else
// tells it from one that thinks.
const haltedAfter = 5 * time.Second

// halter is a worker that can tell that.
type halter interface {
	Halted(ctx context.Context, machine string, port int) bool
}

// endHalted ends the requests that wait for machines which are stopped by a signal. It is called now and then.
func (o *owner) endHalted(ctx context.Context, now time.Time) {
	ctx, cancel := context.WithTimeout(ctx, lookEvery)
	defer cancel()
	for id, port := range o.slow(now) {
		if !o.isHalted(ctx, id, port) {
			continue
		}
		o.mu.Lock()
		for v := range o.gate(id).visits {
			if v.waits(now) && v.port == port {
				v.halted.Store(true)
				v.conn().Close()
			}
		}
		o.mu.Unlock()
	}
}

// slow returns machines with a request that has waited for long, and a port of each at which it does.
func (o *owner) slow(now time.Time) map[string]int {
	o.mu.Lock()
	defer o.mu.Unlock()
	var out map[string]int
	for id, g := range o.gates {
		for v := range g.visits {
			if v.waits(now) {
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

// waits reports whether a request has waited for long for the head of its answer. It is called with the owner's lock.
func (v *visit) waits(now time.Time) bool {
	return !v.raw && !v.head.Load() && v.conn != nil && now.Sub(v.began) >= haltedAfter
}

func (o *owner) isHalted(ctx context.Context, id string, port int) bool {
	for _, w := range o.workers {
		if h, can := w.(halter); can && h.Halted(ctx, id, port) {
			return true
		}
	}
	return false
}

// ended returns the error of a visit that endHalted has ended, else err. What may be sent twice goes to another machine.
func (v *visit) ended(r *hop.Request, err error) error {
	if !v.halted.Load() {
		return err
	}
	err = fault.New(fault.Timeout, "halted", "machine %s took the request and does not answer, as its program is "+
		"stopped by a signal; souk signal %s --signal SIGCONT has it go on", v.machine, v.machine)
	if r.IsRepeatable() {
		err = &correction{routing.NoAnswer, err}
	}
	return err
}
