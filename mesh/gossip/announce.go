package gossip

import (
	"encoding/json"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/registry"
	"github.com/soukhq/souk/fault"
)

func payloadOf(kind registry.Kind, key string, v any) ([]byte, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, fault.Wrap(err, fault.Invalid, codeRecord, "the %s %s cannot be encoded as JSON", kind, key)
	}
	return raw, nil
}

// AnnounceNow writes the waiting announcements to the registry at once, so that other members find them there.
func (c *Cluster) AnnounceNow() { c.announcer.announceWaiting() }

// Announce publishes this worker's current record. A record that differs from the last one only in time and version is
// not published. Announce only enters the record in the outbox and returns; the announcer then signs it, puts it in
// this member's own view and broadcasts it. A record announced before Begin is covered by Begin.
func (c *Cluster) Announce(w cluster.Record) error {
	w.Worker = c.o.Self
	raw, err := payloadOf(registry.Worker, string(c.o.Self), w)
	if err == nil && c.announcer.outbox.putWorker(w, raw) {
		wakeLoop(c.announcer.wake)
	}
	return err
}

// AnnounceMachine publishes the current state of a machine of this worker.
func (c *Cluster) AnnounceMachine(m Machine) error {
	raw, err := payloadOf(registry.Machine, m.ID, m)
	if err == nil {
		c.announcer.outbox.putAnnouncement(announcement{kind: registry.Machine, key: m.ID, schema: schemaMachine,
			payload: raw})
		wakeLoop(c.announcer.wake)
	}
	return err
}

// RemoveMachine publishes that a machine of this worker is gone.
func (c *Cluster) RemoveMachine(id string) error {
	c.announcer.outbox.putAnnouncement(announcement{kind: registry.Machine, key: id})
	wakeLoop(c.announcer.wake)
	return nil
}

// signBytes signs the bytes that of returns, or returns nil in a cluster that does not sign. Call it without the
// registry's lock.
func (c *Cluster) signBytes(of func() []byte) []byte {
	if c.o.Sign == nil {
		return nil
	}
	return c.o.Sign(of())
}

// Begin announces everything this worker has according to its journal. worker is nil for a member that is not a worker.
// Before Begin the cluster knows nothing of this worker. A second call announces everything again.
func (c *Cluster) Begin(worker *cluster.Record, machines []Machine) error {
	var recs []registry.Record
	add := func(kind registry.Kind, key string, schema uint32, v any) error {
		raw, err := payloadOf(kind, key, v)
		recs = append(recs, registry.Record{Kind: kind, Key: key, Schema: schema, Payload: raw})
		return err
	}
	var said cluster.Record
	if worker != nil {
		said = *worker
		if err := add(registry.Worker, string(c.o.Self), schemaWorker, worker); err != nil {
			return err
		}
	}
	for _, m := range machines {
		if err := add(registry.Machine, m.ID, schemaMachine, m); err != nil {
			return err
		}
	}
	c.announcer.writer.Lock()
	defer c.announcer.writer.Unlock()
	c.announcer.outbox.beginAnew(said)
	return c.announcer.beginIncarnation(recs, 0)
}
