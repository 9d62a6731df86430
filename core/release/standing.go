package release

import (
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/machine"
)

// Standing is a machine of a service, as the members know it.
type Standing struct {
	ID, Instance string
	machine.Replica
	Worker   cluster.WorkerID
	State    machine.State
	Updated  time.Time // when its worker last reported it, by the worker's clock
	Unheard  bool      // its worker cannot be reached
	Silent   time.Time // since when its worker is unreachable, if it is
	Ready    bool      // it is up, and the checks that requests depend on have passed
	Died     bool      // it ended by itself, and its worker does not start it again
	Rests    bool      // it is down on request, was made so, or its worker has no room for it
	Deaths   int       // how often it has ended by itself, at most machine.MaxDeaths
	Ended    string    // why it last ended by itself
	Unfit    string    // why it is not ready; "": it is, or the reason is unknown
	Missed   string    // which check has failed once, and how often; each time a different text
	Exit     *int      // of a run that has ended: its exit code, -1 if unknown
	Loops    bool      // its last end by itself was the fifth within 5 minutes
	Cordoned bool      // it gets no requests
	Load     int       // requests or connections in progress at proxies, as last reported
	CPU      *int      // per cent of its CPUs in use; nil: unknown
	Leaves   bool      // its worker is drained or has no room for it: it must be replaced elsewhere
}

// Slot returns the slot that the machine stands for.
func (m *Standing) Slot() Slot { return Slot{m.Group, m.Index} }

// Goes reports whether the machine is being destroyed, or gone.
func (m *Standing) Goes() bool {
	return m.State == machine.Destroying || m.State == machine.Destroyed
}

// Up reports whether its program runs, perhaps while stopping.
func (m *Standing) Up() bool { return m.State.Up() }

// Down reports whether its program neither runs nor is starting.
func (m *Standing) Down() bool {
	return m.State == machine.Created || m.State == machine.Stopped || m.State == machine.Suspended ||
		m.State == machine.Failed
}

// Asleep reports whether the machine is down and may be: it was stopped on request, it waits for a request, or it was
// made so. A machine that is down in the course of an operation is not asleep: a removal stops it, too.
func (m *Standing) Asleep() bool { return m.Rests && !m.Died && m.Down() }

// Stranded reports whether the machine is down unintentionally: the order that was to start it, or that stopped it on
// the way to something else, has ended or was refused.
func (m *Standing) Stranded() bool { return !m.Rests && !m.Died && m.Down() }
