package release

import (
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/machine"
)

// Standing is a machine of a service, as the fleet knows it.
type Standing struct {
	ID, Instance string
	machine.Replica
	Worker   cluster.WorkerID
	State    machine.State
	Updated  time.Time // when its worker last told of it, by that one's clock
	Unheard  bool      // its worker cannot be asked
	Silent   time.Time // since when it has not been heard, where it is not
	Ready    bool      // it is up, and the checks that requests depend on have passed
	Died     bool      // it ended by itself, and its worker does not start it again
	Rests    bool      // it is down as somebody asked for that, or was made so, or as its worker has no room for it
	Deaths   int       // how often it has ended by itself, at most machine.MaxDeaths
	Ended    string    // why it last did
	Unfit    string    // why it is not ready; "": it is, or nobody knows
	Missed   string    // which check has failed once and how often, so that each time it is another text
	Exit     *int      // of a run that has ended: its exit code, -1 where nobody saw it
	Loops    bool      // when it last ended by itself, that was the fifth time in 5 minutes
	Cordoned bool      // no request goes there
	Load     int       // requests or connections that proxies have under way to it, as last told
	CPU      *int      // per cent of its CPUs that it uses; nil: not known
	Leaves   bool      // it must go from its worker, which is drained or has no room for it: another takes its place
}

// Slot returns which slot it stands for.
func (m *Standing) Slot() Slot { return Slot{m.Group, m.Index} }

// Goes reports whether the machine is going, or gone.
func (m *Standing) Goes() bool {
	return m.State == machine.Destroying || m.State == machine.Destroyed
}

// Up reports whether its program runs, or has just been told to end.
func (m *Standing) Up() bool { return m.State.Up() }

// Down reports whether its program does not run, and is not about to.
func (m *Standing) Down() bool {
	return m.State == machine.Created || m.State == machine.Stopped || m.State == machine.Suspended ||
		m.State == machine.Failed
}

// Asleep reports whether the machine is down and may be: somebody stopped it, it rests until a request comes, or it was made
// so. A machine that is down on its way to something else is not asleep: a removal stops it, too.
func (m *Standing) Asleep() bool { return m.Rests && !m.Died && m.Down() }

// Stranded reports whether the machine is down and nobody wants that: the order that was to start it, or that stopped it on
// the way to something else, is over or was refused.
func (m *Standing) Stranded() bool { return !m.Rests && !m.Died && m.Down() }
