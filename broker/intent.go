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
	Drawn    time.Time       // when the client drew the key, as it says; zero: nobody knows
	Gang     *Gang           // several machines of the launch that start together or not at all
	Bid      *Bid            // at a worker that somebody else has chosen
	Replaces *Machine        // the machine is to take the place of this one
	Replica  *Replica        // it is one of a service's, which no other order makes
	// At is the only worker that may have the machines; "": any may. It is no term of their own: later they may go
	// elsewhere.
	At cluster.WorkerID

	why string // what the decision is made for; "": decision.Create
}

// Gang says how many machines start together.
type Gang struct {
	Size int
	Min  int           // that must start; 0: all
	Same string        // an attribute that must have one value on all their workers
	Wait time.Duration // for how long to go on trying; 0: one try
}

// MaxGangWait bounds how long a gang goes on trying.
const MaxGangWait = time.Hour

// Valid returns why a gang of a launch cannot be.
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

// Bid is a grant asked of a worker by a scheduler outside of souk.
type Bid struct {
	Worker cluster.WorkerID
	Hold   string // the token of a hold to redeem, "" for none
	Evict  bool   // machines of lower rank may be evicted
	Reason string // a sentence for souk explain
}

// Replica says which replica of a service a machine is to be, and in whose term.
type Replica struct {
	machine.Replica
	Term cluster.Term // of the service's steward; a worker that has obeyed a later one refuses
	// Booked is the worker that holds room for it under Token: it is asked first. "": none holds any.
	Booked cluster.WorkerID
	Token  string
}

// Machine is a machine and the worker that has it.
type Machine struct {
	*machine.Machine
	At Worker

	stopped time.Time // when it was stopped for the order that replaces it; zero: it was not
}

// Placed is what came of an intent.
type Placed struct {
	Machines []*machine.Machine // of a gang in the order of their ranks
	Gang     string             // its id
	Tries    int                // of a gang
	Refusals []string           // of a gang
}

// Order is an intent on its way through the steps of Place.
type Order struct {
	Intent
	AppID     string
	Purchases []*Purchase
	Gone      <-chan struct{} // closed when who asked has gone away

	gang     string // its id
	tries    int
	refusals []string
	strategy Strategy
	name     string            // of the strategy
	releases []func()          // what the order has claimed
	gone     []string          // machines that are gone by then: of a rehearsal
	ahead    float64           // credits an hour of the machines that are made before: of a rehearsal
	occupied cluster.Resources // what those occupy
	capped   string            // the namespace that pays, where what it may occupy has a cap
	err      error             // what it ended with
}

// Purchase is one machine of an order: what is asked for, and what has come of it. Its request is the only one there
// is: it is judged, granted and recorded.
type Purchase struct {
	market.Purchase
	Launch  *machine.Launch  // the purchase's own
	Shadow  *machine.Shadow  // what the policy that only watches would have chosen
	Machine *machine.Machine // once it is made
	fresh   bool             // its id was drawn for this order: nobody else can have a machine of it
	keyed   bool             // a key leads to it, so that it may be asked for again
	drawn   bool             // so was its name
	mark    cluster.KeyMark  // of the order's key
	replica *Replica         // nil: it is none
	asked   time.Time        // since when a worker is looked for
	overCap bool             // the last worker that was asked refused it for its namespace's quota
	came    cluster.Creation // NotMade until a worker is asked to make it; IsMade: there was one already

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

// releaseClaims gives back what the order has claimed.
func (o *Order) releaseClaims() {
	for i := len(o.releases) - 1; i >= 0; i-- {
		o.releases[i]()
	}
}

// shareOut enters in every purchase what is the same for all: they differ in their ids alone.
func (o *Order) shareOut() {
	first := &o.Purchases[0].Request
	for _, p := range o.Purchases[1:] {
		id := p.Request.Machine
		p.Request = *first
		p.Request.Machine = id
	}
}

// renameMachine gives a purchase another id, where the machine that had the first was undone.
func (p *Purchase) renameMachine(id string) { p.Launch.ID, p.Request.Machine = id, id }

// grantRequest is what a worker is asked to make. The token is of a hold to be redeemed, "" for none.
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

// replicaOf returns which replica the machine of an intent is; nil: none. One that takes the place of a replica is the
// next machine of its slot.
func (in *Intent) replicaOf() *Replica {
	if in.Replaces == nil || in.Replaces.Replica == nil {
		return in.Replica
	}
	next := *in.Replaces.Replica
	next.Epoch++
	return &Replica{Replica: next}
}

// setPlannedFleet enters what a request knows of the fleet that was planned together with others.
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
