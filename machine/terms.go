package machine

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Term is one weighted part of a candidate's score.
type Term struct {
	Name  string
	Value float64
}

// Terms are the parts of a score, sorted by name. In JSON they are an object. They are a slice, not a map, as each
// decision makes some for every worker that it looks at.
type Terms []Term

// Get returns the part with a name; 0 and false if there is none.
func (ts Terms) Get(name string) (float64, bool) {
	for i := range ts {
		if ts[i].Name == name {
			return ts[i].Value, true
		}
	}
	return 0, false
}

// Set sets a part, keeping the order by name.
func (ts Terms) Set(name string, value float64) Terms {
	i := len(ts) // most arrive in order
	for i > 0 && ts[i-1].Name >= name {
		i--
	}
	if i < len(ts) && ts[i].Name == name {
		ts[i].Value = value
		return ts
	}
	return slices.Insert(ts, i, Term{name, value})
}

// MarshalJSON returns the object.
func (ts Terms) MarshalJSON() ([]byte, error) { return ts.AppendJSON(make([]byte, 0, 32*len(ts)+2)) }

// AppendJSON appends the object. It fails if a part is not a finite number.
func (ts Terms) AppendJSON(out []byte) ([]byte, error) {
	out = append(out, '{')
	for i, t := range ts {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(AppendText(out, t.Name), ':')
		if size := math.Abs(t.Value); t.Value == 0 || (size >= 1e-6 && size < 1e21) {
			out = strconv.AppendFloat(out, t.Value, 'f', -1, 64) // as encoding/json writes most numbers
			continue
		}
		value, err := json.Marshal(t.Value)
		if err != nil {
			return out, err
		}
		out = append(out, value...)
	}
	return append(out, '}'), nil
}

// UnmarshalJSON reads the object.
func (ts *Terms) UnmarshalJSON(b []byte) error {
	var m map[string]float64
	if err := json.Unmarshal(b, &m); err != nil {
		return err
	}
	*ts = make(Terms, 0, len(m))
	for name, value := range m {
		*ts = append(*ts, Term{name, value})
	}
	slices.SortFunc(*ts, func(a, b Term) int { return strings.Compare(a.Name, b.Name) })
	return nil
}
