package member

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/mesh/gossip"
	"github.com/soukhq/souk/mesh/pki"
	"github.com/soukhq/souk/mesh/wire"
)

// KindRemoved is the kind of objects that name removed members: cluster.Removal by the member's id. The cluster rejects
// the certificates that such a member had; one that joins again gets a younger one, and is accepted.
const KindRemoved = "removed"

const schemaRemoved = 1

// clockSlack is how long before it is issued a certificate's validity begins, to allow for differing clocks.
const clockSlack = time.Hour

// remover is the member in its part of applying removals.
type remover struct{ *Member }

// readRemovals reads the removals. If one is unreadable, all certificates of its member are rejected.
func (m remover) readRemovals() {
	all := map[string]cluster.Removal{}
	for _, o := range m.cluster.Objects().List(KindRemoved) {
		var r cluster.Removal
		if err := json.Unmarshal(o.Payload, &r); err != nil || r.At.IsZero() {
			r = cluster.Removal{At: time.Unix(1<<40, 0)}
		}
		r.Member = cluster.WorkerID(o.Key)
		all[o.Key] = r
	}
	m.removals.Store(&all)
}

// removalOf returns the removal of a member, if any.
func (m *Member) removalOf(id string) (cluster.Removal, bool) {
	r, removed := (*m.removals.Load())[id]
	return r, removed
}

// isDenied reports whether a certificate of id that began at since precedes the member's removal.
func (m *Member) isDenied(id string, since time.Time) bool {
	r, removed := m.removalOf(id)
	return removed && !since.Add(clockSlack).After(r.At)
}

// deniedAt returns a function that reports whether a peer's certificate is denied, for wire servers and clients.
func deniedAt(m *Member) func(wire.Peer) bool {
	return func(p wire.Peer) bool { return m.isDenied(p.ID, p.Since) }
}

// Removed lists the removed members that have not joined again, by id.
func (m *Member) Removed() []cluster.Removal {
	return slices.DeleteFunc(remover{m}.removalList(), func(r cluster.Removal) bool { return !m.removedFor(r.Member) })
}

// IsRemoved reports whether a member was removed and has not joined again.
func (m *Member) IsRemoved(id cluster.WorkerID) bool { return m.removedFor(id) }

// removalList lists all removals by id, including those of members that joined again.
func (m remover) removalList() []cluster.Removal {
	all := *m.removals.Load()
	out := make([]cluster.Removal, 0, len(all))
	for _, id := range slices.Sorted(maps.Keys(all)) {
		out = append(out, all[id])
	}
	return out
}

// Remove writes that a member may not come back. All members then reject it, and forget its reports once it is silent.
// Without force it refuses to remove a live member, whose machines would go on without anyone to control them, and a
// member that is unknown here.
func (m *Member) Remove(r cluster.Removal, force bool) error {
	id := r.Member
	switch {
	case !pki.ValidID(string(id)):
		return fault.New(fault.Invalid, fault.CodeID, "%q cannot be a member's id", id)
	case id == m.ID():
		return fault.New(fault.Precondition, codeSelf,
			"%s is the member that was asked; ask another one to remove it, or let it leave", id)
	case !force && !remover{m}.heardOf(id):
		return fault.New(fault.NotFound, codeMemberNotFound,
			"no member %s is known here; if it may still have a certificate, remove it with force", id)
	}
	if s := m.stateOf(id); (s == cluster.MemberAlive || s == cluster.MemberSuspect) && !force {
		return fault.New(fault.Precondition, gossip.CodeAlive,
			"member %s is %s; drain it and let it leave first (souk node drain, souk agent leave there), or use force",
			id, s)
	}
	// The removal must be later than the member's incarnation, even if clocks differ.
	old, _ := m.removalOf(string(id))
	for _, begun := range []time.Time{old.Rejoined, time.Unix(int64(m.cluster.Incarnation(id)&(1<<40-1)), 0)} {
		if begun.After(r.At) && begun.Sub(r.At) < maxAhead {
			r.At = begun
		}
	}
	return remover{m}.writeRemoval(r)
}

// maxAhead bounds how far ahead of this member's clock the moments of removals and certificates may be.
const maxAhead = clockSlack / 2

func (m remover) writeRemoval(r cluster.Removal) error {
	raw, err := json.Marshal(r)
	if err != nil {
		return fault.Wrap(err, fault.Internal, fault.CodeRemoved, "the removal of %s cannot be written", r.Member)
	}
	if _, err := m.cluster.Objects().Put(KindRemoved, string(r.Member), schemaRemoved, raw); err != nil {
		return err
	}
	m.refresh()
	return nil
}

