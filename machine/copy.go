package machine

import "reflect"

// Clone makes a deep copy of a config.
func (c *Config) Clone() *Config { return deepCopy(c) }

// Clone makes a deep copy of a launch.
func (l *Launch) Clone() *Launch { return deepCopy(l) }

// Clone makes a deep copy of a machine.
func (m *Machine) Clone() *Machine { return deepCopy(m) }

// Summary returns a machine for lists: without its config, events, checks and placement.
func (m *Machine) Summary() *Machine {
	s := *m
	s.Config, s.Events, s.Checks, s.Placement, s.Phases = nil, []Event{}, nil, nil, nil
	return &s
}

func deepCopy[T any](p *T) *T {
	if p == nil {
		return nil
	}
	out := *p
	copyInto(reflect.ValueOf(&out).Elem())
	return &out
}

// copyInto replaces everything that v points to by copies. Structs with unexported fields (time.Time) are plain
// values.
func copyInto(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			n := reflect.New(v.Type().Elem())
			n.Elem().Set(v.Elem())
			copyInto(n.Elem())
			v.Set(n)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Field(i); f.CanSet() {
				copyInto(f)
			}
		}
	case reflect.Slice:
		if !v.IsNil() {
			n := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
			reflect.Copy(n, v)
			for i := range n.Len() {
				copyInto(n.Index(i))
			}
			v.Set(n)
		}
	case reflect.Map:
		if !v.IsNil() {
			n := reflect.MakeMapWithSize(v.Type(), v.Len())
			for k, e := range v.Seq2() {
				c := reflect.New(e.Type()).Elem()
				c.Set(e)
				copyInto(c)
				n.SetMapIndex(k, c)
			}
			v.Set(n)
		}
	case reflect.Interface: // decoded JSON of any kind
		if !v.IsNil() {
			c := reflect.New(v.Elem().Type()).Elem()
			c.Set(v.Elem())
			copyInto(c)
			v.Set(c)
		}
	}
}
