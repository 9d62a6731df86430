package machine

import (
	"encoding/json"
	"reflect"
	"strings"
)

// shape is the expected form of a JSON value for a Go type.
type shape struct {
	kind   shapeKind
	typ    reflect.Type      // for custom: the type that decodes itself; for numbers: their size
	fields map[string]*field // object
	elem   *shape            // list, dict
}

// field is one field of an object.
type field struct {
	name  string
	index int // index among the object's fields, to detect duplicates
	shape *shape
}

type shapeKind int

const (
	object shapeKind = iota
	dict             // an object with any keys
	list
	text
	boolean
	whole   // a number without a fraction
	number  // any number
	custom  // reads itself
	anyJSON // anything
)

// wantText describes a kind in words.
func (s *shape) wantText() string {
	switch s.kind {
	case object, dict:
		return "an object"
	case list:
		return "a list"
	case text:
		return "a text"
	case boolean:
		return "true or false"
	case whole:
		return "a whole number"
	case number:
		return "a number"
	}
	return "something else"
}

// maxFields is the most fields of an object type: one word has a bit for each.
const maxFields = 64

// shapeOf returns the shape of a type. Types must not contain themselves. It panics on a type that JSON cannot
// represent: a programming error, which any test finds.
func shapeOf(t reflect.Type) *shape {
	named := t.PkgPath() != "" // only named types have methods of their own
	if named && reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return &shape{kind: custom, typ: t}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return shapeOf(t.Elem())
	case reflect.Struct:
		s := &shape{kind: object, fields: make(map[string]*field, t.NumField())}
		s.addFields(t)
		return s
	case reflect.Map:
		return &shape{kind: dict, elem: shapeOf(t.Elem())}
	case reflect.Slice:
		return &shape{kind: list, elem: shapeOf(t.Elem())}
	case reflect.String:
		return &shape{kind: text}
	case reflect.Bool:
		return &shape{kind: boolean}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return &shape{kind: whole, typ: t}
	case reflect.Float32, reflect.Float64:
		return &shape{kind: number, typ: t}
	case reflect.Interface:
		return &shape{kind: anyJSON}
	}
	panic("machine: no JSON shape for " + t.String())
}

// addFields adds the fields of a struct type, including those of embedded structs.
func (s *shape) addFields(t reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			s.addFields(f.Type)
			continue
		case !f.IsExported() || name == "-":
			continue
		case name == "":
			name = f.Name
		}
		s.fields[name] = &field{name: name, index: len(s.fields), shape: shapeOf(f.Type)}
	}
	if len(s.fields) > maxFields {
		panic("machine: more than 64 fields in " + t.String())
	}
}
