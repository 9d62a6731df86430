package member

import (
	"context"

	"github.com/soukhq/souk/gateway"
	"github.com/soukhq/souk/registry"
)

// schemaRow is the version of the shape of a catalog's rows.
const schemaRow = 1

// Share makes the catalog one with those of the other members: what they wrote, as far as it is known here, is imported
// first, and what is only here is told. Import then follows.
func (m *Member) Share(c *gateway.Catalog) error {
	objects, told := m.cluster.Objects(), map[string]bool{}
	for _, bucket := range gateway.SharedBuckets() {
		for _, o := range objects.All(registry.Kind(bucket)) {
			told[bucket+"/"+o.Key] = true // its object is at least as new as the row, wherever it was written
		}
	}
	starting := true
	err := c.Share(gateway.Sharing{
		Put: func(bucket, key string, value []byte) error {
			if starting && told[bucket+"/"+key] {
				return nil
			}
			if value == nil {
				return objects.Delete(registry.Kind(bucket), key)
			}
			_, err := objects.Put(registry.Kind(bucket), key, schemaRow, value)
			return err
		},
		Keys: func() [][]byte { return m.identity.GossipKeys().All() },
		Failed: func(bucket, key string, err error) {
			m.o.Log.Error("the other members could not be told", "of", bucket+"/"+key, "err", err)
		},
	})
	starting = false
	if err == nil {
		m.importAll(c)
	}
	return err
}

// Import follows what the other members write, and brings it into the catalog until ctx ends.
func (m *Member) Import(ctx context.Context, c *gateway.Catalog) {
	watch := m.cluster.Watch("catalog", 0)
	defer watch.Close()
	for {
		changes, resync, err := watch.Next(ctx)
		if err != nil {
			return
		}
		if resync {
			m.importAll(c)
			continue
		}
		for _, x := range changes {
			if x.Owner == "" {
				m.importAll(c) // a row may wait for another: a secret for its app
				break
			}
		}
	}
}

// importAll imports every object that is not the catalog's already.
func (m *Member) importAll(c *gateway.Catalog) {
	for _, bucket := range gateway.SharedBuckets() {
		for _, o := range m.cluster.Objects().All(registry.Kind(bucket)) {
			value := o.Payload
			if o.Deleted {
				value = nil
			}
			if err := c.Import(bucket, o.Key, value); err != nil {
				m.o.Log.Debug("a row of another member is not imported", "row", bucket+"/"+o.Key, "err", err)
			}
		}
	}
}
