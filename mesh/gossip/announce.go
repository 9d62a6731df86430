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
		return nil, fault.Wrap(err, fault.Invalid, codeRecord, "%s %s cannot be told", kind, key)
	}
	return raw, nil
}

// AnnounceNow writes what was announced to the registry, where others find it.
func (c *Cluster) AnnounceNow() { c.announcer.announceWaiting() }

// Announce tells what this worker is now. A record that differs only in its time and version is not told. Like the
// other announcements it hands over and returns: the record is signed, is in this member's own view and goes to the
// others soon after. What is announced before Begin is part of what Begin tells.
func (c *Cluster) Announce(w cluster.Record) error {
	w.Worker = c.o.Self
	raw, err := payloadOf(registry.Worker, string(c.o.Self), w)
	if err == nil && c.announcer.outbox.putWorker(w, raw) {
		wakeLoop(c.announcer.wake)
	}
	return err
}

// AnnounceMachine tells what a machine of this worker is now.
func (c *Cluster) AnnounceMachine(m Machine) error {
	raw, err := payloadOf(registry.Machine, m.ID, m)
	if err == nil {
		c.announcer.outbox.putAnnouncement(announcement{kind: registry.Machine, key: m.ID, schema: schemaMachine,
			payload: raw})
		wakeLoop(c.announcer.wake)
	}
	return err
}

// RemoveMachine tells that a machine of this worker is no more.
func (c *Cluster) RemoveMachine(id string) error {
	c.announcer.outbox.putAnnouncement(announcement{kind: registry.Machine, key: id})
	wakeLoop(c.announcer.wake)
	return nil
}

// signBytes signs what of returns, where the cluster signs. It is called without the registry's lock.
func (c *Cluster) signBytes(of func() []byte) []byte {
	if c.o.Sign == nil {
		return nil
	}
	return c.o.Sign(of())
}

// Begin announces everything this worker has, as its journal knows it: worker may be nil for a member that is none.
// Until then the cluster hears nothing of it. It may be called again to tell all anew.
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
