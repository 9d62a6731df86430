package machine

import "encoding/json"

// TOMLValue returns a value that was decoded from JSON, with json.Number for numbers, as TOML has it: whole numbers are
// told from others, and keys whose value is null are left out. It changes v.
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
		f, _ := v.Float64() // it is a number
		return f
	}
	return v
}
