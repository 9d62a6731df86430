package gossip

import (
	"time"

	"github.com/soukhq/souk/registry"
)

// Objects are what any member may write: apps, policies, cordons. They are on disk here before Put returns, and with the
// others shortly after. Secrets belong in them only encrypted: carriers read everything.
type Objects struct{ c *Cluster }

// Objects gives them.
func (c *Cluster) Objects() Objects { return Objects{c} }

// Put writes a whole object. schema is the version of the payload's shape.
func (o Objects) Put(kind registry.Kind, key string, schema uint32, payload []byte) (registry.Object, error) {
	return o.write(func(now time.Time) (registry.Object, error) {
		return o.c.reg.PutObject(now, kind, key, schema, payload, o.c.o.Sign)
	})
}

// Delete writes that an object is gone.
func (o Objects) Delete(kind registry.Kind, key string) error {
	_, err := o.write(func(now time.Time) (registry.Object, error) { return o.c.reg.DeleteObject(now, kind, key, o.c.o.Sign) })
	return err
}

func (o Objects) write(f func(time.Time) (registry.Object, error)) (registry.Object, error) {
	c := o.c
	c.mu.Lock()
	x, err := f(time.Now())
	if err == nil {
		err = c.disk.append(true, x)
	}
	c.changed()
	c.mu.Unlock()
	if err != nil {
		return registry.Object{}, err
	}
	if raw := registry.EncodeDelta(registry.Delta{Objects: []registry.Object{x}}); len(raw) <= messageSize {
		select {
		case <-c.ready:
			c.spread(raw, c.o.Knobs.Push)
		default: // whoever we join will pull it
		}
	} // a larger one is pulled: the answer to the next probe shows that there is something
	return x, nil
}

// Get gives an object.
func (o Objects) Get(kind registry.Kind, key string) (registry.Object, bool) {
	o.c.mu.Lock()
	defer o.c.mu.Unlock()
	return o.c.reg.Object(kind, key)
}

// List gives the objects of a kind, by key.
func (o Objects) List(kind registry.Kind) []registry.Object {
	o.c.mu.Lock()
	defer o.c.mu.Unlock()
	return o.c.reg.Objects(kind, false)
}

// All gives the objects of a kind by key, deleted ones too.
func (o Objects) All(kind registry.Kind) []registry.Object {
	o.c.mu.Lock()
	defer o.c.mu.Unlock()
	return o.c.reg.Objects(kind, true)
}

// keep writes objects that others wrote to disk, without waiting for it. It is called with the lock.
func (c *Cluster) keep(objs []registry.Object) {
	for _, x := range objs {
		if err := c.disk.append(false, x); err != nil {
			c.o.Log.Error("an object could not be kept on disk", "kind", x.Kind, "key", x.Key, "err", err)
			return
		}
	}
}
