// Package worker is the shell around one worker's truth: it gives lifecycle.Supervisor the time and its inputs, commits
// what comes out, carries out the effects with a runtime, and answers.
//
// One goroutine owns the Supervisor. It takes all inputs that are waiting, commits their records together (one fsync
// serves every operation that is ready), then lets go of effects and answers. Reads of machines do not pass through it:
// they see the last published state, which is never ahead of the journal for anything that was promised.
package worker

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/image"
	"github.com/soukhq/souk/runtime/reach"
	"github.com/soukhq/souk/store/journal"
)

// Options say what a worker is made of. All but Secrets, Log and the numbers are needed.
type Options struct {
	ID          cluster.WorkerID
	Region      cluster.Region
	Dir         string // volumes and snapshots live below it
	Capacity    cluster.Resources
	Offer       Offer // what else its record says of it
	MaxStarting int   // machines on their way up at once; 0: 256
	Pace
	// the kernel's name for this boot of the host: another one than before means that what was not synced is gone. "":
	// it is not known
	Boot     string
	Journal  journal.Journal
	Runtime  runtime.Runtime
	Ports    *Ports                                            // of its host, which has other workers; nil: it has none
	Images   *image.Store                                      // that Runtime starts machines from; nil: none
	Wanted   func() []string                                   // images that no prune removes; nil: none
	Sized    bool                                              // volumes are held to their size (package loopfs)
	Secrets  func(*machine.Machine) (map[string]string, error) // of those that it reads; nil: none
	Tasks    Tasks                                             // nil: none
	Observer Observer                                          // nil: none
	// Dial connects to a port of a machine for its health checks; nil: package reach does
	Dial func(ctx context.Context, m *machine.Machine, port int) (net.Conn, error)
	// Drain is called before a machine that is stopped gets its signal; nil: machines have no requests
	Drain Drain
	// MayBegin is asked before Run carries out what the journal says, and returns why nothing may be started; "": it
	// may. goesOn says that lives of the worker run here. nil: it always may
	MayBegin func(ctx context.Context, goesOn bool) (why string)
	// Anew says that the journal was given up: it may be empty although the runtime knows machines, which are ended.
	Anew bool
	// Full is asked often, and returns why nothing new is taken; nil: it is. nil: it always is
	Full func() error
	// Findings are those of the process beside the worker's own, for Examine; nil: there are none
	Findings func() []cluster.Finding
	Log      *slog.Logger
	Rand     *rand.Rand // nil: seeded by the system; leases' nonces come from it
}

// Drain has a machine get no more requests, until its next start, and returns when those that it has are answered, after
// most or when ctx ends.
type Drain func(ctx context.Context, app, machine string, most time.Duration)

// Pace says for how long a worker waits. Zero is what a worker of users has; tests may be in haste.
type Pace struct {
	// how long a command waits for its operation to end before it answers that it has begun; 0: 20 s
	Patience time.Duration
	// how long the worker or its runtime may stand still before that time counts for no deadline; 0: 1 s
	Pulse time.Duration
	Haste int // by which the deadlines of operations are divided; 0: not at all
}

// Observer is told what the worker is and has, whenever that changes, once it is durable and before it is answered. It
// is called from the worker's loop, so it must not wait, and must not call the worker. Reads of machines do not wait
// for it. What the worker has when it is made is not told: whoever observes it asks for that before Run.
type Observer interface {
	Worker(cluster.Record)
	Machine(*machine.Machine) // also one that is destroyed, which is kept for a while
	Gone(machine string)      // it is no longer kept
}

// Offer is what a worker says of itself to those who look for a place, beside its capacity. See cluster.Record.
type Offer struct {
	Attributes cluster.Attributes
	Require    []cluster.Requirement // whom it takes at all
	Prefer     []cluster.Preference
	Reserved   []string
	Headroom   cluster.Resources
	// see cluster.Record
	PromiseLimit int64
	GPUs         []cluster.GPU // its devices, by number; Capacity.GPU is 1000 for each. None: they are only counted
	// Found says that GPUs are those that its host was found to have, in whatever order: the worker numbers them, counts
	// them in, and is told when others come (Worker.Devices)
	Found bool
}

// Worker runs machines. Its methods, but for Run, may be called from many goroutines.
type Worker struct {
	o      Options
	loop   *loop
	dialer *reach.Dialer // to its machines
	own    *reach.Own    // knows whose the host's ports are; nil: that cannot be told
}

// New loads the journal, looks at what the runtime has, and brings both together. Nothing is done yet: see Run.
func New(ctx context.Context, o Options) (*Worker, error) {
	if o.MaxStarting == 0 {
		o.MaxStarting = defaultMaxStarting
	}
	if o.Patience == 0 {
		o.Patience = defaultPatience
	}
	if o.Pulse == 0 {
		o.Pulse = defaultPulse
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	dialer := new(reach.Dialer)
	own := (*reach.Own)(nil)
	if sockets, can := o.Runtime.(runtime.Listener); can {
		own = &reach.Own{Connect: dialer.Try, Sockets: sockets}
	}
	explain := dialer.Because
	switch {
	case o.Dial != nil:
		explain = nil
	case own != nil:
		o.Dial = own.Dial
	default:
		o.Dial = dialer.Try
	}
	if o.Findings == nil {
		o.Findings = func() []cluster.Finding { return nil }
	}
	if o.Full == nil {
		o.Full = func() error { return nil }
	}
	o.Log = o.Log.With("worker", o.ID)
	if o.Rand == nil {
		o.Rand = systemRand()
	}
	l := newLoop(o, explain)
	if err := l.recoverLives(ctx); err != nil {
		return nil, err
	}
	w := &Worker{o, l, dialer, own}
	o.Ports.addWorker(w)
	return w, nil
}

// Run works until ctx ends, then returns nil; or until the journal fails, and returns why: the worker is then to be
// made anew from its journal. Machines go on running in both cases.
func (w *Worker) Run(ctx context.Context) error { return w.loop.run(ctx) }

// Machine gives a machine as last published; destroyed ones too, as long as they are kept.
func (w *Worker) Machine(_ context.Context, app, id string) (*machine.Machine, error) {
	if e := w.loop.view.get(id); e != nil && e.m.App == app {
		return e.m, nil
	}
	return nil, noMachine()
}

// CheckNow has those checks of a machine made at once that do not pass: a request waits for it.
func (w *Worker) CheckNow(id string) { w.loop.health.Soon(id) }

func noMachine() error {
	return fault.New(fault.NotFound, fault.CodeMachineNotFound, "machine not found")
}
