package cluster

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// ContainersAttribute names the attribute by which a worker says that it runs images, and with which OCI runtime.
const ContainersAttribute = "containers"

// RuntimeAttribute names the attribute that is true at workers that have an OCI runtime.
func RuntimeAttribute(runtime string) string { return ContainersAttribute + "." + runtime }

// Attributes by which a worker says how containers of other hosts reach its own: the kind of tunnel, the address of the
// worker's end, and that end's public key.
const (
	BetweenAttribute        = "between"
	BetweenAddressAttribute = "between.address"
	BetweenKeyAttribute     = "between.key"
)

// Value is the value of an attribute: a text, a number, or a truth value. In JSON it is a string, a number or a
// boolean. Values of different types are never equal and have no order. Values may be compared with ==. The zero Value
// is the empty text.
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

func Text(s string) Value { return Value{text: s} }

// Number makes a number. It must be finite (Valid rejects others); -0 becomes 0.
func Number(f float64) Value { return Value{kind: numberValue, num: f + 0} }

func Truth(b bool) Value {
	if b {
		return Value{kind: truthValue, num: 1}
	}
	return Value{kind: truthValue}
}

// Any returns the value as a string, a float64 or a bool.
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

// String prints the value as a user would write it, so that ParseValue reads the same value: a text that would be read
// as another type is in double quotes. So different values have different strings, whatever their types.
func (v Value) String() string {
	switch v.kind {
	case numberValue:
		return strconv.FormatFloat(v.num, 'f', -1, 64)
	case truthValue:
		return strconv.FormatBool(v.num != 0)
	}
	if plainText(v.text) {
		return v.text
	}
	return strconv.Quote(v.text)
}

// plainText reports whether a text needs no quotes, alone and in a list.
func plainText(s string) bool {
	if s == "" || s == "true" || s == "false" || strings.TrimSpace(s) != s || strings.ContainsAny(s, `",`) ||
		!utf8.ValidString(s) {
		return false
	}
	if _, err := strconv.ParseFloat(s, 64); err == nil {
		return false // a number, or a word such as NaN
	}
	return !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// whyInvalid returns why a value is invalid; "": it is valid.
func (v Value) whyInvalid() string {
	switch {
	case len(v.text) > MaxText:
		return fmt.Sprintf("holds %d bytes; at most %d", len(v.text), MaxText)
	case !utf8.ValidString(v.text):
		return "holds a text that is not UTF-8"
	case math.IsInf(v.num, 0) || math.IsNaN(v.num):
		return "holds a number that is not finite"
	}
	return ""
}

// Compare orders two values of one type; ok is false if they have no order (different types, or truth values).
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

// ParseValue reads a value as users write it: a number, true or false, a text in double quotes (Go's), else s as text.
func ParseValue(s string) Value {
	if strings.HasPrefix(s, `"`) {
		if text, err := strconv.Unquote(s); err == nil {
			return Text(text)
		}
	}
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

// Attributes describe a worker or a request beyond the built-in fields.
type Attributes map[string]Value

// Bounds of what one record or request may carry, so that a hostile one costs little.
const (
	MaxAttributes   = 256
	MaxRequirements = 64
)

// Valid returns why the attributes are invalid; "": they are valid.
func (a Attributes) Valid() string {
	if len(a) > MaxAttributes {
		return fmt.Sprintf("%d attributes are too many; at most %d", len(a), MaxAttributes)
	}
	for name, v := range a {
		if !ValidAttribute(name) {
			return fmt.Sprintf("attribute name %q: use 1 to 64 letters, digits and . _ - /", clipText(name))
		}
		if why := v.whyInvalid(); why != "" {
			return fmt.Sprintf("attribute %s %s", name, why)
		}
	}
	return ""
}

// ValidAttribute reports whether name can name an attribute: 1 to 64 letters, digits and . _ - /.
func ValidAttribute(name string) bool {
	if name == "" || len(name) > 64 {
		return false
	}
	return nameLen(name) == len(name)
}

// nameLen returns how many leading bytes of s can belong to a name.
func nameLen(s string) int {
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '-', c == '/':
		default:
			return i
		}
	}
	return len(s)
}

func clipText(s string) string {
	if len(s) > 60 {
		return s[:60] + "..."
	}
	return s
}
