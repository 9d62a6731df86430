package broker

import (
	"strconv"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Intent says that machines are to be made, and for what. At most one of Gang, Bid, Replaces
// and Replica is set.
type Intent struct {
	App      string
	Launch   *machine.Launch // checked and filled in; it is not changed
	Key      string          // an Idempotency-Key, "" for none
	NewKey   bool            // the client says that it has not sent the key before
	Drawn    time.Time       // when the client says it drew the key; zero: unknown
	Gang     *Gang           // several machines of the launch that start together or not at all
	Bid      *Bid            // a grant at a worker that an outside scheduler chose
	Replaces *Machine        // the machine is to take the place of this one
	Replica  *Replica        // the machine is this replica of a service
	// At is the only worker that may get the machines; "": any. It is not kept with them: later they may move
	// elsewhere.
	At cluster.WorkerID

	why string // the decision's reason; "": decision.Create
}

// Gang says how many machines start together.
type Gang struct {
	Size int
	Min  int           // that must start; 0: all
	Same string        // a worker attribute that must be equal for all members
	Wait time.Duration // for how long to go on trying; 0: one try
}

// MaxGangWait bounds how long a gang goes on trying.
const MaxGangWait = time.Hour

// Valid returns why a launch cannot be a gang; nil: it can.
func (g *Gang) Valid(l *machine.Launch) error {
	switch {
	case g.Size < 1 || g.Size > market.MaxGang || g.Min < 0 || g.Min > g.Size:
		return fault.New(fault.Invalid, fault.CodeGang,
			"a gang has 1 to %d machines, of which min (0 to size) must start; got size %d and min %d", market.MaxGang,
			g.Size, g.Min)
	case g.Same != "" && !cluster.ValidAttribute(g.Same):
		return fault.New(fault.Invalid, fault.CodeGang, "same names an attribute of workers, such as rack; got %q",
			clipText(g.Same, 60))
	case !(g.Wait >= 0 && g.Wait <= MaxGangWait):
		return fault.New(fault.Invalid, fault.CodeGang, "wait is 0 to %v seconds; got %v", MaxGangWait.Seconds(),
			g.Wait.Seconds())
	case len(l.Config.Mounts) > 0:
		return fault.New(fault.Invalid, fault.CodeGang,
			"a volume can be mounted by one machine only, so the launch of a gang has no mounts")
	}
	return nil
}

// Bid is a grant that a scheduler outside of souk asks of a worker.
type Bid struct {
	Worker cluster.WorkerID
	Hold   string // the token of a hold to redeem, "" for none
	Evict  bool   // machines of lower rank may be evicted
	Reason string // a sentence for souk explain
}

// Replica says which replica of a service a machine will be, and in which steward's term it is made.
type Replica struct {
	machine.Replica
	Term cluster.Term // the steward's; a worker that has seen a later term refuses
	// Booked is the worker that holds room for it under Token: this worker is asked first. "": no worker holds room.
	Booked cluster.WorkerID
	Token  string
}

// Machine is a machine and the worker that has it.
type Machine struct {
	*machine.Machine
	At Worker

	stopped time.Time // when it was stopped for the order that replaces it; zero: it was not
}

// Placed is the result of an intent.
type Placed struct {
	Machines []*machine.Machine // of a gang in the order of their ranks
	Gang     string             // its id
	Tries    int                // how often a gang was tried
	Refusals []string           // why workers refused a gang
}

// Order is an intent on its way through the steps of Place.
type Order struct {
	Intent
	AppID     string
	Purchases []*Purchase
	Gone      <-chan struct{} // closed when the caller has gone away

	gang     string // the gang's id
	tries    int
	refusals []string
	strategy Strategy
	name     string            // of the strategy
	releases []func()          // give back the order's claims
	gone     []string          // rehearsal: machines that are taken out before
	ahead    float64           // rehearsal: credits an hour of the machines placed before
	occupied cluster.Resources // rehearsal: what those machines occupy
	capped   string            // the namespace that pays, if it has a cap
	err      error             // its outcome
}

// Purchase is one machine of an order: its request and its outcome. The same Request is judged, granted and recorded.
type Purchase struct {
	market.Purchase
	Launch  *machine.Launch  // the purchase's own
	Shadow  *machine.Shadow  // what the shadow policy would have chosen
	Machine *machine.Machine // once it is made
	fresh   bool             // its id was drawn for this order, so no machine can have it
	keyed   bool             // a key is bound to it, so a client may repeat the create
	drawn   bool             // its name was drawn for this order
	mark    cluster.KeyMark  // the mark of the order's key
	replica *Replica         // nil: no replica of a service
	asked   time.Time        // when the search for a worker began
	overCap bool             // the last worker asked refused it for the namespace's quota
	came    cluster.Creation // NotMade until a worker is asked; IsMade: it existed before

	record *recorder
}

// openOrder makes the order of an intent, for an app that takes new machines.
func (b *Broker) openOrder(in Intent) (*Order, error) {
	id, err := b.apps.OpenApp(in.App)
	if err != nil {
		return nil, err
	}
	o := b.newOrder(in)
	o.AppID = id
	return o, nil
}

// newOrder makes a purchase for each machine of an intent, and gives it an id.
func (b *Broker) newOrder(in Intent) *Order {
	o := &Order{Intent: in}
	n := 1
	if in.Gang != nil {
		n = in.Gang.Size
		o.gang = b.newHoldToken()
	}
	for i := range n {
		l := *in.Launch
		p := &Purchase{Launch: &l, came: cluster.NotMade}
		if in.Replaces != nil {
			p.mark = in.Replaces.KeyMark
		}
		switch {
		case l.ID == "" || in.Gang != nil:
			l.ID, p.fresh = machine.NewID(b.rand), true
		case in.Replica != nil:
			p.fresh = true
		}
		p.replica = in.replicaOf()
		if l.Name != "" && n > 1 {
			l.Name += "-" + strconv.Itoa(i)
		}
		p.Request.App, p.Request.Machine = in.App, l.ID
		o.Purchases = append(o.Purchases, p)
	}
	return o
}

// releaseClaims gives back the order's claims.
func (o *Order) releaseClaims() {
	for i := len(o.releases) - 1; i >= 0; i-- {
		o.releases[i]()
	}
}

// shareOut copies the common fields into every purchase; they differ only in their ids.
func (o *Order) shareOut() {
	first := &o.Purchases[0].Request
	for _, p := range o.Purchases[1:] {
		id := p.Request.Machine
		p.Request = *first
		p.Request.Machine = id
	}
}

// renameMachine gives a purchase another id, if the machine with the first id was undone.
func (p *Purchase) renameMachine(id string) { p.Launch.ID, p.Request.Machine = id, id }

// grantRequest is what a worker is asked to make. token names a hold to redeem; "": none.
func (p *Purchase) grantRequest(why *machine.Placement, region cluster.Region, token string,
	evict bool) lifecycle.Grant {
	why.Shadow = p.Shadow
	g := lifecycle.Grant{Request: p.Request, Launch: p.Launch, Placement: why, Region: string(region), Hold: token,
		Evict: evict, Source: machine.SourceUser, NewID: p.fresh && !p.keyed, KeyMark: p.mark}
	if p.replica != nil {
		g.Replica = &p.replica.Replica
		if !p.replica.Term.IsZero() {
			g.Term = &p.replica.Term
		}
	}
	return g
}

// replicaOf returns which replica the machine of an intent is; nil: none. The successor of a replica's machine is the
// next machine of its slot.
func (in *Intent) replicaOf() *Replica {
	if in.Replaces == nil || in.Replaces.Replica == nil {
		return in.Replica
	}
	next := *in.Replaces.Replica
	next.Epoch++
	return &Replica{Replica: next}
}

// setPlannedFleet gives a request that was planned together with others its view of the fleet.
func (p *Purchase) setPlannedFleet(f placement.Fleet) {
	if f.Affinity != nil || f.Spread != nil {
		p.Request.Fleet = f
	}
}

// viewedRecord returns what the view of the purchase says of a worker.
func (p *Purchase) viewedRecord(w cluster.WorkerID) (rec cluster.Record) {
	for i := range p.View.Workers {
		if p.View.Workers[i].Worker == w {
			return p.View.Workers[i]
		}
	}
	return rec
}
