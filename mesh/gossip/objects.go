package gossip

import (
	"time"

	"github.com/soukhq/souk/core/registry"
)

// Objects are records that any member may write: apps, policies, cordons. They are on this member's disk before Put
// returns, and reach the others shortly after. Put secrets in them only encrypted: every member can read every object.
type Objects struct{ c *Cluster }

// Objects returns the cluster's objects.
func (c *Cluster) Objects() Objects { return Objects{c} }

// Put writes a whole object. schema is the version of the payload's shape.
func (o Objects) Put(kind registry.Kind, key string, schema uint32, payload []byte) (registry.Object, error) {
	c := o.c
	c.mu.Lock()
	x, changed, err := c.reg.DraftObject(time.Now(), kind, key, schema, payload)
	c.mu.Unlock()
	if err != nil || !changed {
		return x, err
	}
	return o.writeObject(x)
}

// MayAdd returns why this member cannot write n more objects of a kind, nil if it can.
func (o Objects) MayAdd(kind registry.Kind, n int) error {
	o.c.mu.Lock()
	defer o.c.mu.Unlock()
	return o.c.reg.MayAdd(kind, n)
}

// Delete writes an object's deletion.
func (o Objects) Delete(kind registry.Kind, key string) error {
	c := o.c
	c.mu.Lock()
	x, err := c.reg.DraftObjectDelete(time.Now(), kind, key)
	c.mu.Unlock()
	if err == nil {
		_, err = o.writeObject(x)
	}
	return err
}

// Amend writes an object in another encoding with the same meaning. Its stamp is only just newer than the old one, so a
// concurrent change of the object wins.
func (o Objects) Amend(old registry.Object, payload []byte) error {
	old.Stamp.Count++
	old.Stamp.Writer, old.Payload, old.Sig = o.c.o.Self, payload, nil
	_, err := o.writeObject(old)
	return err
}

// writeObject signs a draft, applies it, waits until it is synced, and broadcasts it.
func (o Objects) writeObject(x registry.Object) (registry.Object, error) {
	c := o.c
	if c.o.May != nil {
		if err := c.o.May(x); err != nil {
			return registry.Object{}, err
		}
	}
	x.Sig = c.signBytes(x.SigningBytes)
	c.mu.Lock()
	_, err := c.reg.ApplyObject(time.Now(), x)
	c.afterChange()
	c.mu.Unlock()
	if err == nil {
		err = c.keeper.putObject(x)
	}
	if err != nil {
		return registry.Object{}, err
	}
	if raw := registry.EncodeDelta(registry.Delta{Objects: []registry.Object{x}}); len(raw) <= messageSize {
		c.dissemination.publishBodies(raw)
	} // members pull a larger one: the next probe shows that the hashes differ
	return x, nil
}

// Adopt signs an object anew with this member's key, because the signature of its writer is about to become invalid.
// The content stays the same, and any later write wins.
func (o Objects) Adopt(x registry.Object) error {
	x.Stamp.Count++
	x.Stamp.Writer = o.c.o.Self
	_, err := o.writeObject(x)
	return err
}

// Get returns an object.
func (o Objects) Get(kind registry.Kind, key string) (registry.Object, bool) {
	o.c.mu.Lock()
	defer o.c.mu.Unlock()
	return o.c.reg.Object(kind, key)
}

// Newest returns the last version of an object, also if that is a deletion.
func (o Objects) Newest(kind registry.Kind, key string) (registry.Object, bool) {
	o.c.mu.Lock()
	defer o.c.mu.Unlock()
	return o.c.reg.Newest(kind, key)
}

// List returns the objects of a kind, by key.
func (o Objects) List(kind registry.Kind) []registry.Object {
	o.c.mu.Lock()
	defer o.c.mu.Unlock()
	return o.c.reg.Objects(kind, false)
}

// All returns the objects of a kind by key, deleted ones too.
func (o Objects) All(kind registry.Kind) []registry.Object {
	o.c.mu.Lock()
	defer o.c.mu.Unlock()
	return o.c.reg.Objects(kind, true)
}

// keepObjects queues other members' objects for the disk, without waiting.
func (c *Cluster) keepObjects(objs []registry.Object) { c.keeper.keepObjects(objs, c.allObjects) }

// allObjects returns the objects that belong in the file of objects.
func (c *Cluster) allObjects() []registry.Object {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reg.Objects("", true)
}
