package gossip

import (
	"time"

	"github.com/soukhq/souk/core/registry"
)

// Objects are what any member may write: apps, policies, cordons. They are on disk here before Put returns, and with
// the others shortly after. Secrets belong in them only encrypted: carriers read everything.
type Objects struct{ c *Cluster }

// Objects returns them.
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

// MayAdd says why this member cannot write n more objects of a kind; nil: it can.
func (o Objects) MayAdd(kind registry.Kind, n int) error {
	o.c.mu.Lock()
	defer o.c.mu.Unlock()
	return o.c.reg.MayAdd(kind, n)
}

// Delete writes that an object is gone.
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

// Amend writes an object anew that says the same in another way. It is only just newer than what it was made of, so
// whoever has changed the object meanwhile wins.
func (o Objects) Amend(old registry.Object, payload []byte) error {
	old.Stamp.Count++
	old.Stamp.Writer, old.Payload, old.Sig = o.c.o.Self, payload, nil
	_, err := o.writeObject(old)
	return err
}

// writeObject signs a draft, takes it in, waits until it is on the platter, and tells the others.
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
	} // a larger one is pulled: the answer to the next probe shows that there is something
	return x, nil
}

// Adopt has this member stand in for an object that somebody else wrote, whose signature will not be believed much
// longer. It stays what it was, and any later write of it wins.
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

// Newest returns what was last written of an object, also that it is gone.
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

// keepObjects has objects that others wrote kept on disk, without waiting for it.
func (c *Cluster) keepObjects(objs []registry.Object) { c.keeper.keepObjects(objs, c.allObjects) }

// allObjects returns what the file of objects should have.
func (c *Cluster) allObjects() []registry.Object {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reg.Objects("", true)
}
