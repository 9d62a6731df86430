package cluster

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
)

// Value is what an attribute holds: a text, a number, or true or false. In JSON it is written as what it is. Values of
// different types are never equal and have no order. Values may be compared with ==. The zero Value is the empty text.
type Value struct {
	kind valueKind
	text string
	num  float64 // 0 or 1 for a truth value
}

type valueKind uint8

const (
	textValue valueKind = iota
	numberValue
	truthValue
)

// MaxText bounds the length of an attribute's name and of its text, in bytes.
const MaxText = 256

// Text makes a text value.
func Text(s string) Value { return Value{text: s} }

// Number makes a number. It must be finite.
func Number(f float64) Value { return Value{kind: numberValue, num: f} }

// Truth makes a truth value.
func Truth(b bool) Value {
	if b {
		return Value{kind: truthValue, num: 1}
	}
	return Value{kind: truthValue}
}

// Any gives the value as a string, a float64 or a bool.
func (v Value) Any() any {
	switch v.kind {
	case numberValue:
		return v.num
	case truthValue:
		return v.num != 0
	}
	return v.text
}

// Type names what kind of value v is: "text", "number" or "truth".
func (v Value) Type() string { return [...]string{"text", "number", "truth"}[v.kind] }

// String prints the value as a user would write it.
func (v Value) String() string {
	switch v.kind {
	case numberValue:
		return strconv.FormatFloat(v.num, 'f', -1, 64)
	case truthValue:
		return strconv.FormatBool(v.num != 0)
	}
	return v.text
}

// Compare orders two values of one type; ok is false where they have no order (other types, or truth values).
func (v Value) Compare(o Value) (order int, ok bool) {
	if v.kind != o.kind || v.kind == truthValue {
		return 0, false
	}
	switch {
	case v.num < o.num || v.text < o.text:
		return -1, true
	case v == o:
		return 0, true
	}
	return 1, true
}

// ParseValue reads a value as users write it: a number, true or false, else a text.
func ParseValue(s string) Value {
	if f, err := strconv.ParseFloat(s, 64); err == nil && !math.IsInf(f, 0) && !math.IsNaN(f) {
		return Number(f)
	}
	switch s {
	case "true":
		return Truth(true)
	case "false":
		return Truth(false)
	}
	return Text(s)
}

// MarshalJSON writes a JSON string, number, or true or false.
func (v Value) MarshalJSON() ([]byte, error) { return json.Marshal(v.Any()) }

// UnmarshalJSON reads a JSON string, number, or true or false, and nothing else.
func (v *Value) UnmarshalJSON(b []byte) error {
	var a any
	if err := json.Unmarshal(bytes.TrimSpace(b), &a); err != nil {
		return err
	}
	switch x := a.(type) {
	case string:
		*v = Text(x)
	case float64:
		*v = Number(x)
	case bool:
		*v = Truth(x)
	default:
		return fmt.Errorf("an attribute is a text, a number, or true or false, not %s", clipText(string(b)))
	}
	return nil
}

// Attributes are what a worker, or a request, says of itself beyond the built-in fields.
type Attributes map[string]Value

// Bounds of what one record or request may carry, so that a hostile one costs little.
const (
	MaxAttributes   = 256
	MaxRequirements = 64
)

// Valid says why the attributes cannot be taken; "" when they can.
func (a Attributes) Valid() string {
	if len(a) > MaxAttributes {
		return fmt.Sprintf("%d attributes are too many; at most %d", len(a), MaxAttributes)
	}
	for name, v := range a {
		if !ValidAttribute(name) {
			return fmt.Sprintf("attribute name %q: use 1 to 64 letters, digits and . _ - /", clipText(name))
		}
		if len(v.text) > MaxText {
			return fmt.Sprintf("attribute %s holds %d bytes; at most %d", name, len(v.text), MaxText)
		}
	}
	return ""
}

// ValidAttribute says whether name can name an attribute: 1 to 64 letters, digits and . _ - /.
func ValidAttribute(name string) bool {
	if name == "" || len(name) > 64 {
		return false
	}
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '-', c == '/':
		default:
			return false
		}
	}
	return true
}

func clipText(s string) string {
	if len(s) > 60 {
		return s[:60] + "..."
	}
	return s
}
