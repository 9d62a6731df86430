package lifecycle

import (
	"cmp"
	"slices"
	"time"

	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// grantMachine makes a machine, or answers with the one that is there. A halted worker refuses it by its ledger, like
// a cordoned one, so that the buyer goes on to another worker.
func (s *commands) grantMachine(ticket uint64, g Grant) error {
	id, app := g.Request.Machine, g.Request.App
	if err := checkOrder(nil, g.Replica); err != nil {
		return err
	}
	if err := s.terms.obeyTerm(app, g.Term); err != nil {
		return err
	}
	if r := s.rows[id]; r != nil {
		return s.grantedBefore(ticket, r, app)
	}
	if err := s.engine.Free(machineKey(id)); err != nil { // left over from a machine that the journal has lost
		return err
	}
	l := g.Launch
	if l == nil || l.Config == nil || !machine.ValidID(id) || app == "" {
		return fault.New(fault.Invalid, machine.CodeConfig, "a machine needs an id, an app and a config")
	}
	if err := s.checkName(app, l.Name); err != nil {
		return err
	}
	if err := s.volumes.checkMounts(app, id, l.Config.Mounts); err != nil {
		return err
	}
	req := g.Request
	req.Start, req.Wakes = !l.SkipLaunch, l.Config.Wakes()
	if err := s.refuseApart(g.Replica); err != nil {
		return err
	}
	if no := s.networkClauses(id, app, l.Config, g.Connection); len(no) > 0 {
		return market.Refuse(s.seller, s.now, req, no)
	}
	if g.Evict && req.Start {
		evicted, err := s.evictions.claimByEviction(req, g.Hold)
		if err != nil {
			return err
		}
		return s.createMachine(ticket, g, evicted)
	}
	if err := s.seller.Grant(s.now, req, g.Hold, req.Start); err != nil {
		return err
	}
	return s.createMachine(ticket, g, nil)
}

// grantedBefore answers a repeated grant whose machine exists.
func (s *commands) grantedBefore(ticket uint64, r *row, app string) error {
	switch {
	case r.Machine.App != app:
		return fault.New(fault.Conflict, fault.CodeIDInUse, "machine id %s is in use; choose another", r.Machine.ID)
	case r.isDestroyed() && !r.Launched && r.Failure != "": // the buyer has not received the failure
		if err := r.Machine.LaunchError(); err != nil {
			return err
		}
		return fault.New(fault.Precondition, machine.CodeLaunchFailed, "%s", r.Failure)
	case s.runOf(r.Machine.ID) != nil:
		s.waiters.addWaiter(machineKey(r.Machine.ID), ticket, "")
	default:
		s.replyTo(ticket, r, "", nil)
	}
	return nil
}

// createMachine adds the machine and begins its operation; evicted are the machines and tasks that make room for it.
func (s *commands) createMachine(ticket uint64, g Grant, evicted []machine.Preemption) error {
	r := s.enterMachine(g)
	if err := s.beginCreate(r, g, evicted); err != nil {
		return err
	}
	s.waiters.addWaiter(machineKey(r.Machine.ID), ticket, "")
	return nil
}

func (s *commands) beginCreate(r *row, g Grant, evicted []machine.Preemption) error {
	a := opArgs{Source: g.Source, Grace: defaultGrace, NewID: g.NewID}
	op, evicting := opCreate, opCreateEvict
	if !machine.IsHostImage(g.Launch.Config.Image) {
		op, evicting = opCreateImage, opCreateImageEvict
	}
	switch {
	case len(evicted) > 0:
		return s.evictions.launchEvicting(r, evicting, a, machine.Creating, evicted)
	case g.Launch.SkipLaunch:
		return s.beginOperation(r, op, a)
	}
	return s.beginLaunch(r, op, a, machine.Creating)
}

// enterMachine makes the row of a granted machine.
func (s *commands) enterMachine(g Grant) *row {
	l, id := g.Launch, g.Request.Machine
	r := &row{Want: g.Request.Resources, SkipSecrets: l.SkipSecrets, Attached: l.Attach,
		Namespace: g.Request.Namespace}
	instance := s.newULID()
	r.Machine = machine.Machine{
		ID: id, Name: l.Name, App: g.Request.App, State: machine.Creating, Region: g.Region,
		InstanceID: instance, Version: instance,
		ImageRef: machine.ParseImage(l.Config.Image), PrivateIP: g.Connection.addressOr(),
		CreatedAt: formatTime(s.now), Config: l.Config,
		HostStatus: "ok", Cordoned: l.SkipServiceRegistration, Worker: s.seller.Record(s.now).Worker,
		Placement:  g.Placement,
		Scheduling: l.Scheduling, KeyMark: g.KeyMark, Replica: g.Replica, Rests: l.SkipLaunch, UnixUser: l.UnixUser,
	}
	if r.Machine.Name == "" {
		r.Machine.Name = s.freeName(g.Request.App)
	}
	s.rows[id] = r
	s.names[fullName{r.Machine.App, r.Machine.Name}] = id
	for _, v := range r.mountedVolumes() {
		s.volumes.attachTo(v, id)
	}
	r.ScheduleAt = nextSchedule(l.Config.Schedule, s.now)
	s.writeEvent(r, "launch", machine.Created, g.Source, machine.MadeText(l.Config))
	s.warnInEvents(r, machine.Warnings(l.Config))
	s.warnInEvents(r, machine.PortWarnings(l.Config))
	if r.schedulingTerms().Lent {
		s.setUnpaid(id, true, "namespace "+r.payingNamespace()+" cannot pay for it now")
	}
	if l.LeaseTTL > 0 {
		s.leases.setLease(id, machine.Lease{Nonce: s.newToken(), Owner: "the creator", Version: instance,
			ExpiresAt: s.now.Add(time.Duration(l.LeaseTTL) * time.Second).Unix()})
	}
	return r
}

// Grant makes a machine. The reply comes when it has started (or been made, with SkipLaunch), or has failed. A
// repeated grant with the same ID and app returns the existing machine: nothing is made twice.
func (s *Supervisor) Grant(now time.Time, ticket uint64, g Grant) Out {
	s.openOut(now)
	if err := s.commands.grantMachine(ticket, g); err != nil {
		s.replyTo(ticket, nil, "", err)
	}
	return s.closeOut()
}

// Connection is the runtime's answer about the network that a config asks for (runtime.Connector).
type Connection struct {
	Address string           // of the machine's own; "": it shares its host's
	No      []machine.Clause // why the network cannot be had, or the machine not run as its owner
}

// hostAddress is the address of a machine that shares its host's network.
const hostAddress = "127.0.0.1"

func (c Connection) addressOr() string { return cmp.Or(c.Address, hostAddress) }

// networkClauses returns all reasons against the network of a machine's config: those of the runtime, and ports of the
// host that another machine here has. A machine keeps its ports as long as it exists, so that it can be started again.
func (s *commands) networkClauses(id, app string, c *machine.Config, to Connection) []machine.Clause {
	no := slices.Clone(to.No)
	for _, port := range s.portsInUse(id, app, c.HostPorts()) { // replaces the runtime's clause: it names the machine
		no = slices.DeleteFunc(no, func(c machine.Clause) bool {
			return c.Code == port.Code && c.Wanted == port.Wanted
		})
		no = append(no, port)
	}
	slices.SortFunc(no, func(a, b machine.Clause) int {
		return cmp.Or(cmp.Compare(a.Code, b.Code), cmp.Compare(a.Wanted, b.Wanted))
	})
	return no
}

// portsInUse returns a clause for each of ports that another machine here has.
func (s *commands) portsInUse(id, app string, ports []machine.Publish) []machine.Clause {
	if len(ports) == 0 {
		return nil
	}
	by := make([]*row, len(ports)) // for each port, the machine that has it, the one with the lowest ID
	for _, other := range s.rows {
		if other.Machine.ID == id || other.isDestroyed() {
			continue
		}
		theirs := other.hostPorts()
		for i, p := range ports {
			if slices.ContainsFunc(theirs, p.Overlaps) &&
				(by[i] == nil || other.Machine.ID < by[i].Machine.ID) {
				by[i] = other
			}
		}
	}
	var no []machine.Clause
	for i, p := range ports {
		if by[i] != nil {
			no = append(no, machine.Clause{Code: placement.CodePort, Wanted: p.String() + " free",
				Had: describePublisher(by[i], app, p)})
		}
	}
	return no
}

// describePublisher describes to an app the machine with a port that overlaps p, and names that port if it differs
// from p.
func describePublisher(r *row, app string, p machine.Publish) string {
	who, what := "a machine of another app", "it"
	if r.Machine.App == app {
		who = "machine " + r.Machine.ID
	}
	for _, c := range r.possibleConfigs() {
		theirs := c.HostPorts()
		i := slices.IndexFunc(theirs, p.Overlaps)
		if i < 0 {
			continue
		}
		if o := theirs[i]; o.At() != p.At() {
			what = o.String()
		}
		if c.OnHostPorts() {
			return who + " that has a service at " + what
		}
		break
	}
	return who + " that publishes " + what
}

// refuseNetwork returns the error for an update to a config whose network cannot be had.
func refuseNetwork(id string, no []machine.Clause) error {
	if len(no) == 0 {
		return nil
	}
	code := fault.CodeNetwork
	if no[0].Code == placement.CodePort {
		code = fault.CodePortInUse
	}
	return fault.New(fault.Conflict, code, "machine %s was not changed, because its worker cannot give it that "+
		"network: %s", id, placement.VerdictText(placement.Verdict{Failing: no}))
}
