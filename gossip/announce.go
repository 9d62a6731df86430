package gossip

import (
	"encoding/json"
	"reflect"
	"sync"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/registry"
)

// announcement is a record of ours that is to be told.
type announcement struct {
	kind    registry.Kind
	key     string
	schema  uint32
	payload []byte // nil: the thing is gone
}

type recordKey struct {
	kind registry.Kind
	key  string
}

// outbox is what this worker has announced and the announcer has not written yet: of each record the newest. Announcing
// waits for neither a signature nor the registry.
type outbox struct {
	mu      sync.Mutex
	said    cluster.Record // as last announced
	waiting map[recordKey]announcement
	order   []recordKey // in which they were first announced
}

func (b *outbox) put(a announcement) {
	k := recordKey{a.kind, a.key}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.enter(k, a)
}

// enter is called with the lock.
func (b *outbox) enter(k recordKey, a announcement) {
	if _, waits := b.waiting[k]; !waits {
		b.order = append(b.order, k)
	}
	if b.waiting == nil {
		b.waiting = map[recordKey]announcement{}
	}
	b.waiting[k] = a
}

// worker enters the worker's record, unless it says what the last one said.
func (b *outbox) worker(w cluster.Record, payload []byte) (news bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if sameButTime(b.said, w) {
		return false
	}
	b.said = w
	b.enter(recordKey{registry.Worker, string(w.Worker)},
		announcement{kind: registry.Worker, key: string(w.Worker), schema: schemaWorker, payload: payload})
	return true
}

// take empties the outbox.
func (b *outbox) take() (out []announcement) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, k := range b.order {
		out = append(out, b.waiting[k])
	}
	b.waiting, b.order = nil, nil
	return out
}

// begin empties the outbox: all is told anew, with this worker's record among it.
func (b *outbox) begin(said cluster.Record) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.said, b.waiting, b.order = said, nil, nil
}

func sameButTime(a, b cluster.Record) bool {
	a.At, a.Version = b.At, b.Version
	return reflect.DeepEqual(a, b)
}

func payloadOf(kind registry.Kind, key string, v any) ([]byte, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, fault.Wrap(err, fault.Invalid, "record", "%s %s cannot be told", kind, key)
	}
	return raw, nil
}

// Announce tells what this worker is now. A record that differs only in its time and version is not told. Like the other
// announcements it hands over and returns: the record is signed, is in this member's own view and goes to the others soon
// after. What is announced before Begin is part of what Begin tells.
func (c *Cluster) Announce(w cluster.Record) error {
	w.Worker = c.o.Self
	raw, err := payloadOf(registry.Worker, string(c.o.Self), w)
	if err == nil && c.outbox.worker(w, raw) {
		poke(c.toAnnounce)
	}
	return err
}

// AnnounceMachine tells what a machine of this worker is now.
func (c *Cluster) AnnounceMachine(m Machine) error {
	raw, err := payloadOf(registry.Machine, m.ID, m)
	if err == nil {
		c.outbox.put(announcement{kind: registry.Machine, key: m.ID, schema: schemaMachine, payload: raw})
		poke(c.toAnnounce)
	}
	return err
}

// RemoveMachine tells that a machine of this worker is no more.
func (c *Cluster) RemoveMachine(id string) error {
	c.outbox.put(announcement{kind: registry.Machine, key: id})
	poke(c.toAnnounce)
	return nil
}

// announce writes what waits in the outbox to the registry.
func (c *Cluster) announce() {
	c.writer.Lock()
	defer c.writer.Unlock()
	for _, a := range c.outbox.take() {
		if err := c.write(a); err != nil {
			c.o.Log.Error("the cluster could not be told", "kind", a.kind, "key", a.key, "err", err)
		}
	}
	c.mu.Lock()
	c.changed()
	c.mu.Unlock()
	poke(c.toFlush)
}

// write writes one record of ours. It is called with the writer's lock, so that the draft stays the newest while it is signed.
func (c *Cluster) write(a announcement) error {
	c.mu.Lock()
	draft := func() (registry.Record, bool, error) {
		if a.payload == nil {
			return c.reg.DraftDelete(a.kind, a.key)
		}
		return c.reg.Draft(a.kind, a.key, a.schema, a.payload)
	}
	rec, changed, err := draft()
	c.mu.Unlock()
	if err != nil || !changed {
		return err
	}
	rec.Sig = c.sign(rec.SigningBytes)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reg.Commit(time.Now(), rec)
}

// sign signs what of returns, where the cluster signs. It is called without the registry's lock.
func (c *Cluster) sign(of func() []byte) []byte {
	if c.o.Sign == nil {
		return nil
	}
	return c.o.Sign(of())
}

// Begin announces everything this worker has, as its journal knows it: worker may be nil for a member that is none. Until
// then the cluster hears nothing of it. It may be called again to tell all anew.
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
	c.writer.Lock()
	defer c.writer.Unlock()
	c.outbox.begin(said)
	return c.begin(recs, 0)
}

// begin starts an incarnation that is greater than all we know of, and durable before it is used. It is called with the
// writer's lock.
func (c *Cluster) begin(recs []registry.Record, atLeast uint64) error {
	inc := max(c.o.Incarnation, c.keeper.incarnation()+1, atLeast)
	c.mu.Lock()
	if k, ok := c.reg.Owner(c.o.Self); ok {
		inc = max(inc, k.Incarnation+1)
	}
	c.mu.Unlock()
	if err := c.keeper.begun(inc); err != nil {
		return err
	}
	recs = registry.Numbered(c.o.Self, inc, recs)
	for i := range recs {
		recs[i].Sig = c.sign(recs[i].SigningBytes)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.reg.Own(time.Now(), inc, recs); err != nil {
		return err
	}
	c.begun = true
	c.changed()
	poke(c.toFlush)
	return nil
}

// contestEvery bounds how often we begin anew because somebody else speaks as us: twins of one id would outbid each other.
const contestEvery = 5 * time.Second

// mindContest begins anew when somebody was heard speaking as us: ourselves, before an old disk came back, most likely.
func (c *Cluster) mindContest() {
	c.writer.Lock()
	defer c.writer.Unlock()
	c.mu.Lock()
	inc, mine := c.reg.Contested(), c.reg.Mine()
	due := inc > 0 && time.Since(c.mended) >= contestEvery
	if due {
		c.mended = time.Now()
	}
	c.mu.Unlock()
	if !due {
		return
	}
	c.o.Log.Warn("somebody else has announced records of this worker; all is told anew", "incarnation", inc+1)
	if err := c.begin(mine, inc+1); err != nil {
		c.o.Log.Error("this worker's records could not be told anew", "err", err)
	}
}
