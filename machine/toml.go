package machine

import "encoding/json"

// TOMLValue converts a value decoded from JSON, with json.Number for numbers, for TOML: integers and floats become
// different types, and null values are dropped. It changes v.
func TOMLValue(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			if v[k] = TOMLValue(x); x == nil {
				delete(v, k)
			}
		}
	case []any:
		for i := range v {
			v[i] = TOMLValue(v[i])
		}
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, _ := v.Float64() // it is a valid number
		return f
	}
	return v
}
