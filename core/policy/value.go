package policy

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"

	"github.com/soukhq/souk/cluster"
)

// box keeps the boxed form of a number until the number changes: boxing allocates, comparing does not. It keeps no
// record, so a record that is changed in place is never read in its old state.
type box struct {
	raw float64
	val ref.Val
}

func (b *box) boxNumber(x float64) ref.Val {
	if b.val == nil || b.raw != x {
		b.raw, b.val = x, types.Double(x)
	}
	return b.val
}

// textBox is box for texts.
type textBox struct {
	raw string
	val ref.Val
}

func (b *textBox) boxText(x string) ref.Val {
	if b.val == nil || b.raw != x {
		b.raw, b.val = x, types.String(x)
	}
	return b.val
}

// object is a value whose fields the type checker knows. CEL reads it by fields only, never as a whole.
type object struct{ is *types.Type }

func (o object) ConvertToNative(t reflect.Type) (any, error) {
	return nil, fmt.Errorf("%s is read by its fields", o.is.TypeName())
}
func (o object) ConvertToType(ref.Type) ref.Val {
	return types.NewErr("%s is read by its fields", o.is.TypeName())
}
func (o object) Equal(ref.Val) ref.Val {
	return types.NewErr("%s is compared by its fields", o.is.TypeName())
}
func (o object) Type() ref.Type { return o.is }

// amounts is souk.Resources.
type amounts struct {
	object
	boxes [5]box
	now   cluster.Resources
}

func (a *amounts) Value() any { return a }

// workerValue is souk.Worker: one record, which may differ from call to call.
type workerValue struct {
	object
	of                   *cluster.Record
	free, capacity, used amounts
	numbers              [4]box
	texts                [3]textBox
	images               ref.Val
	imagesOf             []string
	attributes, apps     ref.Val
	attrBoxes            map[string]attrBox
}

type attrBox struct {
	raw cluster.Value
	val ref.Val
}

func (w *workerValue) Value() any { return w }

// requestValue is souk.Request.
type requestValue struct {
	object
	of      *requestFields
	numbers [6]box
	texts   [5]textBox
	labels  ref.Val
	named   ref.Val
	regions ref.Val
}

func (r *requestValue) Value() any { return r }

// reads records which names were looked up and not found, and which attributes were read, to explain an undefined
// result.
type reads struct {
	missing []missing
	touched []touch
}

type missing struct{ whose, what, name string }

type touch struct {
	whose, what, name string
	value             cluster.Value
}

// mostReads bounds the notes of one evaluation.
const mostReads = 16

func (r *reads) reset() { r.missing, r.touched = r.missing[:0], r.touched[:0] }

func (r *reads) noteMissing(whose, what, name string) {
	if len(r.missing) < mostReads {
		r.missing = append(r.missing, missing{whose, what, name})
	}
}

func (r *reads) noteRead(whose, what, name string, v cluster.Value) {
	if len(r.touched) < mostReads {
		r.touched = append(r.touched, touch{whose, what, name, v})
	}
}

// mapValue is a CEL map with text keys. It is ordered by key, so that an expression over all keys is repeatable.
type mapValue struct {
	keys func() []string
	find func(key string) (ref.Val, bool)
	has  func(key string) bool
	size func() int
}

func (m *mapValue) Value() any     { return m }
func (m *mapValue) Type() ref.Type { return types.MapType }
func (m *mapValue) Size() ref.Val  { return types.Int(m.size()) }
func (m *mapValue) ConvertToNative(reflect.Type) (any, error) {
	return nil, fmt.Errorf("a map is read by its keys")
}

func (m *mapValue) ConvertToType(t ref.Type) ref.Val {
	if t == types.MapType {
		return m
	}
	return types.NewErr("a map is read by its keys")
}
func (m *mapValue) Equal(ref.Val) ref.Val { return types.NewErr("a map is compared by its keys") }

func (m *mapValue) Contains(key ref.Val) ref.Val {
	k, ok := key.(types.String)
	return types.Bool(ok && m.has(string(k)))
}

func (m *mapValue) Find(key ref.Val) (ref.Val, bool) {
	k, ok := key.(types.String)
	if !ok {
		return types.NewErr("a key is a text, not %s", key.Type().TypeName()), false
	}
	return m.find(string(k))
}

func (m *mapValue) Get(key ref.Val) ref.Val {
	v, ok := m.Find(key)
	if ok {
		return v
	}
	if v != nil {
		return v
	}
	return types.NewErr("no such key: %v", key)
}

func (m *mapValue) Iterator() traits.Iterator {
	return types.NewStringList(types.DefaultTypeAdapter, m.keys()).Iterator()
}

// attributesOf returns the map of the attributes of a worker or request. A missing name is undefined, and noted.
func attributesOf(whose, what string, get func() cluster.Attributes, boxes func(string, cluster.Value) ref.Val,
	read *reads) *mapValue {
	return &mapValue{
		keys: func() []string { return slices.Sorted(maps.Keys(get())) },
		size: func() int { return len(get()) },
		has:  func(k string) bool { _, ok := get()[k]; return ok },
		find: func(k string) (ref.Val, bool) {
			v, ok := get()[k]
			if !ok {
				read.noteMissing(whose, what, k)
				return nil, false
			}
			read.noteRead(whose, what, k, v)
			return boxes(k, v), true
		},
	}
}

// countsOf returns a map of numbers that has 0 for every other key: a worker that lists no machines of an app has
// none.
func countsOf[N int | int64](get func() map[string]N) *mapValue {
	return &mapValue{
		keys: func() []string { return slices.Sorted(maps.Keys(get())) },
		size: func() int { return len(get()) },
		has:  func(k string) bool { _, ok := get()[k]; return ok },
		find: func(k string) (ref.Val, bool) { return types.Double(get()[k]), true },
	}
}

func boxValue(v cluster.Value) ref.Val {
	switch x := v.Any().(type) {
	case float64:
		return types.Double(x)
	case bool:
		return types.Bool(x)
	case string:
		return types.String(x)
	}
	return types.NullValue
}
