package manifest

import (
	"encoding/json"
	"reflect"
	"strings"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/machine"
)

// object is a part of a JSON Schema.
type object = map[string]any

// Schema returns the JSON Schema of souk.toml, for editors: keys are completed and checked by it.
func Schema() []byte {
	s := schema{defs: object{}}
	top := s.table(reflect.TypeFor[file]())
	top["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	top["title"] = "souk.toml"
	top["required"] = []string{"groups"}
	top["$defs"] = s.defs
	raw, err := json.MarshalIndent(top, "", "  ")
	if err != nil {
		panic("manifest: plain data does not encode: " + err.Error())
	}
	return append(raw, '\n')
}

// schema makes a JSON Schema of Go types. A struct that has a name is one definition.
type schema struct{ defs object }

func (s schema) of(t reflect.Type) object {
	if t.Kind() == reflect.Pointer {
		return s.of(t.Elem())
	}
	if own := ownSchema(t); own != nil {
		return own
	}
	switch t.Kind() {
	case reflect.Struct:
		name := strings.ToLower(t.Name())
		if s.defs[name] == nil {
			s.defs[name] = object{} // a placeholder, for types that contain themselves
			s.defs[name] = s.table(t)
		}
		return object{"$ref": "#/$defs/" + name}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": s.of(t.Elem())}
	case reflect.Slice:
		return object{"type": "array", "items": s.of(t.Elem())}
	case reflect.String:
		return object{"type": "string"}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Float32, reflect.Float64:
		return object{"type": "number"}
	case reflect.Interface:
		return object{}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return object{"type": "integer", "minimum": 0}
	}
	return object{"type": "integer"}
}

// table returns the schema of a struct's keys.
func (s schema) table(t reflect.Type) object {
	properties := object{}
	for key, f := range keysOf(t) {
		switch {
		case isAmount(t, key):
			properties[key] = object{"type": []string{"integer", "string"}, "pattern": "^[0-9]+%?$", "minimum": 0}
		case t == reflect.TypeFor[group]() && key == "on_lost":
			properties[key] = oneOf(release.Replace, release.Never, release.Fenced)
		default:
			properties[key] = s.of(f)
		}
	}
	return object{"type": "object", "properties": properties, "additionalProperties": false}
}

// ownSchema returns the schema of a type with its own UnmarshalJSON, or with few values; nil: other types.
func ownSchema(t reflect.Type) object {
	switch t {
	case reflect.TypeFor[machine.Duration]():
		return object{"type": []string{"string", "integer"},
			"description": "a duration such as 15s, 2m or 500ms, or whole nanoseconds"}
	case reflect.TypeFor[memory]():
		return object{"type": []string{"string", "integer"}, "description": "whole MiB: 512, 512m or 2g"}
	case reflect.TypeFor[gigabytes]():
		return object{"type": []string{"string", "integer"}, "description": "whole GB: 10 or 10g"}
	case reflect.TypeFor[cpu]():
		return object{"type": []string{"string", "number"}, "description": "CPU in cores: 0.3 or 2"}
	case reflect.TypeFor[machine.Autostop]():
		return object{"enum": []any{true, false, "off", "stop", "suspend"}}
	case reflect.TypeFor[machine.Persist]():
		return object{"enum": []any{"", "none", "never", "restart", "always", 0, 1, 2, 3}}
	case reflect.TypeFor[release.Strategy]():
		return oneOf(release.Rolling, release.Canary, release.BlueGreen, release.Immediate)
	case reflect.TypeFor[release.Swap]():
		return oneOf(release.StartFirst, release.StopFirst)
	case reflect.TypeFor[release.Overlap]():
		return oneOf(release.Forbid, release.AllowBoth, release.ReplaceThat)
	case reflect.TypeFor[release.OnFailure]():
		return oneOf(release.Undo, release.Pause, release.GoOn)
	case reflect.TypeFor[api.NewGroup](), reflect.TypeFor[machine.Config]():
		panic("manifest: a group is one table")
	}
	if readsItself(t) {
		return object{}
	}
	return nil
}

func oneOf[T ~string](words ...T) object {
	list := make([]any, len(words))
	for i, w := range words {
		list[i] = string(w)
	}
	return object{"enum": list}
}
