package machine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"reflect"
	"strconv"
	"strings"

	"github.com/soukhq/souk/fault"
)

// walker goes once over a body that is valid JSON and compares it with a shape.
type walker struct {
	body []byte
	at   int
	what string
}

// anything is the shape of any JSON; it is immutable.
var anything = &shape{kind: anyJSON} //nolint:gochecknoglobals // a constant

// frame is one step of the path to a value; the path is printed only in errors.
type frame struct {
	up    *frame
	key   string
	index int // index in a list; -1: the step is key
}

// pathText prints the path, such as "config.files[0].mode".
func (f *frame) pathText() string {
	if f == nil {
		return ""
	}
	up := f.up.pathText()
	switch {
	case f.index >= 0:
		return fmt.Sprintf("%s[%d]", up, f.index)
	case up == "":
		return shorten(f.key)
	}
	return up + "." + shorten(f.key)
}

// shorten cuts a long key, so that a hostile one does not fill a log, and quotes control characters.
func shorten(s string) string {
	if len(s) > 64 {
		s = strings.ToValidUTF8(s[:61], "") + "..."
	}
	q := strconv.Quote(s)
	if q[1:len(q)-1] == s {
		return s
	}
	return q
}

func (w *walker) refuseValue(f *frame, code fault.Code, format string, args ...any) error {
	return fault.New(fault.Invalid, code, "%s", f.pathText()+" "+fmt.Sprintf(format, args...))
}

func (w *walker) space() {
	for w.at < len(w.body) {
		switch w.body[w.at] {
		case ' ', '\t', '\n', '\r':
			w.at++
		default:
			return
		}
	}
}

// walkValue checks one value. null counts as "not given" for any shape.
func (w *walker) walkValue(s *shape, f *frame, depth int) error {
	w.space()
	c := w.body[w.at]
	if c == 'n' {
		w.at += len("null")
		return nil
	}
	if depth > MaxDepth {
		return w.refuseValue(f, codeDepth, "lies more than %d levels deep: make it flatter", MaxDepth)
	}
	start := w.at
	switch s.kind {
	case custom:
		// A type's own errors have no path; they get one here, before encoding/json sees them.
		if err := w.walkValue(anything, f, depth); err != nil {
			return err
		}
		return w.walkCustom(s, f, start)
	case anyJSON:
		switch c {
		case '{':
			return w.walkObject(&shape{kind: dict, elem: s}, f, depth)
		case '[':
			return w.walkList(s, f, depth)
		case '"':
			w.walkText()
		default:
			w.walkLiteral()
		}
		return nil
	case object, dict:
		if c == '{' {
			return w.walkObject(s, f, depth)
		}
	case list:
		if c == '[' {
			return w.walkList(s.elem, f, depth)
		}
	case text:
		if c == '"' {
			w.walkText()
			return nil
		}
	case boolean:
		if c == 't' || c == 'f' {
			w.walkLiteral()
			return nil
		}
	case whole, number:
		if c == '-' || c >= '0' && c <= '9' {
			return w.walkNumber(s, f)
		}
	}
	return w.refuseValue(f, codeWrongType, "must be %s, not %s", s.wantText(), kindName(c))
}

func (w *walker) walkObject(s *shape, f *frame, depth int) error {
	w.at++ // {
	var given uint64
	var keys map[string]bool
	here := frame{up: f, index: -1}
	for w.space(); w.body[w.at] != '}'; w.space() {
		if w.body[w.at] == ',' {
			w.at++
			w.space()
		}
		key := w.walkKey()
		w.space()
		w.at++ // :
		elem, twice := s.elem, false
		if s.kind == object {
			fd := s.fields[string(key)]
			if fd == nil {
				here.key = string(key)
				return w.refuseUnknown(s, &here)
			}
			here.key, elem = fd.name, fd.shape
			twice = given&(1<<fd.index) != 0
			given |= 1 << fd.index
		} else {
			here.key = string(key)
			if keys == nil {
				keys = map[string]bool{}
			}
			twice = keys[here.key]
			keys[here.key] = true
		}
		if twice {
			return w.refuseValue(&here, codeDuplicate, "is given twice: give it once")
		}
		if err := w.walkValue(elem, &here, depth+1); err != nil {
			return err
		}
	}
	w.at++ // }
	return nil
}

