package api

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/accounts"
	"github.com/soukhq/souk/machine"
)

var update = flag.Bool("update", false, "write openapi.json and the reference of the API anew")

// description is the OpenAPI description of the API, which the gateway serves.
const description = "../gateway/openapi.json"

// TestOpenAPIMatchesRoutesAndTypes holds openapi.json against the route table and the Go types of the bodies. With -update it writes it.
func TestOpenAPIMatchesRoutesAndTypes(t *testing.T) {
	raw, err := json.MarshalIndent(describe(), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	raw = append(raw, '\n')
	if *update {
		if err := os.WriteFile(description, raw, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	onDisk, err := os.ReadFile(description)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(raw, onDisk) {
		t.Errorf("openapi.json is not what the routes say; run go test ./api -run OpenAPI -update")
	}
}

type object = map[string]any

// describe makes the OpenAPI description of the route table.
func describe() object {
	d := describer{schemas: object{}, types: map[string]reflect.Type{}}
	fail := object{"description": "An error: its code, a sentence, and the same for programs.",
		"content": object{"application/json": object{"schema": d.of(reflect.TypeFor[ErrorBody](), false)}}}
	paths := object{}
	at := func(path string) object {
		if paths[path] == nil {
			paths[path] = object{}
		}
		return paths[path].(object)
	}
	for _, r := range Routes() {
		at(r.Op.Pattern())[strings.ToLower(r.Op.Method())] = d.operation(r)
	}
	for path, sentence := range Unimplemented() {
		rest := strings.ReplaceAll(path, "...}", "}")
		for _, p := range []string{rest, strings.TrimSuffix(rest, "/{rest}")} {
			for _, m := range []string{"get", "post", "delete"} {
				if item := at(p); item[m] == nil {
					item[m] = object{"summary": "Not served: " + sentence + ".", "tags": []string{"unimplemented"},
						"parameters": d.parameters(p, ""),
						"responses":  object{"501": object{"$ref": "#/components/responses/Error"}}}
				}
			}
		}
	}
	return object{
		"openapi": "3.0.3",
		"info": object{"title": "souk", "version": "1",
			"description": "The Machines API and souk's own endpoints. Made from the route table; do not edit."},
		"paths": paths,
		"components": object{
			"schemas":         d.schemas,
			"responses":       object{"Error": fail},
			"securitySchemes": object{"token": object{"type": "http", "scheme": "bearer"}},
		},
		"security": []object{{"token": []string{}}},
	}
}

type describer struct {
	schemas object
	types   map[string]reflect.Type
}

func (d describer) operation(r Route) object {
	answer := object{"description": r.About,
		"headers": object{RequestIDHeader: object{"required": true, "schema": object{"type": "string"}}}}
	switch {
	case r.Media == NDJSON:
		answer["description"] = r.About + " One JSON object a line; the last may be an error."
		answer["content"] = object{NDJSON: object{"schema": object{"type": "string", "description": "lines of " +
			reflect.TypeOf(r.Out).Name()}}}
		d.of(reflect.TypeOf(r.Out), false)
	case r.Media == Tar:
		answer["content"] = object{Tar: object{"schema": object{"type": "string", "format": "binary"}}}
	case r.Media != "":
		answer["content"] = object{r.Media: object{"schema": object{"type": "string"}}}
	case r.Out != nil:
		answer["content"] = object{"application/json": object{"schema": d.of(reflect.TypeOf(r.Out), false)}}
	}
	tag := "machines api"
	if strings.HasPrefix(r.Op.Pattern(), "/v1/souk/") || !strings.HasPrefix(r.Op.Pattern(), "/v1/") {
		tag = "souk"
	}
	op := object{"summary": r.About, "tags": []string{tag}, "parameters": d.parameters(r.Op.Pattern(), r.Query),
		"responses": object{strconv.Itoa(r.Code): answer, "default": object{"$ref": "#/components/responses/Error"}}}
	if r.In != nil {
		op["requestBody"] = object{"content": object{"application/json": object{"schema": d.of(reflect.TypeOf(r.In),
			true)}}}
	}
	if r.Open {
		op["security"] = []object{}
	}
	if r.Op == Readyz {
		op["responses"].(object)["503"] = object{"description": "No worker answers.",
			"content": object{"text/plain": object{"schema": object{"type": "string"}}}}
	}
	return op
}

func (d describer) parameters(path, query string) []object {
	ps := []object{}
	for _, m := range regexp.MustCompile(`{(\w+)}`).FindAllStringSubmatch(path, -1) {
		ps = append(ps, object{"name": m[1], "in": "path", "required": true, "schema": object{"type": "string"}})
	}
	for _, name := range strings.Fields(query) {
		schema := object{"type": "string"}
		bare, many := strings.CutSuffix(name, "*")
		if many {
			schema = object{"type": "array", "items": schema}
		}
		ps = append(ps, object{"name": bare, "in": "query", "schema": schema})
	}
	return ps
}

// of gives the schema of a type, and enters structs into the components. Structs of requests have no required fields.
func (d describer) of(t reflect.Type, in bool) object {
	switch t {
	case reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case reflect.TypeFor[accounts.Day]():
		return object{"type": "string", "format": "date"}
	case reflect.TypeFor[machine.Duration]():
		return either("string", "integer")
	case reflect.TypeFor[machine.Autostop]():
		return either("string", "boolean")
	case reflect.TypeFor[machine.Persist](), reflect.TypeFor[machine.SignalText]():
		return either("string", "integer")
	case reflect.TypeFor[cluster.Value]():
		return object{"oneOf": []any{object{"type": "string"}, object{"type": "number"}, object{"type": "boolean"}}}
	case reflect.TypeFor[machine.Terms]():
		return object{"type": "object", "additionalProperties": object{"type": "number"}}
	case reflect.TypeFor[json.RawMessage]():
		return object{}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return d.of(t.Elem(), in)
	case reflect.Struct:
		return d.ref(t, in)
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return object{"type": "string", "format": "byte"}
		}
		return object{"type": "array", "items": d.of(t.Elem(), in)}
	case reflect.Map:
		value := d.of(t.Elem(), in)
		if t.Elem().Kind() == reflect.Pointer {
			value = nullable(value)
		}
		return object{"type": "object", "additionalProperties": value}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Float32, reflect.Float64:
		return object{"type": "number"}
	case reflect.String:
		return object{"type": "string"}
	case reflect.Interface:
		return object{}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return object{"type": "integer", "minimum": 0}
	}
	return object{"type": "integer"}
}

func either(types ...string) object {
	var any []object
	for _, t := range types {
		any = append(any, object{"type": t})
	}
	return object{"anyOf": any}
}

func nullable(s object) object {
	if s["$ref"] != nil {
		return object{"nullable": true, "allOf": []object{s}}
	}
	s["nullable"] = true
	return s
}

func (d describer) ref(t reflect.Type, in bool) object {
	name := strings.ToUpper(t.Name()[:1]) + t.Name()[1:]
	if in {
		name += "Input"
	}
	ref := object{"$ref": "#/components/schemas/" + name}
	if d.schemas[name] != nil {
		if d.types[name] != t {
			panic("two types are named " + name)
		}
		return ref
	}
	d.types[name] = t
	properties, required := object{}, []string{}
	s := object{"type": "object", "properties": properties, "additionalProperties": false}
	d.schemas[name] = s // before the fields: types may hold each other
	d.fields(t, in, properties, &required)
	if len(required) > 0 && !in {
		s["required"] = required
	}
	return ref
}

func (d describer) fields(t reflect.Type, in bool, properties object, required *[]string) {
	for f := range t.Fields() {
		tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && tag == "" {
			d.fields(f.Type, in, properties, required)
			continue
		}
		if tag == "-" || !f.IsExported() || properties[tag] != nil { // the last is hidden by one that stands before it
			continue
		}
		schema, optional := d.of(f.Type, in), strings.Contains(options, "omit")
		if f.Type.Kind() == reflect.Pointer && (in || !optional) {
			schema = nullable(schema)
		}
		properties[tag] = schema
		if !optional {
			*required = append(*required, tag)
		}
	}
}
