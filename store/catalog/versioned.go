package catalog

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"weak"

	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/fault"
)

// versioned is a row in a format that a newer souk may extend. A row that this souk does not understand completely is
// stored as written and not used: a release whose config has an unknown field would make wrong machines.
type versioned[T any] struct {
	row *T // nil: this souk cannot use it, or it is packed
	// packed is the compact form from which the row is decoded on demand; nil: it is in row.
	packed *packed[T]
	// of is the decoded input. A table drops it once the row is usable, to save memory for its many rows.
	of *written
}

// written is the result of decoding a row.
type written struct {
	newer  error  // why only a newer souk can use the row
	broken error  // why no souk can use it
	raw    []byte // as it was written
	sum    string // the ID of raw
}

// packed is a row that takes little memory while it is not used.
type packed[T any] struct {
	raw  []byte
	mu   sync.Mutex
	read weak.Pointer[T] // the decoded row, if a user still holds it
}

func (p *packed[T]) open() *T {
	p.mu.Lock()
	defer p.mu.Unlock()
	row := p.read.Value()
	if row == nil {
		row = new(T)
		if err := json.Unmarshal(p.raw, row); err != nil {
			panic("catalog: a row that was read is not JSON: " + err.Error())
		}
		p.read = weak.Make(row)
	}
	return row
}

// value returns the row; nil: this souk cannot use it.
func (v versioned[T]) value() *T {
	if v.packed != nil {
		return v.packed.open()
	}
	return v.row
}

func newVersioned[T any](row *T) versioned[T] { return versioned[T]{row: row} }

// unusable returns why this souk cannot use the row; nil: it can.
func (v versioned[T]) unusable() error {
	if v.of == nil {
		return nil
	}
	return cmp.Or(v.of.newer, v.of.broken)
}

// UnmarshalJSON decodes a row; valid JSON is never an error.
func (v *versioned[T]) UnmarshalJSON(raw []byte) error {
	var said struct {
		Schema int `json:"schema"`
	}
	of := &written{sum: release.IDOf(raw), raw: bytes.Clone(raw)}
	*v = versioned[T]{of: of}
	err := json.Unmarshal(raw, &said)
	switch row := new(T); {
	case err != nil:
		of.broken = err
	case said.Schema > release.Schema:
		of.newer = fault.New(fault.Precondition, fault.CodeSchema,
			"the data has schema %d and this souk knows %d: a newer souk wrote it, so upgrade this one", said.Schema,
			release.Schema)
	default:
		d := json.NewDecoder(bytes.NewReader(raw))
		d.DisallowUnknownFields()
		if err = d.Decode(row); err == nil {
			v.row = row
			return nil
		}
		if of.broken = json.Unmarshal(raw, new(T)); of.broken == nil {
			of.newer = fault.New(fault.Precondition, fault.CodeSchema,
				"this souk does not know all fields of the data (%v): a newer souk wrote it, so upgrade this one", err)
		}
	}
	return nil
}

// MarshalJSON returns the row as it is stored.
func (v versioned[T]) MarshalJSON() ([]byte, error) {
	if row := v.value(); row != nil {
		return json.Marshal(row)
	}
	return v.of.raw, nil
}

// versionedRows is a table of versioned rows.
type versionedRows[T any] struct{ *rows[versioned[T]] }

// newVersionedRows makes a table. check refuses a row that this souk can read and no member may have written; sum is
// the ID of the row as written.
func newVersionedRows[T any](bucket string, check func(key, sum string, row *T) error) versionedRows[T] {
	t := versionedRows[T]{newRows(bucket, func(key string, v versioned[T]) error {
		if v.row == nil {
			return v.of.broken
		}
		return check(key, v.of.sum, v.row)
	})}
	t.kept = func(v versioned[T]) versioned[T] {
		if v.row != nil {
			v.of = nil
		}
		return v
	}
	return t
}

// get returns a row that this souk can use, or nil.
func (t versionedRows[T]) get(key string) *T { return t.all[key].value() }

// appRows is a table with several rows for each app. It finds an app's rows without scanning those of others.
type appRows[T any] struct {
	versionedRows[T]
	byApp map[string][]string // keys of each app
}

func newAppRows[T any](bucket string, check func(key, sum string, row *T) error) appRows[T] {
	t := appRows[T]{newVersionedRows(bucket, check), map[string][]string{}}
	t.seen = func(key string, _ versioned[T]) {
		if app := appOf(key); !slices.Contains(t.byApp[app], key) {
			t.byApp[app] = append(t.byApp[app], key)
		}
	}
	t.left = func(key string) {
		app := appOf(key)
		others := slices.DeleteFunc(slices.Clone(t.byApp[app]), func(k string) bool { return k == key })
		if t.byApp[app] = others; len(others) == 0 {
			delete(t.byApp, app)
		}
	}
	return t
}

// pack makes the table keep its rows packed.
func (t versionedRows[T]) pack() {
	t.kept = func(v versioned[T]) versioned[T] {
		switch {
		case v.row == nil:
			return v
		case v.of == nil:
			return versioned[T]{packed: &packed[T]{raw: encode(v.row)}}
		}
		return versioned[T]{packed: &packed[T]{raw: v.of.raw}}
	}
}

// removeApp returns the changes that remove all rows of an app.
func (t appRows[T]) removeApp(app string) (out []change) {
	for _, key := range t.byApp[app] {
		out = append(out, t.remove(key))
	}
	return out
}

// appOf returns the app in a row's key: the whole key, or its first part.
func appOf(key string) string {
	app, _, _ := strings.Cut(key, "/")
	return app
}
