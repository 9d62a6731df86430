package output

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Reader reads a machine's log while it is being written.
type Reader struct {
	dir string
	gen uint64
	off int64
}

// maxOffset is far behind the end of any file of a log, and far from what no file can have.
const maxOffset = 1 << 40

// NewReader stands behind the query's cursor, else before the last Tail lines, else at the beginning.
func NewReader(dir string, q machine.LogQuery) (*Reader, error) {
	r := &Reader{dir: dir}
	if q.Cursor != "" {
		g, o, ok := strings.Cut(q.Cursor, ":")
		gen, err1 := strconv.ParseUint(g, 10, 64)
		off, err2 := strconv.ParseInt(o, 10, 64)
		if !ok || err1 != nil || err2 != nil || gen == 0 || off < 0 || off > maxOffset {
			return nil, fault.New(fault.Invalid, "cursor",
				"%q is not a log cursor: give one back as it came with a line, or none", q.Cursor)
		}
		r.gen, r.off = gen, off
		return r, nil
	}
	if q.Tail > 0 {
		return r, r.seekTail(q.Tail)
	}
	return r, nil
}

// seekTail stands before the last n lines.
func (r *Reader) seekTail(n int) error {
	gens, err := generations(r.dir)
	if err != nil {
		return fmt.Errorf("read a log: %w", err)
	}
	for i := len(gens) - 1; i >= 0; i-- {
		b, err := os.ReadFile(filepath.Join(r.dir, fileName(gens[i])))
		if errors.Is(err, fs.ErrNotExist) {
			return nil // rotated away meanwhile: what is left begins behind it
		}
		if err != nil {
			return fmt.Errorf("read a log: %w", err)
		}
		r.gen, r.off = gens[i], 0
		end := bytes.LastIndexByte(b, '\n')
		for ; end >= 0 && n > 0; n-- {
			end = bytes.LastIndexByte(b[:end], '\n')
		}
		if end >= 0 {
			r.off = int64(end) + 1
		}
		if n == 0 {
			return nil
		}
	}
	return nil
}

// Read emits every whole line there is now.
func (r *Reader) Read(ctx context.Context, emit func(machine.LogLine) error) error {
	for ctx.Err() == nil {
		gens, err := generations(r.dir)
		if err != nil || len(gens) == 0 {
			return err
		}
		newest := gens[len(gens)-1]
		if r.gen > newest { // a cursor of a log that is gone: what comes now is new
			r.gen, r.off = newest, 0
		}
		for len(gens) > 1 && gens[0] < r.gen {
			gens = gens[1:]
		}
		if gens[0] != r.gen {
			r.gen, r.off = gens[0], 0
		}
		// Newer files were listed before this one is read, so nothing is written to it any more when there are any.
		if err := r.readFile(ctx, emit); err != nil {
			return err
		}
		if r.gen == newest {
			return nil
		}
		r.gen, r.off = gens[1], 0
	}
	return ctx.Err()
}

func (r *Reader) readFile(ctx context.Context, emit func(machine.LogLine) error) error {
	f, err := os.Open(filepath.Join(r.dir, fileName(r.gen)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read a log: %w", err)
	}
	defer f.Close()
	buf := make([]byte, 2*batch)
	for ctx.Err() == nil {
		n, err := f.ReadAt(buf, r.off)
		if err != nil && err != io.EOF {
			return fmt.Errorf("read a log: %w", err)
		}
		end := bytes.LastIndexByte(buf[:n], '\n')
		if end < 0 {
			return nil
		}
		for line := range bytes.Lines(buf[:end+1]) {
			r.off += int64(len(line))
			l, ok := parse(line)
			if !ok {
				continue
			}
			l.Cursor = fmt.Sprintf("%d:%d", r.gen, r.off)
			if err := emit(l); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

// parse takes one line apart. A line that is damaged is skipped: the rest is still of use.
func parse(line []byte) (machine.LogLine, bool) {
	at, rest, ok1 := bytes.Cut(bytes.TrimSuffix(line, []byte("\n")), []byte(" "))
	stream, rest, ok2 := bytes.Cut(rest, []byte(" "))
	tag, text, ok3 := bytes.Cut(rest, []byte(" "))
	t, err := time.Parse(time.RFC3339Nano, string(at))
	if !ok1 || !ok2 || !ok3 || err != nil || len(tag) != 1 {
		return machine.LogLine{}, false
	}
	return machine.LogLine{At: t, Stream: string(stream), Text: string(text)}, true
}