// heardOf reports whether a member was ever known: by gossip, by an earlier run, which saved the members, or by the CA
// if it is here.
func (m remover) heardOf(id cluster.WorkerID) bool {
	if _, shown := m.fleet.Snapshot().Worker(id); shown || m.stateOf(id) != "" || m.hasReported(id) ||
		slices.Contains(m.cluster.Expected(), id) {
		return true
	}
	if m.issuer == nil {
		return false
	}
	all, err := m.issuer.Issued()
	return err == nil && slices.ContainsFunc(all, func(g pki.Grantee) bool { return g.ID == string(id) })
}

// readmitting is the CA for members that were removed: a new certificate begins after the removal, even within the same
// second, so that it is not rejected as an old one; and the removal then says that the member has joined again.
type readmitting struct {
	*pki.CA
	m *Member
}

// Redeem is the CA's Redeem.
func (s readmitting) Redeem(now time.Time, secret string, n pki.Name, csr []byte) (pki.Credentials, error) {
	r, removed := s.m.removalOf(n.ID)
	if !removed {
		return s.CA.Redeem(now, secret, n, csr)
	}
	if next := r.At.Truncate(time.Second).Add(time.Second); now.Before(next) {
		if next.Sub(now) > maxAhead {
			return pki.Credentials{}, fault.New(fault.Precondition, codeClock,
				"member %s was removed on %s, which is yet to come by the clock here; set the clocks, then remove it "+
					"again", n.ID, r.At.UTC().Format(time.RFC3339))
		}
		now = next
	}
	if r.Rejoined.IsZero() { // free its id now, in case forgetRemoved has not run yet
		if err := s.CA.Forget(n.ID); err != nil {
			return pki.Credentials{}, err
		}
	}
	out, err := s.CA.Redeem(now, secret, n, csr)
	if err == nil && r.Rejoined.IsZero() {
		r.Rejoined = now
		err = remover{s.m}.writeRemoval(r)
	}
	return out, err
}

// Unfit returns why this member must not be relied on; nil: it may. A removed member learns of its removal by gossip,
// or from an issuer if gossip does not reach it.
func (m *Member) Unfit() error {
	r, removed := m.removalOf(string(m.ID()))
	removed = removed && m.isDenied(string(m.ID()), m.identity.Begins())
	if why := m.twins.whyTwin(); why != "" && !m.twins.isDisplaced() {
		return fault.New(fault.Precondition, fault.CodeTwin, "%s", why)
	}
	if !removed && !m.outcast.Load() {
		return nil
	}
	if m.twins.isDisplaced() {
		return fault.New(fault.Precondition, fault.CodeRemoved,
			"the id %s belongs to another host, as declared on %s by %s (%s): this host accepts and starts nothing, "+
				"and no other member can reach the machines that run here; let it join again with another id (souk "+
				"token join), or end its agent", m.ID(), r.At.UTC().Format(time.RFC3339), cmp.Or(r.By, "somebody"),
			cmp.Or(r.Reason, "no reason given"))
	}
	why := ""
	if removed {
		why = fmt.Sprintf(", on %s by %s (%s)", r.At.UTC().Format(time.RFC3339), cmp.Or(r.By, "somebody"),
			cmp.Or(r.Reason, "no reason given"))
	}
	return fault.New(fault.Precondition, fault.CodeRemoved,
		"member %s was removed from the cluster%s: the other members refuse it, and cannot reach the machines that "+
			"run here; let it join again (souk token join --id %s, then souk join), or end its agent",
		m.ID(), why, m.ID())
}

// stateOf returns a member's state in gossip; "": unknown.
func (m *Member) stateOf(id cluster.WorkerID) cluster.MemberState {
	x, _ := m.cluster.Member(id)
	return x.State
}

func (m *Member) hasReported(id cluster.WorkerID) bool {
	for _, k := range m.cluster.Known() {
		if k.Owner == id {
			return true
		}
	}
	return false
}

