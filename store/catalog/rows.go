package catalog

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/fault"
)

// table is one bucket of the catalog in memory. Callers of load and of a change's apply hold write and mu, all others
// hold one of them.
type table interface {
	// load adds a row of the catalog's own journal.
	load(key string, value []byte) error
	// accept returns the change for a row that another member wrote. It refuses one that no member can have written;
	// same: the row is here already.
	accept(key string, value []byte) (x change, same bool, err error)
	// has reports whether a row exists.
	has(key string) bool
	// remove returns the change that removes a row, whether it exists or not.
	remove(key string) change
}

// rows is a table whose rows are independent of each other.
type rows[T any] struct {
	bucket string
	all    map[string]T
	check  func(key string, row T) error // validates a row that another member wrote
	kept   func(row T) T                 // returns the part of a row that is stored
	seen   func(key string, row T)       // called with each row that is added
	left   func(key string)              // called with the key of each row that is removed
}

func newRows[T any](bucket string, check func(string, T) error) *rows[T] {
	return &rows[T]{bucket: bucket, all: map[string]T{}, check: check, kept: func(row T) T { return row },
		seen: func(string, T) {}, left: func(string) {}}
}

func (t *rows[T]) enter(key string, row T) {
	t.all[key] = t.kept(row)
	t.seen(key, row)
}

// put returns the change that stores a row.
func (t *rows[T]) put(key string, row T) change {
	return change{fsm.Record{Bucket: t.bucket, Key: key, Value: encode(row)}, func() { t.enter(key, row) }}
}

func (t *rows[T]) load(key string, value []byte) error {
	var row T
	err := json.Unmarshal(value, &row)
	t.enter(key, row)
	return err
}

func (t *rows[T]) accept(key string, value []byte) (x change, same bool, err error) {
	var row T
	if err = json.Unmarshal(value, &row); err == nil {
		err = t.check(key, row)
	}
	if err != nil {
		return x, false, unusable(err, t.bucket, key)
	}
	x = t.put(key, row)
	if old, there := t.all[key]; there && bytes.Equal(encode(old), x.record.Value) {
		return x, true, nil // except for fields of a newer souk, which this one ignores
	}
	x.record.Value = value // including fields that only a newer souk knows
	return x, false, nil
}

func (t *rows[T]) has(key string) bool {
	_, there := t.all[key]
	return there
}

func (t *rows[T]) remove(key string) change {
	return change{fsm.Record{Bucket: t.bucket, Key: key}, func() {
		delete(t.all, key)
		t.left(key)
	}}
}

// sorted returns the rows by key.
func (t *rows[T]) sorted() []T {
	out := make([]T, 0, len(t.all))
	for _, key := range slices.Sorted(maps.Keys(t.all)) {
		out = append(out, t.all[key])
	}
	return out
}

// onlyKey returns the check function of a table with a single row.
func onlyKey[T any](want string) func(string, T) error {
	return func(key string, _ T) error { return named(key, want) }
}

// named refuses a row whose key does not match its value.
func named(key, want string) error {
	if key == want {
		return nil
	}
	return fault.New(fault.Invalid, fault.CodeCatalog, "the key of the row is not %q", fault.Clip(want, 80))
}

// unusable returns the error for an unusable row of another member.
func unusable(err error, bucket, key string) error {
	return fault.Wrap(err, fault.Invalid, fault.CodeCatalog,
		"the row %s/%s of another member cannot be used", bucket, fault.Clip(key, 80))
}

func encode(row any) []byte {
	raw, err := json.Marshal(row)
	if err != nil {
		panic("catalog: a row is not JSON: " + err.Error())
	}
	return raw
}
