package lifecycle

import (
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// MaxLease is the longest TTL of a lease.
const MaxLease = 24 * time.Hour

// defaultLease is the TTL of a lease that asks for none.
const defaultLease = 30 * time.Second

// released is the expiry of a lease that its holder released: the nonce is kept.
const released = 0

// leases are the locks on machines, by machine id.
type leases struct {
	*core
	held map[string]machine.Lease
}

func newLeases(c *core) *leases { return &leases{core: c, held: map[string]machine.Lease{}} }

func (s *leases) restoreRecords(d Decoded) error {
	rec := d.rec
	var l machine.Lease
	if err := decodeRecord(rec, &l, "the lease of "+rec.Key); err != nil {
		return err
	}
	s.held[rec.Key] = l
	return nil
}

// currentLease returns the lease in force on a machine.
func (s *leases) currentLease(id string) (machine.Lease, bool) {
	l, ok := s.held[id]
	return l, ok && s.now.Unix() < l.ExpiresAt
}

// checkNonce refuses a change of a machine by anyone but the holder of its lease. A nonce that is not current is an
// error too: its sender wrongly believes to hold the lease. A nonce that its holder released counts as none while no
// other lease has been taken since.
func (s *leases) checkNonce(id, nonce string) error {
	l, held := s.currentLease(id)
	if nonce != "" && s.givenBack(id) == nonce {
		nonce = ""
	}
	if held && nonce == l.Nonce || !held && nonce == "" {
		return nil
	}
	return s.refuseNonce(id, nonce)
}

// refuseNonce returns why a nonce, "" for none, is not the current one.
func (s *leases) refuseNonce(id, nonce string) error {
	l, held := s.currentLease(id)
	switch {
	case held && nonce == "":
		return heldError(id, l)
	case held:
		e := heldError(id, l)
		e.Text += "; the nonce given is not its nonce"
		return e
	}
	return fault.New(fault.Conflict, codeLeaseNonce,
		"the lease nonce given for machine ID %s is not in force: it has expired or was released; take the lease again",
		id)
}

// givenBack returns the nonce of the machine's last lease if its holder released it; "" otherwise.
func (s *leases) givenBack(id string) string {
	if l := s.held[id]; l.ExpiresAt == released {
		return l.Nonce
	}
	return ""
}

func heldError(id string, l machine.Lease) *fault.Error {
	until := time.Unix(l.ExpiresAt, 0).UTC().Format(time.RFC3339)
	return fault.New(fault.Conflict, CodeLeaseHeld,
		"machine ID %s lease currently held by %s, expires at %s", id, l.Owner, until)
}

// changeLease takes, refreshes or releases the lease of a machine.
func (s *leases) changeLease(c LeaseCommand, m *machine.Machine) (machine.Lease, error) {
	ttl := c.TTL
	if ttl == 0 {
		ttl = defaultLease
	}
	l, held := s.currentLease(c.Machine)
	switch {
	case ttl < time.Second || ttl > MaxLease:
		return machine.Lease{}, fault.New(fault.Invalid, fault.CodeTTL,
			"a lease lasts from 1 second to %v; got %v", MaxLease,
			ttl)
	case c.Release && !held:
		return machine.Lease{}, noLease()
	case held && c.Nonce != l.Nonce, !held && c.Nonce != "":
		return machine.Lease{}, s.refuseNonce(c.Machine, c.Nonce)
	case c.Release:
		back := l
		back.ExpiresAt = released
		s.setLease(c.Machine, back)
		return l, nil
	case !held:
		l = machine.Lease{Nonce: s.newToken(), Owner: c.Owner}
	}
	l.Version, l.ExpiresAt = m.InstanceID, s.now.Add(ttl+time.Second-1).Unix()
	s.setLease(c.Machine, l)
	return l, nil
}

func noLease() error { return fault.New(fault.NotFound, CodeLeaseNotFound, "lease not found") }

func (s *leases) setLease(id string, l machine.Lease) {
	s.held[id] = l
	s.putRecord(LeaseBucket, id, l)
	s.out.Sync = true
}

// dropLease ends a machine's lease, if there is one.
func (s *leases) dropLease(id string) {
	if _, ok := s.held[id]; ok {
		delete(s.held, id)
		s.removeRecord(LeaseBucket, id)
	}
}

// Lease takes, refreshes or releases a lease. The answer is durable.
func (s *Supervisor) Lease(now time.Time, ticket uint64, c LeaseCommand) Out {
	s.openOut(now)
	var l machine.Lease
	r, err := s.machines.findMachine(c.App, c.Machine)
	if err == nil {
		l, err = s.leases.changeLease(c, &r.Machine)
	}
	s.out.Replies = append(s.out.Replies, Reply{Ticket: ticket, Lease: l, Err: err})
	return s.closeOut()
}

// CurrentLease returns the current lease; NotFound if there is none.
func (s *Supervisor) CurrentLease(now time.Time, app, id string) (machine.Lease, error) {
	s.now = now
	if _, err := s.machines.findMachine(app, id); err != nil {
		return machine.Lease{}, err
	}
	if l, ok := s.leases.currentLease(id); ok {
		return l, nil
	}
	return machine.Lease{}, noLease()
}
