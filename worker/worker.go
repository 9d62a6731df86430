// Package worker is the shell around lifecycle.Supervisor, one worker's state: it passes in the time and inputs,
// commits the resulting records, carries out the effects with a runtime, and replies.
//
// One goroutine owns the Supervisor. It handles all waiting inputs, commits their records together (one fsync serves
// every operation that is ready), then starts effects and replies. Reads of machines do not pass through it: they see
// the last published state, which never shows an answered change before it is in the journal.
package worker

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/unixuser"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/image"
	"github.com/soukhq/souk/runtime/reach"
	"github.com/soukhq/souk/store/journal"
)

// Options are a worker's dependencies and settings. All but Secrets, Log and the numbers are required.
type Options struct {
	ID          cluster.WorkerID
	Region      cluster.Region
	Dir         string // volumes and snapshots are below it
	Capacity    cluster.Resources
	Offer       Offer // the rest of its record
	MaxStarting int   // machines starting at once; 0: 256
	Pace
	// the kernel's ID of this boot of the host: after a reboot, unsynced data is gone. "": unknown
	Boot     string
	Journal  journal.Journal
	Runtime  runtime.Runtime
	Ports    *Ports                                            // shared by the host's workers; nil: it is the only one
	Images   *image.Store                                      // from which Runtime starts machines; nil: none
	Wanted   func() []string                                   // images that a prune keeps; nil: none
	Sized    bool                                              // volumes have an enforced size (package loopfs)
	Secrets  func(*machine.Machine) (map[string]string, error) // returns the secrets that a machine reads; nil: none
	Users    UnixUsers                                         // nil: no program runs as a Unix user
	Tasks    Tasks                                             // nil: none
	Observer Observer                                          // nil: none
	// Dial connects to a port of a machine for its health checks; nil: package reach does it
	Dial func(ctx context.Context, m *machine.Machine, port int) (net.Conn, error)
	// Drain is called before a stopped machine gets its signal; nil: machines have no requests
	Drain Drain
	// MayBegin is called before Run carries out what the journal says, and returns why nothing may be started; "":
	// starts are allowed. goesOn: lives of the worker run here. nil: always allowed
	MayBegin func(ctx context.Context, goesOn bool) (why string)
	// Anew says that the journal was given up: it may be empty although the runtime has machines, which are then
	// ended.
	Anew bool
	// Full is called often, and returns why nothing new is accepted; nil: it is accepted. A nil Full always accepts
	Full func() error
	// Findings returns the findings of the process besides the worker's own, for Examine; nil: none
	Findings func() []cluster.Finding
	Log      *slog.Logger
	Rand     *rand.Rand // nil: seeded by the system; leases' nonces come from it
}

// Drain stops new requests to a machine until its next start, and returns when its present requests are answered,
// after most or when ctx ends.
type Drain func(ctx context.Context, app, machine string, most time.Duration)

// Pace is how long a worker waits. The zero Pace is for production; tests may shorten it.
type Pace struct {
	// how long a command waits for its operation before it answers that the operation has begun; 0: 20 s
	Patience time.Duration
	// how long the worker or its runtime may stand still before that time stops counting for deadlines; 0: 1 s
	Pulse time.Duration
	Haste int // the deadlines of operations are divided by it; 0: not at all
}

// Observer gets the worker's record and machines whenever they change, once the change is durable and before it is
// answered. It is called from the worker's loop, so it must not wait, and must not call the worker. Reads of machines
// do not wait for it. It does not get the initial state: an observer reads that before Run.
type Observer interface {
	Worker(cluster.Record)
	Machine(*machine.Machine) // also a destroyed one, which is kept for a while
	Gone(machine string)      // it is no longer kept
}

// Offer is what a worker's record says besides its capacity. See cluster.Record.
type Offer struct {
	Attributes cluster.Attributes
	Require    []cluster.Requirement // what it requires of machines
	Prefer     []cluster.Preference
	Reserved   []string
	Headroom   cluster.Resources
	// see cluster.Record
	PromiseLimit int64
	GPUs         []cluster.GPU // its devices, by number; Capacity.GPU is 1000 for each. None: GPUs are only counted
	// Found says that GPUs were found at the host, in any order: the worker numbers them, adds them to its capacity,
	// and gets later changes by Worker.Devices
	Found bool
}

// Worker runs machines. Its methods, but for Run, may be called from many goroutines.
type Worker struct {
	o      Options
	loop   *loop
	dialer *reach.Dialer // for its machines
	own    *reach.Own    // knows which process has a port of the host; nil: unknown
}

// New loads the journal and reconciles it with the runtime. It changes nothing yet: see Run.
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
	if o.Users == nil {
		o.Users = (*unixuser.Users)(nil)
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

// Run works until ctx ends, then returns nil; or until the journal fails, and returns that error: then make a new
// worker from the journal. Machines run on in both cases.
func (w *Worker) Run(ctx context.Context) error { return w.loop.run(ctx) }

// Machine returns a machine as last published, also a destroyed one as long as it is kept.
func (w *Worker) Machine(_ context.Context, app, id string) (*machine.Machine, error) {
	if e := w.loop.view.get(id); e != nil && e.m.App == app {
		return e.m, nil
	}
	return nil, noMachine()
}

// CheckNow repeats, at once, the checks of a machine that do not pass, as a request waits for it.
func (w *Worker) CheckNow(id string) { w.loop.health.Soon(id) }

func noMachine() error {
	return fault.New(fault.NotFound, fault.CodeMachineNotFound, "machine not found")
}
