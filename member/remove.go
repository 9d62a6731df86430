package member

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/gossip"
	"github.com/soukhq/souk/pki"
	"github.com/soukhq/souk/wire"
)

// KindRemoved is the kind of objects that name members which may not come back with the certificate they have:
// gateway.Removed by the member's id. One that joins anew has a younger certificate, and is let in.
const KindRemoved = "removed"

const schemaRemoved = 1

// clockSlack is how much younger than the removal a certificate must be: certificates begin that much before they are
// made.
const clockSlack = time.Hour

// readRemovals reads who was removed. What cannot be read lets nothing of the member in.
func (m *Member) readRemovals() {
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

// removal gives what is written of a member that was removed.
func (m *Member) removal(id string) (cluster.Removal, bool) {
	r, removed := (*m.removals.Load())[id]
	return r, removed
}

// denied says whether a certificate of id that began at since is one of before the member's removal.
func (m *Member) denied(id string, since time.Time) bool {
	r, removed := m.removal(id)
	return removed && !since.Add(clockSlack).After(r.At)
}

// Removed lists the members that may not come back, by id.
func (m *Member) Removed() []cluster.Removal {
	all := *m.removals.Load()
	out := make([]cluster.Removal, 0, len(all))
	for _, id := range slices.Sorted(maps.Keys(all)) {
		out = append(out, all[id])
	}
	return out
}

// Remove writes that a member may not come back. All members then refuse it and forget what it told, once it is not
// heard of any more. A member that is alive is refused without force: its machines would go on, and nobody could ask
// for them.
func (m *Member) Remove(r cluster.Removal, force bool) error {
	id := r.Member
	switch {
	case !pki.ValidID(string(id)):
		return fault.New(fault.Invalid, "id", "%q cannot be a member's id", id)
	case id == m.ID():
		return fault.New(fault.Precondition, "self",
			"%s is the member that was asked; ask another one to remove it, or let it leave", id)
	case m.stateOf(id) == "" && !m.hasReported(id):
		return fault.New(fault.NotFound, "member_not_found", "no member %s is known here", id)
	}
	if s := m.stateOf(id); (s == cluster.MemberAlive || s == cluster.MemberSuspect) && !force {
		return fault.New(fault.Precondition, "alive",
			"member %s is %s; drain it and let it leave first (souk node drain, souk agent leave there), or use force",
			id, s)
	}
	raw, err := json.Marshal(r)
	if err != nil {
		return fault.Wrap(err, fault.Internal, "removed", "the removal of %s cannot be written", id)
	}
	if _, err := m.cluster.Objects().Put(KindRemoved, string(id), schemaRemoved, raw); err != nil {
		return err
	}
	m.refresh()
	return nil
}

// stateOf tells whether a member can be heard; "" where none of the id is known.
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

// forget drops what removed members told, once they are gone, and lets their ids be taken anew where certificates are
// signed. A member that has joined anew is alive again, and is left alone.
func (m *Member) forget() {
	for _, r := range m.Removed() {
		s := m.stateOf(r.Member)
		if s == cluster.MemberAlive || s == cluster.MemberSuspect || m.forgotten[r.Member].Equal(r.At) {
			continue
		}
		if err := m.cluster.Forget(r.Member); err != nil {
			continue // it has come alive meanwhile
		}
		if m.issuer != nil {
			if err := m.issuer.Forget(string(r.Member)); err != nil {
				m.o.Log.Warn("a removed member's id could not be freed", "member", r.Member, "err", err)
				continue
			}
		}
		m.forgotten[r.Member] = r.At
	}
}

// removedFor says whether nothing of a worker is to be shown, nor anything asked of it: it was removed, and has not
// joined anew. One that did is heard, and has told something as of its newer certificate: see born.
func (m *Member) removedFor(id cluster.WorkerID) bool {
	r, removed := m.removal(string(id))
	if !removed {
		return false
	}
	s := m.stateOf(id)
	return s != cluster.MemberAlive && s != cluster.MemberSuspect ||
		m.cluster.Incarnation(id) <= uint64(max(0, r.At.Unix()))
}

// born gives the incarnation that a member with its certificate begins with at least. One that joined anew after its
// disk was lost so begins beyond all that it told before, which the others have forgotten and refuse.
func (m *Member) born() uint64 {
	return uint64(max(0, m.identity.Ends().Add(-pki.CertificateLife).Unix()))
}

// Members lists all members.
func (m *Member) Members() []cluster.Member { return m.cluster.Members() }

// Parts says how old what is known of each worker is.
func (m *Member) Parts() []gossip.Part { return m.cluster.View().Parts }

// LastMachines gives the machines that a worker has told all of.
func (m *Member) LastMachines(worker cluster.WorkerID) (out []gossip.Machine) {
	for _, x := range m.cluster.Machines("") {
		if x.Worker == worker {
			out = append(out, x)
		}
	}
	return out
}

// Hello asks another member who it is.
func (m *Member) Hello(ctx context.Context, id cluster.WorkerID) (wire.Greeting, error) {
	for _, f := range m.Others() {
		if f.id == id {
			return f.Hello(ctx)
		}
	}
	return wire.Greeting{}, fault.New(fault.NotFound, "member_not_found", "no member %s is known here", id)
}

// Calls counts what this member has asked others over the wire, a round trip each, by what was asked.
func (m *Member) Calls() map[string]uint64 { return m.client.Calls() }

// Expiry tells when this member's certificate and the roots end.
func (m *Member) Expiry() []pki.Warning { return m.identity.Expiry(m.o.Now()) }

// leaveTime bounds a goodbye.
const leaveTime = 3 * time.Second

// Leave says goodbye to the other members and calls Options.Left. The machines go on running.
func (m *Member) Leave(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, leaveTime)
	defer cancel()
	err := m.cluster.Leave(ctx)
	if m.o.Left != nil {
		m.o.Left()
	}
	return err
}