// forgetRemoved drops the reports of removed members once they are gone, and frees their ids at the CA. Of a member
// that joined again it drops only the reports from before.
func (m remover) forgetRemoved() {
	for _, r := range m.removalList() {
		m.dropUnverified(r)
		s, told := m.stateOf(r.Member), m.cluster.Incarnation(r.Member)
		if s == cluster.MemberAlive || s == cluster.MemberSuspect || m.forgotten[r.Member].Equal(r.At) ||
			told > incarnationAt(r.At) || told == 0 && !r.Rejoined.IsZero() {
			continue
		}
		if err := m.cluster.Forget(r.Member); err != nil {
			continue // it has become alive meanwhile
		}
		m.unshow(r.Member)
		if m.issuer != nil && r.Rejoined.IsZero() {
			if err := m.issuer.Forget(string(r.Member)); err != nil {
				m.o.Log.Warn("a removed member's id could not be freed", "member", r.Member, "err", err)
				continue
			}
		}
		m.forgotten[r.Member] = r.At
	}
}

// dropUnverified drops reports signed with a rejected certificate of a member that joined again: they could block the
// new ones for ever. It repeats this for some seconds, since such reports may still be in transit.
func (m remover) dropUnverified(r cluster.Removal) {
	if r.Rejoined.IsZero() || r.Member == m.ID() {
		return
	}
	first, looked := m.rechecked[r.Member]
	if !looked || !first.at.Equal(r.At) {
		first = rechecks{at: r.At, since: time.Now()}
		m.rechecked[r.Member] = first
	}
	if time.Since(first.since) < recheckTime && m.cluster.Recheck(r.Member) {
		m.o.Log.Info("what a member told with a certificate that is refused is dropped, and told anew", "member",
			r.Member)
	}
}

// rechecks says that the reports of a member removed at a time are rechecked since another.
type rechecks struct{ at, since time.Time }

// recheckTime is how long such reports are rechecked.
const recheckTime = 10 * time.Second

// removedFor reports whether a worker counts as removed: it was removed, and has not joined again, so it is neither
// shown nor asked. It has joined again if an issuer wrote so, or if its incarnation belongs to a newer certificate: see
// firstIncarnation. Whether it is reachable does not matter: a member that joined again and died may have running
// machines.
func (m *Member) removedFor(id cluster.WorkerID) bool {
	r, removed := m.removalOf(string(id))
	return removed && r.Rejoined.IsZero() && m.hasOldWord(id)
}

// hasOldWord reports whether all known reports of a member are from before its removal.
func (m *Member) hasOldWord(id cluster.WorkerID) bool {
	r, removed := m.removalOf(string(id))
	return removed && m.cluster.Incarnation(id) <= incarnationAt(r.At)
}

// incarnationAt returns the incarnation that corresponds to a time: its Unix seconds.
func incarnationAt(t time.Time) uint64 { return uint64(max(0, t.Unix())) }

// firstIncarnation returns the least incarnation for this member's certificate. So a member that joined again after it
// lost its disk starts beyond its old reports, which the others have dropped and reject.
func (m *Member) firstIncarnation() uint64 {
	return incarnationAt(m.identity.Begins().Add(clockSlack))
}

// Members lists all members, including removed ones as long as gossip remembers them.
func (m *Member) Members() []cluster.Member {
	all := m.cluster.Members()
	for i := range all {
		all[i].Removed = m.removedFor(all[i].ID) || all[i].Self && m.outcast.Load()
	}
	return all
}

// Parts returns the age of each worker's last report.
func (m *Member) Parts() []gossip.Part { return m.cluster.View().Parts }

// LastMachines returns the machines that a worker last reported.
func (m *Member) LastMachines(worker cluster.WorkerID) (out []gossip.Machine) {
	for _, x := range m.cluster.Machines("") {
		if x.Worker == worker {
			out = append(out, x)
		}
	}
	return out
}

// Hello asks another member for its identity.
func (m *Member) Hello(ctx context.Context, id cluster.WorkerID) (wire.Greeting, error) {
	if f, known := m.Other(id); known {
		return f.Hello(ctx)
	}
	return wire.Greeting{}, fault.New(fault.NotFound, codeMemberNotFound, "no member %s is known here", id)
}

// Calls counts this member's calls to others over the wire, one round trip each, by method.
func (m *Member) Calls() map[string]uint64 { return m.client.Calls() }

// Expiry returns when this member's certificate and the roots expire.
func (m *Member) Expiry() []pki.Warning { return m.identity.Expiry(m.o.Now()) }

// leaveTime bounds the announcement of a leaving.
const leaveTime = 3 * time.Second

// Leave announces the leaving to the other members and calls Options.Left. The machines go on running.
func (m *Member) Leave(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, leaveTime)
	defer cancel()
	err := m.cluster.Leave(ctx)
	if m.o.Left != nil {
		m.o.Left()
	}
	return err
}
