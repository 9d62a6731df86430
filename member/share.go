package member

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"

	"github.com/soukhq/souk/core/registry"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/mesh/gossip"
	"github.com/soukhq/souk/store/catalog"
)

// schemaRow is the schema version of catalog rows.
const schemaRow = 1

// Share merges the catalog with those of the other members: it imports their rows as far as known here, and announces
// rows that exist only here. Import then follows the changes.
func (m *Member) Share(c *catalog.Catalog) error {
	objects, told := m.cluster.Objects(), map[string]bool{}
	for _, bucket := range catalog.SharedBuckets() {
		for _, o := range objects.All(registry.Kind(bucket)) {
			told[bucket+"/"+o.Key] = true // the object is at least as new as the row
		}
	}
	starting := true
	err := c.Share(catalog.Sharing{
		Put: func(bucket, key string, value []byte) error {
			if starting && told[bucket+"/"+key] {
				return nil
			}
			if value == nil {
				return deleteRow(objects, bucket, key)
			}
			return putRow(objects, bucket, key, value)
		},
		May:  func(bucket string, more int) error { return objects.MayAdd(registry.Kind(bucket), more) },
		Keys: func() [][]byte { return m.identity.GossipKeys().All() },
		Failed: func(bucket, key string, err error) {
			m.o.Log.Error("the other members could not be told", "of", bucket+"/"+key, "err", err)
		},
	})
	starting = false
	if err == nil {
		i := importer{objects: objects, catalog: c, log: m.o.Log, waiting: map[rowKey]bool{}}
		i.importAll()
	}
	return err
}

// Import follows what the other members write, and brings it into the catalog until ctx ends.
func (m *Member) Import(ctx context.Context, c *catalog.Catalog) {
	watch := m.cluster.Watch("catalog", 0)
	defer watch.Close()
	i := importer{objects: m.cluster.Objects(), catalog: c, log: m.o.Log, waiting: map[rowKey]bool{}}
	for {
		changes, resync, err := watch.Next(ctx)
		if err != nil {
			return
		}
		if resync {
			i.importAll()
		} else {
			i.importChanged(changes)
		}
		m.imports.noteReached(watch.Index())
	}
}

// rowKey names a row of the catalog, and the object that carries it between members.
type rowKey struct{ bucket, key string }

// importer writes other members' objects into a catalog, one by one.
type importer struct {
	objects gossip.Objects
	catalog *catalog.Catalog
	log     *slog.Logger
	waiting map[rowKey]bool // rows that wait for a missing piece, or for another row, as a secret for its app
}

// importAll imports every object that differs from the catalog.
func (i *importer) importAll() {
	clear(i.waiting)
	for _, bucket := range catalog.SharedBuckets() {
		var rows []rowKey
		for _, o := range i.objects.All(registry.Kind(bucket)) {
			rows = append(rows, rowKey{bucket, o.Key})
		}
		for some := range slices.Chunk(rows, mostTogether) {
			i.importRows(some)
		}
	}
	i.retryWaiting()
}

// importChanged imports the changed objects, and then the rows that waited for them.
func (i *importer) importChanged(changes []registry.Change) {
	some := false
	var rows []rowKey
	for _, x := range changes {
		switch {
		case x.Owner != "":
			continue
		case x.Kind == kindPiece:
			some = some || len(i.waiting) > 0
			continue
		case !slices.Contains(catalog.SharedBuckets(), string(x.Kind)):
			continue
		}
		rows = append(rows, rowKey{string(x.Kind), x.Key})
		some = true
	}
	i.importRows(rows)
	if some {
		i.retryWaiting()
	}
}

// mostTogether bounds the rows imported in one transaction, since other writers of the catalog wait meanwhile.
const mostTogether = 256

// importRows imports rows, in order.
func (i *importer) importRows(rows []rowKey) {
	if len(rows) == 0 {
		return
	}
	err := i.catalog.ImportMany(func(one catalog.Importing) {
		for _, row := range rows {
			i.importRow(one, row)
		}
	})
	if err != nil {
		i.log.Error("what other members wrote could not be written here", "err", err)
	}
}

func (i *importer) importRow(one catalog.Importing, row rowKey) {
	lacks := false
	err := one(row.bucket, row.key, func() ([]byte, bool) {
		o, there := i.objects.Newest(registry.Kind(row.bucket), row.key)
		if !there || o.Deleted {
			return nil, there
		}
		value, whole := joinPieces(i.objects, row.bucket, o)
		lacks = !whole
		return value, whole
	})
	delete(i.waiting, row)
	if lacks || fault.Is(err, fault.NotFound) || fault.Is(err, fault.Precondition) {
		i.waiting[row] = true
	}
	if err != nil {
		i.log.Debug("a row of another member is not imported", "row", row.bucket+"/"+row.key, "err", err)
	}
}

// retryWaiting imports rows that waited, which is rare: their object overtook another that they depend on.
func (i *importer) retryWaiting() {
	byKey := func(a, b rowKey) int { return cmp.Compare(a.key, b.key) }
	i.importRows(slices.SortedFunc(maps.Keys(i.waiting), byKey))
}
