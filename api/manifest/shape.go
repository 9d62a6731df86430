package manifest

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// value checks that a value of the file has the JSON shape of a Go type. It may replace a number by a text, if a text
// is wanted that may be written as a number.
func (d *document) value(v any, t reflect.Type, path []string) error {
	if t.Kind() == reflect.Pointer {
		return d.value(v, t.Elem(), path)
	}
	if readsItself(t) {
		return d.custom(v, t, path)
	}
	switch x := v.(type) {
	case map[string]any:
		switch t.Kind() {
		case reflect.Struct:
			return d.table(x, t, path)
		case reflect.Map:
			return d.entries(x, t.Elem(), path)
		case reflect.Interface:
			return d.entries(x, t, path)
		}
	case []any:
		if t.Kind() == reflect.Slice || t.Kind() == reflect.Interface {
			elem := t
			if t.Kind() == reflect.Slice {
				elem = t.Elem()
			}
			for i := range x {
				if err := d.value(x[i], elem, under(path, strconv.Itoa(i))); err != nil {
					return err
				}
			}
			return nil
		}
	case string:
		if t.Kind() == reflect.String || t.Kind() == reflect.Interface {
			return nil
		}
	case bool:
		if t.Kind() == reflect.Bool || t.Kind() == reflect.Interface {
			return nil
		}
	case int64:
		return d.whole(x, t, path)
	case float64:
		if k := t.Kind(); (k == reflect.Float32 || k == reflect.Float64 || k == reflect.Interface) &&
			!math.IsNaN(x) && !math.IsInf(x, 0) {
			return nil
		}
	}
	return d.mistyped(v, wanted(t), path)
}

// readsItself reports whether a type has JSON of its own.
func readsItself(t reflect.Type) bool {
	return t.PkgPath() != "" && reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]())
}

// under returns the path of a key below a path.
func under(path []string, key string) []string { return append(slices.Clone(path), key) }

// table checks the keys of a table, in the order in which the file has them.
func (d *document) table(x map[string]any, t reflect.Type, path []string) error {
	known := keysOf(t)
	for _, key := range d.ordered(x, path) {
		f, there := known[key]
		if !there {
			return d.unknown(key, t, known, path)
		}
		if isAmount(t, key) {
			switch n := x[key].(type) {
			case string:
			case int64:
				x[key] = strconv.FormatInt(n, 10)
			default:
				return d.mistyped(n, "a number such as 5 or a part such as \"25%\"", under(path, key))
			}
		}
		if err := d.value(x[key], f, under(path, key)); err != nil {
			return err
		}
	}
	return nil
}

// entries checks a table with arbitrary keys.
func (d *document) entries(x map[string]any, elem reflect.Type, path []string) error {
	for _, key := range d.ordered(x, path) {
		if err := d.value(x[key], elem, under(path, key)); err != nil {
			return err
		}
	}
	return nil
}

// ordered returns the keys of a table as the file has them, so that the first mistake is reported first.
func (d *document) ordered(x map[string]any, path []string) []string {
	keys := slices.Sorted(maps.Keys(x))
	slices.SortStableFunc(keys, func(a, b string) int {
		return d.at(under(path, a)...).key - d.at(under(path, b)...).key
	})
	return keys
}

// isAmount reports whether a text field of a struct may be written as a number.
func isAmount(t reflect.Type, key string) bool {
	return t == reflect.TypeFor[release.Update]() && (key == "max_surge" || key == "max_unavailable")
}

// keysOf returns the keys of a struct and their types; including those of embedded structs.
func keysOf(t reflect.Type) map[string]reflect.Type {
	out := map[string]reflect.Type{}
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			maps.Copy(out, keysOf(f.Type))
		case f.IsExported() && name != "" && name != "-":
			out[name] = f.Type
		}
	}
	if t == reflect.TypeFor[group]() {
		for key := range elsewhere() {
			delete(out, key)
		}
	}
	return out
}

// unknown returns the error of an unknown key, with a similar known one.
func (d *document) unknown(key string, t reflect.Type, known map[string]reflect.Type, path []string) error {
	in := ""
	if len(path) > 0 {
		in = " in " + text(path)
	}
	hint := "; docs/reference/souk-toml.md lists those that there are"
	_, ofGroup := keysOf(reflect.TypeFor[group]())[key]
	switch best := machine.Closest(key, maps.Keys(known)); {
	case t == reflect.TypeFor[group]() && elsewhere()[key] != "":
		hint = ": " + elsewhere()[key]
	case t == reflect.TypeFor[file]() && ofGroup:
		hint = "; it belongs to a group, as in [groups.web]"
	case best != "":
		hint = fmt.Sprintf("; did you mean %q?", best)
	}
	return d.refuse(under(path, key), "unknown key %q%s%s", fault.Clip(key, 80), in, hint)
}

// whole checks a whole number.
func (d *document) whole(n int64, t reflect.Type, path []string) error {
	zero := reflect.New(t).Elem()
	switch k := t.Kind(); {
	case zero.CanInt() && !zero.OverflowInt(n), k == reflect.Float32, k == reflect.Float64, k == reflect.Interface:
		return nil
	case zero.CanUint() && n >= 0 && !zero.OverflowUint(uint64(n)):
		return nil
	case zero.CanUint() && n < 0:
		return d.wrong(d.at(path...).value, "%s is %d, and must not be below 0", text(path), n)
	case zero.CanInt() || zero.CanUint():
		return d.wrong(d.at(path...).value, "%s is %d, and must be a number of at most %d bits", text(path), n,
			t.Bits())
	}
	return d.mistyped(n, wanted(t), path)
}

// custom checks a value by its type's own JSON.
func (d *document) custom(v any, t reflect.Type, path []string) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return d.mistyped(v, wanted(t), path)
	}
	if err := json.Unmarshal(raw, reflect.New(t).Interface()); err != nil {
		return d.wrong(d.at(path...).value, "%s is wrong: %s", text(path), fault.As(err).Text)
	}
	return nil
}

func (d *document) mistyped(v any, want string, path []string) error {
	return d.wrong(d.at(path...).value, "%s is %s, and %s is wanted", text(path), given(v), want)
}

// given names the type of a value of the file.
func given(v any) string {
	switch x := v.(type) {
	case map[string]any:
		return "a table"
	case []any:
		return "an array"
	case string:
		return "a text"
	case bool:
		return "true or false"
	case int64:
		return "a whole number"
	case float64:
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return "no number"
		}
		return "a number with a fraction"
	}
	return "a date or a time"
}

// wanted names what a Go type is in a file.
func wanted(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		return "a table"
	case reflect.Slice:
		return "an array"
	case reflect.String:
		return "a text"
	case reflect.Bool:
		return "true or false"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Interface:
		return "a text, a number, true or false, an array or a table"
	}
	return "a whole number"
}

// text prints a path in TOML's notation: groups.web.services[0].ports.
func text(path []string) string {
	var b strings.Builder
	index, bare := regexp.MustCompile(`^[0-9]+$`), regexp.MustCompile(`^[A-Za-z0-9_-]+$`)
	for i, key := range path {
		switch {
		case i > 0 && index.MatchString(key):
			fmt.Fprintf(&b, "[%s]", key)
			continue
		case i > 0:
			b.WriteByte('.')
		}
		if !bare.MatchString(key) {
			key = strconv.Quote(fault.Clip(key, 80))
		}
		b.WriteString(key)
	}
	return b.String()
}
