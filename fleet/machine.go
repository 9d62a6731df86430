package fleet

import (
	"cmp"
	"strings"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Machine is a worker's report of one of its machines: enough to find it, to route to it and to list it. It is
// immutable: a change makes a new one.
type Machine struct {
	ID       string
	App      string
	Name     string
	State    machine.State
	Instance string
	Updated  time.Time
	Worker   cluster.WorkerID
	Region   cluster.Region
	Apart    bool              // it has its own address, not its host's
	KeyMark  cluster.KeyMark   // of the Idempotency-Key of its create
	UnixUser *cluster.UnixUser // see machine.Machine. Read only

	// Read by stewards.
	Replica *machine.Replica // which replica of a service it is; nil: none. Read only
	Ready   bool             // see machine.Machine.Ready
	Died    bool             // it died and is not restarted; see machine.Machine
	Rests   bool             // down on purpose: stopped, never started, or evicted
	Loops   bool             // in a crash loop: see machine.Machine.Loops
	Deaths  int              // how often it died, at most machine.MaxDeaths
	Evicted bool             // evicted: its worker has no room for it
	Ended   string           // why it last died, without a full stop; "": it never did
	Unfit   string           // why it is not ready, without a full stop; "": ready or unknown
	Missed  string           // see machine.Machine.Missed, without a full stop
	Exit    *int             // exit code of a run that has ended; -1: unknown. Read only

	// Read by proxies.
	Services []machine.Service // as its config has them, without their checks; read only
	Failing  bool              // a check that requests depend on does not pass
	Cordoned bool              // it gets no requests
	From     []string          // other apps whose machines may connect to it; read only
	// CPU is how much of its CPUs it uses, in per cent, if its group is scaled by CPU; nil: not reported.
	CPU *int
	// Load is the number of requests or connections in flight from its worker's proxy to it, as last reported; see
	// Loads.
	Load int

	// Granted is when this process's grant of the machine was answered, while the worker has not reported it; zero: it
	// has.
	Granted time.Time
}

// keepGranted bounds how long a machine counts as existing by its grant alone, without a report of its worker. Reports
// take far less time to arrive.
const keepGranted = time.Minute

// isExpired reports whether the worker should have reported the machine long ago.
func (m *Machine) isExpired() bool {
	return !m.Granted.IsZero() && time.Since(m.Granted) >= keepGranted
}

// Summary converts a whole machine to the fleet's form.
func Summary(x *machine.Machine) Machine {
	at, _ := time.Parse(time.RFC3339, x.UpdatedAt) // zero if malformed: it only breaks ties
	_, apart := x.OwnAddress()
	return Machine{ID: x.ID, App: x.App, Name: x.Name, State: x.State, Instance: x.InstanceID, Updated: at,
		Worker: x.Worker,
		Region: cluster.Region(x.Region), Apart: apart, KeyMark: x.KeyMark, UnixUser: x.UnixUser,
		Services: servicesOf(x),
		Replica:  x.Replica, Ready: x.Ready(), Died: x.Died, Rests: x.Rests || x.Preempted != nil, Loops: x.Loops(),
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

// mostEnded bounds the texts Ended and Unfit, in bytes.
const mostEnded = 160

// whyUnfit returns why a machine of a service is not ready; "" for other machines, where it is not used.
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

// Port returns the port of the machine's first service, 0: none.
func (m *Machine) Port() uint16 {
	if len(m.Services) == 0 {
		return 0
	}
	if p := m.Services[0].InternalPort; p > 0 && p < 1<<16 {
		return uint16(p)
	}
	return 0
}

// LastKnown returns the machine as its worker last reported it, without config and events, for lists while the worker
// is unreachable. silent is how long the worker has been silent; 0: unknown.
func (m *Machine) LastKnown(silent time.Duration) *machine.Machine {
	at := m.Updated.UTC().Format(time.RFC3339)
	return &machine.Machine{ID: m.ID, App: m.App, Name: m.Name, State: m.State, Region: string(m.Region),
		InstanceID: m.Instance, Version: m.Instance, Replica: m.Replica, CreatedAt: at, UpdatedAt: at, Worker: m.Worker,
		HostStatus: "unreachable", SilentMS: silent.Milliseconds(), Events: []machine.Event{},
		Config: &machine.Config{}, UnixUser: m.UnixUser}
}

// Admits reports whether machines of an app may connect to this one. Its firewall rules allow the same.
func (m *Machine) Admits(app string) bool { return machine.Admits(m.App, m.From, app) }

// IsOf reports whether the name of its app, or with a group that of the group, includes the machine. Runs of jobs,
// which come and go, are not included.
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

// byID orders machines by id, then worker.
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

// byName orders machines by app and name. It compares as little as possible: the trees call it tens of times per
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
