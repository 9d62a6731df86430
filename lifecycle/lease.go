package lifecycle

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fsm"
	"github.com/soukhq/souk/machine"
)

// MaxLease is the longest a lease can be taken for.
const MaxLease = 24 * time.Hour

// defaultLease is what a lease without a time gets.
const defaultLease = 30 * time.Second

// lease gives the lease in force on a machine.
func (s *Supervisor) lease(id string) (machine.Lease, bool) {
	l, ok := s.leases[id]
	return l, ok && s.now.Unix() < l.ExpiresAt
}

// checkLease refuses a change of a machine by anyone but the holder of its lease. A nonce that is not in force is an
// error of its own: who sends one believes to be alone, and is not.
func (s *Supervisor) checkLease(id, nonce string) error {
	l, held := s.lease(id)
	switch {
	case held && nonce == l.Nonce, !held && nonce == "":
		return nil
	case held && nonce == "":
		return heldError(id, l)
	case held:
		e := heldError(id, l)
		e.Text += "; the nonce given is not its nonce"
		return e
	}
	return fault.New(fault.Conflict, "lease_nonce", "the lease nonce given for machine ID %s is not in force: it has expired or was released; take the lease again", id)
}

func heldError(id string, l machine.Lease) *fault.Error {
	e := fault.New(fault.Conflict, "lease_held", "machine ID %s lease currently held by %s, expires at %s", id, l.Owner, time.Unix(l.ExpiresAt, 0).UTC().Format(time.RFC3339))
	return e
}

// CurrentLease gives the lease in force; NotFound when there is none.
func (s *Supervisor) CurrentLease(now time.Time, app, id string) (machine.Lease, error) {
	s.now = now
	if _, err := s.find(app, id); err != nil {
		return machine.Lease{}, err
	}
	if l, ok := s.lease(id); ok {
		return l, nil
	}
	return machine.Lease{}, fault.New(fault.NotFound, "lease_not_found", "lease not found")
}

// Lease takes, refreshes or releases a lease. The answer is durable.
func (s *Supervisor) Lease(now time.Time, ticket uint64, c LeaseCommand) Out {
	s.open(now)
	l, err := s.changeLease(c)
	s.out.Replies = append(s.out.Replies, Reply{Ticket: ticket, Lease: l, Err: err})
	return s.close()
}

func (s *Supervisor) changeLease(c LeaseCommand) (machine.Lease, error) {
	r, err := s.find(c.App, c.Machine)
	if err != nil {
		return machine.Lease{}, err
	}
	ttl := c.TTL
	if ttl == 0 {
		ttl = defaultLease
	}
	l, held := s.lease(c.Machine)
	switch {
	case ttl < time.Second || ttl > MaxLease:
		return machine.Lease{}, fault.New(fault.Invalid, "ttl", "a lease lasts from 1 second to %v; got %v", MaxLease, ttl)
	case c.Release && !held:
		return machine.Lease{}, fault.New(fault.NotFound, "lease_not_found", "lease not found")
	case held && c.Nonce != l.Nonce, !held && c.Nonce != "":
		return machine.Lease{}, s.checkLease(c.Machine, c.Nonce)
	case c.Release:
		s.unlease(c.Machine)
		s.out.Sync = true
		return l, nil
	case !held:
		l = machine.Lease{Nonce: s.token(), Owner: c.Owner}
	}
	l.Version, l.ExpiresAt = r.Machine.InstanceID, s.now.Add(ttl+time.Second-1).Unix()
	s.putLease(c.Machine, l)
	return l, nil
}

func (s *Supervisor) putLease(id string, l machine.Lease) {
	b, err := json.Marshal(l)
	if err != nil {
		panic("lifecycle: a lease does not encode: " + err.Error()) // plain data: cannot happen
	}
	s.leases[id] = l
	s.out.Records = append(s.out.Records, fsm.Record{Bucket: LeaseBucket, Key: id, Value: b})
	s.out.Sync = true
}

func (s *Supervisor) unlease(id string) {
	if _, ok := s.leases[id]; ok {
		delete(s.leases, id)
		s.out.Records = append(s.out.Records, fsm.Record{Bucket: LeaseBucket, Key: id})
	}
}

// token makes 128 bits that cannot be guessed, given that the source cannot.
func (s *Supervisor) token() string {
	return fmt.Sprintf("%016x%016x", s.rand.Uint64(), s.rand.Uint64())
}
