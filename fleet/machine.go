package fleet

import (
	"cmp"
	"strings"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Machine is what a worker has told of one of its machines: enough to find it, to route to it and to list it. It does
// not change: a change makes another one.
type Machine struct {
	ID       string
	App      string
	Name     string
	State    machine.State
	Instance string
	Updated  time.Time
	Worker   cluster.WorkerID
	Region   cluster.Region
	Apart    bool            // it has an address of its own, and is not at that of its worker's host
	KeyMark  cluster.KeyMark // of the Idempotency-Key of its create

	// Read by stewards.
	Replica *machine.Replica // which replica of a service it is; nil: none. Read only
	Ready   bool             // see machine.Machine.Ready
	Died    bool             // it is down unasked, and stays so; see machine.Machine
	Rests   bool             // it is down as somebody asked for that, or was made so, or it was evicted
	Loops   bool             // when it last died that was the fifth time in a short while: see machine.Machine.Loops
	Deaths  int              // how often it died, at most machine.MaxDeaths
	Evicted bool             // its worker has no room for it
	Ended   string           // why it last died, without a full stop; "": it never did
	Unfit   string           // why it is not ready, without a full stop; "": it is, or nothing is known
	Missed  string           // see machine.Machine.Missed, without a full stop
	Exit    *int             // of a run that has ended: its exit code, -1 where nobody saw it. Read only

	// Read by proxies.
	Services []machine.Service // as its config has them, without their checks; read only
	Failing  bool              // a check that requests depend on does not pass
	Cordoned bool              // no request goes there
	From     []string          // other apps whose machines may connect to it; read only
	// CPU is how much of its CPUs it uses, in per cent, where its group is scaled by that; nil: nobody has told.
	CPU *int
	// Load is the number of requests or connections in flight from its worker's proxy to it, as last reported; see
	// Loads.
	Load int

	// Granted is when a grant of this process was answered whose machine the worker has not told of yet. Zero: it has.
	Granted time.Time
}

// keepGranted bounds for how long a machine is believed to exist because a grant said so, while its worker tells
// nothing of it. It is far longer than a worker's word takes to get here.
const keepGranted = time.Minute

// isExpired reports whether the worker should have told of the machine long ago.
func (m *Machine) isExpired() bool {
	return !m.Granted.IsZero() && time.Since(m.Granted) >= keepGranted
}

// Summary returns what a fleet knows of a machine that is known whole.
func Summary(x *machine.Machine) Machine {
	at, _ := time.Parse(time.RFC3339, x.UpdatedAt) // zero where it is none: it only breaks ties
	_, apart := x.OwnAddress()
	return Machine{ID: x.ID, App: x.App, Name: x.Name, State: x.State, Instance: x.InstanceID, Updated: at,
		Worker: x.Worker,
		Region: cluster.Region(x.Region), Apart: apart, KeyMark: x.KeyMark, Services: servicesOf(x),
		Replica: x.Replica, Ready: x.Ready(), Died: x.Died, Rests: x.Rests || x.Preempted != nil, Loops: x.Loops(),
		Deaths: len(x.Deaths), Evicted: x.Preempted != nil, Ended: howEnded(x), Unfit: whyUnfit(x),
		Missed:  whyMissed(x),
		Exit:    exitCode(x),
		Failing: x.Failing(), Cordoned: x.Cordoned, From: x.Config.From()}
}

// exitCode returns the exit code of a run that has ended.
func exitCode(x *machine.Machine) *int {
	if x.Replica == nil || x.Replica.Run == "" {
		return nil
	}
	if e := x.LastExit(); e != nil {
		return &e.ExitCode
	}
	return nil
}

// mostEnded bounds what is told of an end, or of why a machine is not ready, in bytes.
const mostEnded = 160

// whyUnfit returns why a machine of a service is not ready. Nobody reads it of others.
func whyUnfit(x *machine.Machine) string {
	if x.Replica == nil {
		return ""
	}
	return fault.Clip(x.Unfit(), mostEnded)
}

func whyMissed(x *machine.Machine) string {
	if x.Replica == nil {
		return ""
	}
	return fault.Clip(x.Missed(), mostEnded)
}

func howEnded(x *machine.Machine) string {
	if len(x.Deaths) == 0 {
		return ""
	}
	return fault.Clip(strings.TrimPrefix(x.Because(), ": "), mostEnded)
}

func servicesOf(x *machine.Machine) []machine.Service {
	if x.Config == nil {
		return nil
	}
	return x.Config.RoutedServices()
}

// Port returns the port of the machine's first service, 0 where it has none.
func (m *Machine) Port() uint16 {
	if len(m.Services) == 0 {
		return 0
	}
	if p := m.Services[0].InternalPort; p > 0 && p < 1<<16 {
		return uint16(p)
	}
	return 0
}

// LastKnown returns the machine as its worker last told of it, for lists while the worker cannot be asked: without its
// config and its events. silent is for how long it has not been heard; 0: nobody knows.
func (m *Machine) LastKnown(silent time.Duration) *machine.Machine {
	at := m.Updated.UTC().Format(time.RFC3339)
	return &machine.Machine{ID: m.ID, App: m.App, Name: m.Name, State: m.State, Region: string(m.Region),
		InstanceID: m.Instance, Version: m.Instance, Replica: m.Replica, CreatedAt: at, UpdatedAt: at, Worker: m.Worker,
		HostStatus: "unreachable", SilentMS: silent.Milliseconds(), Events: []machine.Event{},
		Config: &machine.Config{}}
}

// Admits reports whether machines of an app may connect to it: what its own rules say, too, of who reaches it directly.
func (m *Machine) Admits(app string) bool { return machine.Admits(m.App, m.From, app) }

// IsOf reports whether a machine stands behind the name of its app, or with a group behind that of the group: runs do
// not, which come and go.
func (m *Machine) IsOf(group string) bool {
	if m.Replica == nil {
		return group == ""
	}
	return m.Replica.Run == "" && (group == "" || m.Replica.Group == group)
}

// Name is the name of a machine in its app.
type Name struct{ App, Name string }

func nameBefore(a, b Name) bool {
	return cmp.Or(cmp.Compare(a.App, b.App), cmp.Compare(a.Name, b.Name)) < 0
}

// byID orders machines by id; workers that claim the same one stand side by side.
func byID(a, b *Machine) bool {
	if a.ID != b.ID {
		return a.ID < b.ID
	}
	return a.Worker < b.Worker
}

// byKey orders machines by their marks, which begin with the hash of the key.
func byKey(a, b *Machine) bool {
	if a.KeyMark != b.KeyMark {
		return a.KeyMark < b.KeyMark
	}
	return byID(a, b)
}

// byName orders machines by app and name. It compares no more than it must: the trees call it tens of times for each
// change.
func byName(a, b *Machine) bool {
	switch {
	case a.App != b.App:
		return a.App < b.App
	case a.Name != b.Name:
		return a.Name < b.Name
	case a.ID != b.ID:
		return a.ID < b.ID
	}
	return a.Worker < b.Worker
}
