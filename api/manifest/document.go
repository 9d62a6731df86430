package manifest

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/fault"
)

// MaxFile bounds the bytes of a file: more than a release, since a file also has comments.
const MaxFile = 4 * release.MaxRelease

// document is a parsed TOML file with the positions of its keys and values.
type document struct {
	name   string
	text   []byte
	tree   map[string]any
	places map[string]place
}

// place is the byte offsets at which a key and its value begin.
type place struct{ key, value int }

// parse reads a TOML file.
func parse(name string, text []byte) (*document, error) {
	d := &document{name: name, text: text, places: map[string]place{}}
	if len(text) > MaxFile {
		return nil, d.wrong(0, "it has %d bytes, and %d are the most: put large files into the image, or fetch them "+
			"at start", len(text), MaxFile)
	}
	if !utf8.Valid(text) {
		return nil, d.wrong(validTo(text), "it is no UTF-8 text from here on: save it as UTF-8")
	}
	if err := toml.Unmarshal(text, &d.tree); err != nil {
		if at, ok := errors.AsType[*toml.DecodeError](err); ok {
			row, column := at.Position()
			return nil, d.wrong(offsetOf(text, row, column), "%s", strings.TrimPrefix(at.Error(), "toml: "))
		}
		return nil, d.wrong(0, "it cannot be read: %s", fault.Clip(err.Error(), 200))
	}
	d.find()
	return d, nil
}

// validTo returns how many bytes of a text are UTF-8.
func validTo(text []byte) (n int) {
	for n < len(text) {
		r, size := utf8.DecodeRune(text[n:])
		if r == utf8.RuneError && size <= 1 {
			break
		}
		n += size
	}
	return n
}

// joined converts a path to a map key: no key of an accepted file has a zero byte.
func joined(path []string) string { return strings.Join(path, "\x00") }

// at returns the position of a path, or of its nearest ancestor with a known position.
func (d *document) at(path ...string) place {
	for n := len(path); n > 0; n-- {
		if p, there := d.places[joined(path[:n])]; there {
			return p
		}
	}
	return place{}
}

// set records the position of a path, unless it has one.
func (d *document) set(path []string, p place) {
	if key := joined(path); d.places[key] == (place{}) {
		d.places[key] = p
	}
}

// find records the position of each key and value.
func (d *document) find() {
	var table []string
	count := map[string]int{} // of tables in an array
	p := unstable.Parser{}
	p.Reset(d.text)
	for p.NextExpression() {
		e := p.Expression()
		switch e.Kind {
		case unstable.Table, unstable.ArrayTable:
			table = d.header(e, count)
		case unstable.KeyValue:
			d.keyValue(table, e)
		}
	}
}

// header returns the path of a table's heading; arrays of tables on the way mean their last element.
func (d *document) header(e *unstable.Node, count map[string]int) (path []string) {
	for it := e.Key(); it.Next(); {
		key, at := string(it.Node().Data), int(it.Node().Raw.Offset)
		path = append(path, key)
		d.set(path, place{at, at})
		whole := joined(path)
		if it.IsLast() && e.Kind == unstable.ArrayTable {
			count[whole]++
		}
		if n := count[whole]; n > 0 {
			path = append(path, strconv.Itoa(n-1))
			d.set(path, place{at, at})
		}
	}
	return path
}

func (d *document) keyValue(table []string, e *unstable.Node) {
	path := append([]string(nil), table...)
	at := 0
	for it := e.Key(); it.Next(); {
		path, at = append(path, string(it.Node().Data)), int(it.Node().Raw.Offset)
		d.set(path, place{at, at})
	}
	d.valueAt(path, at, e.Value())
}

// valueAt records the position of a value and of its parts. key is the offset of its key.
func (d *document) valueAt(path []string, key int, v *unstable.Node) {
	at := key
	if v.Raw.Length > 0 {
		at = int(v.Raw.Offset)
	}
	d.places[joined(path)] = place{key, at}
	n := 0
	for it := v.Children(); it.Next(); {
		switch child := it.Node(); {
		case v.Kind == unstable.InlineTable && child.Kind == unstable.KeyValue:
			d.keyValue(path, child)
		case v.Kind == unstable.Array:
			index := append(append([]string(nil), path...), strconv.Itoa(n))
			where := at
			if child.Raw.Length > 0 {
				where = int(child.Raw.Offset)
			}
			d.valueAt(index, where, child)
			n++
		}
	}
}

// lineColumn turns a byte of a text into a line and a column, which counts characters. Both count from 1.
func lineColumn(text []byte, offset int) (line, column int) {
	before := text[:min(offset, len(text))]
	line = 1 + bytes.Count(before, []byte("\n"))
	before = before[bytes.LastIndexByte(before, '\n')+1:]
	return line, 1 + utf8.RuneCount(before)
}

// offsetOf is the byte of a line and a column in bytes, both from 1.
func offsetOf(text []byte, line, column int) int {
	at := 0
	for ; line > 1; line-- {
		next := bytes.IndexByte(text[at:], '\n')
		if next < 0 {
			break
		}
		at += next + 1
	}
	return min(at+max(column-1, 0), len(text))
}
