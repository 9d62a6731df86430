package machine

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"unicode/utf8"

	"github.com/soukhq/souk/fault"
)

// MaxBody bounds a decoded body: a config is kept in a worker's journal and written with each change of its machine.
const MaxBody = 1 << 20

// MaxDepth bounds the nesting of objects and lists. A config needs 8.
const MaxDepth = 32

// Decoder decodes JSON strictly into one type: each field must be known and given once, each value must be of its
// type, and an error has the path of the value. Make one per type and keep it; it may be used by many goroutines.
type Decoder[T any] struct {
	what  string
	shape *shape
}

// NewDecoder makes a decoder. what names the thing in errors: "launch", "config".
func NewDecoder[T any](what string) Decoder[T] {
	return Decoder[T]{what, shapeOf(reflect.TypeFor[T]())}
}

// The decoders of this package; they are immutable.
var (
	launchDecoder = NewDecoder[Launch]("launch") //nolint:gochecknoglobals // a constant
)

// DecodeLaunch reads the body of a create or an update. Errors are Invalid. It checks only the shape; the caller then
// calls Normalize and Validate.
func DecodeLaunch(body []byte) (*Launch, error) { return launchDecoder.Decode(body) }

// ReadBody reads r to its end, and refuses more than MaxBody bytes.
func ReadBody(r io.Reader) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r, MaxBody+1))
	if err != nil {
		return nil, fault.Wrap(err, fault.Invalid, CodeBody, "the body could not be read to its end: send it again")
	}
	if len(body) > MaxBody {
		return nil, tooLong("body", int64(len(body)), true)
	}
	return body, nil
}

func tooLong(what string, n int64, atLeast bool) error {
	more := ""
	if atLeast {
		more = "more than "
		n--
	}
	return fault.New(fault.Invalid, codeTooLong,
		"the %s is %s%d bytes long and may be %d at most: keep large files in a volume or fetch them at start", what,
		more, n, MaxBody)
}

// Decode decodes one value. It does not keep the body.
func (d Decoder[T]) Decode(body []byte) (*T, error) {
	if len(body) > MaxBody {
		return nil, tooLong(d.what, int64(len(body)), false)
	}
	if !utf8.Valid(body) {
		return nil, fault.New(fault.Invalid, CodeJSON, "the %s is not UTF-8 text: send JSON in UTF-8", d.what)
	}
	if !json.Valid(body) {
		return nil, d.syntaxError(body)
	}
	w := walker{body: body, what: d.what}
	w.space()
	if body[w.at] != '{' {
		return nil, fault.New(fault.Invalid, CodeJSON, "the %s must be an object, not %s", d.what, kindName(body[w.at]))
	}
	if err := w.walkValue(d.shape, nil, 0); err != nil {
		return nil, err
	}
	v := new(T)
	if err := json.Unmarshal(body, v); err != nil {
		return nil, fault.Wrap(err, fault.Invalid, CodeJSON, "the %s cannot be read", d.what)
	}
	return v, nil
}

// syntaxError returns the error for a body that is not JSON, with the place.
func (d Decoder[T]) syntaxError(body []byte) error {
	var v any
	err := json.Unmarshal(body, &v)
	s, ok := errors.AsType[*json.SyntaxError](err)
	switch {
	case len(bytes.TrimSpace(body)) == 0:
		return fault.New(fault.Invalid, CodeJSON, "the %s is empty: send a JSON object", d.what)
	case !ok:
		return fault.New(fault.Invalid, CodeJSON, "the %s is not JSON (%v): mend it", d.what, err)
	case s.Offset >= int64(len(body)) && s.Error() == "unexpected end of JSON input":
		return fault.New(fault.Invalid, CodeJSON, "the %s ends in the middle, after %d bytes: send it whole", d.what,
			len(body))
	}
	return fault.New(fault.Invalid, CodeJSON, "the %s is not JSON from byte %d on (%v); correct it there", d.what,
		s.Offset, s)
}
