package client

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/soukhq/souk/fault"
)

// encodeJSON writes a value as JSON. Texts that are not UTF-8 are refused: encoding/json would replace bytes, and so
// change a key or a password.
func encodeJSON(v any) ([]byte, error) {
	if at, bad, is := findBytes(reflect.ValueOf(v)); is {
		return nil, fault.New(fault.Invalid, codeUTF8, "%s has bytes that are no UTF-8 (%s), and a text of a request "+
			"cannot carry them: encode them, with base64 for example, and have the program decode them", at, bad)
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, fault.Wrap(err, fault.Invalid, codeRequest, "the request cannot be written as JSON")
	}
	return raw, nil
}

// findBytes finds a text that is not UTF-8: its path in the JSON, and its first bad byte.
func findBytes(v reflect.Value) (at, bad string, is bool) {
	switch v.Kind() {
	case reflect.String:
		return "", firstBad(v.String()), !utf8.ValidString(v.String())
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			return findBytes(v.Elem())
		}
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return "", "", false // written in base64, or JSON already
		}
		for i := range v.Len() {
			if at, bad, is = findBytes(v.Index(i)); is {
				return joinPath(fmt.Sprintf("[%d]", i), at), bad, true
			}
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			if _, bad, is = findBytes(key); is {
				return fmt.Sprintf("[%q]", key), bad, true
			}
			if at, bad, is = findBytes(v.MapIndex(key)); is {
				return joinPath(fmt.Sprint(key), at), bad, true
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if !f.IsExported() && !f.Anonymous {
				continue
			}
			if at, bad, is = findBytes(v.Field(i)); is {
				name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				return joinPath(name, at), bad, true
			}
		}
	}
	return "", "", false
}

func joinPath(name, at string) string {
	switch {
	case name == "":
		return at
	case at == "", at[0] == '[':
		return name + at
	}
	return name + "." + at
}

func firstBad(s string) string {
	for i, r := range s {
		if r == utf8.RuneError && !strings.HasPrefix(s[i:], string(utf8.RuneError)) {
			return fmt.Sprintf("0x%02x as byte %d", s[i], i+1)
		}
	}
	return ""
}