func (w *walker) walkList(elem *shape, f *frame, depth int) error {
	w.at++ // [
	here := frame{up: f}
	for w.space(); w.body[w.at] != ']'; w.space() {
		if w.body[w.at] == ',' {
			w.at++
		}
		if err := w.walkValue(elem, &here, depth+1); err != nil {
			return err
		}
		here.index++
	}
	w.at++ // ]
	return nil
}

// walkKey reads an object's key and returns it without quotes and escapes.
func (w *walker) walkKey() []byte {
	start := w.at
	raw := w.walkText()
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw
	}
	var s string
	if err := json.Unmarshal(w.body[start:w.at], &s); err != nil {
		panic("machine: valid JSON has an invalid key: " + err.Error())
	}
	return []byte(s)
}

// walkText reads a string and returns the bytes between the quotes.
func (w *walker) walkText() []byte {
	start := w.at + 1
	for i := start; ; i++ {
		switch w.body[i] {
		case '\\':
			i++
		case '"':
			w.at = i + 1
			return w.body[start:i]
		}
	}
}

// walkLiteral reads a number, true or false.
func (w *walker) walkLiteral() []byte {
	start := w.at
	for w.at < len(w.body) && !bytes.ContainsRune([]byte(" \t\r\n,]}"), rune(w.body[w.at])) {
		w.at++
	}
	return w.body[start:w.at]
}

func (w *walker) walkNumber(s *shape, f *frame) error {
	lit := string(w.walkLiteral())
	bits := s.typ.Bits()
	var err error
	switch {
	case s.kind == number:
		_, err = strconv.ParseFloat(lit, bits)
	case s.typ.Kind() >= reflect.Uint && s.typ.Kind() <= reflect.Uint64:
		_, err = strconv.ParseUint(lit, 10, bits)
	default:
		_, err = strconv.ParseInt(lit, 10, bits)
	}
	switch {
	case err == nil:
		return nil
	case s.kind == whole && strings.ContainsAny(lit, ".eE"):
		return w.refuseValue(f, codeWrongType, "must be a whole number in plain digits, not %.40s", lit)
	case lit[0] == '-' && s.typ.Kind() >= reflect.Uint && s.typ.Kind() <= reflect.Uint64:
		return w.refuseValue(f, codeWrongType, "must not be below 0, as %.40s is", lit)
	}
	return w.refuseValue(f, codeWrongType, "must be a number of at most %d bits, not %.40s", bits, lit)
}

func (w *walker) walkCustom(s *shape, f *frame, start int) error {
	err := json.Unmarshal(w.body[start:w.at], reflect.New(s.typ).Interface())
	if err == nil {
		return nil
	}
	e := fault.As(err)
	return w.refuseValue(f, e.Code, "is wrong: %s", e.Text)
}

// refuseUnknown returns the error for an unknown field, with the most similar known one.
func (w *walker) refuseUnknown(s *shape, f *frame) error {
	if best := Closest(f.key, maps.Keys(s.fields)); best != "" {
		return w.refuseValue(f, codeUnknownField, "is not a field souk knows; did you mean %q?", best)
	}
	return w.refuseValue(f, codeUnknownField,
		"is not a field souk knows: leave it out (docs/reference/config.md lists all)")
}

// Closest returns the name most similar to a misspelt word; "" if none is similar.
func Closest(word string, names iter.Seq[string]) string {
	best, far := "", 3
	for name := range names {
		if d := editDistance(strings.ToLower(word), name, far); d < far || d == far && far < 3 && name < best {
			best, far = name, d
		}
	}
	return best
}

// editDistance counts the edits between two short texts, up to limit.
func editDistance(a, b string, limit int) int {
	if len(a) > 64 || len(a)-len(b) > limit || len(b)-len(a) > limit {
		return limit + 1
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diag := row[0]
		row[0] = i + 1
		for j := range len(b) {
			sub := diag
			if a[i] != b[j] {
				sub++
			}
			diag = row[j+1]
			row[j+1] = min(sub, row[j]+1, diag+1)
		}
	}
	return row[len(b)]
}

func kindName(c byte) string {
	switch c {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case '"':
		return "a text"
	case 't', 'f':
		return "true or false"
	case 'n':
		return "null"
	}
	return "a number"
}
