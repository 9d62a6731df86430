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

	known bool  // total is known:
	total int64 // bytes of output up to this position
	lost  int64 // bytes skipped since the last line, to be reported with the next line

	hold held // for a reader that the machine waits for
}

// Close closes the log.
func (r *Reader) Close() {
	_ = r.hold.file.Close() // releases the lock; closing nil only returns an error
}

// maxOffset is far beyond the end of any log file.
const maxOffset = 1 << 40

// NewReader starts after the query's cursor, else before the last Tail lines, else at the beginning of all output ever
// printed, so that the first line reports how much of it is not kept.
func NewReader(dir string, q machine.LogQuery) (*Reader, error) {
	r := &Reader{dir: dir, hold: held{on: q.Hold}}
	if q.Cursor != "" {
		if err := r.seekCursor(q.Cursor); err != nil {
			return nil, fault.Wrap(err, fault.Invalid, fault.CodeCursor,
				"%q is not a log cursor: give one back as it came with a line, or none", q.Cursor)
		}
		return r, nil
	}
	if q.Tail != nil {
		return r, r.seekTail(*q.Tail)
	}
	r.known = true
	return r, nil
}

// seekCursor moves to a cursor: the file, the offset in it, and the bytes of output up to there.
func (r *Reader) seekCursor(cursor string) (err error) {
	parts := strings.Split(cursor, ":")
	if len(parts) != 3 {
		return errors.New("it has not three parts")
	}
	if r.gen, err = strconv.ParseUint(parts[0], 10, 64); err != nil {
		return err
	}
	if r.off, err = strconv.ParseInt(parts[1], 10, 64); err != nil {
		return err
	}
	if r.total, err = strconv.ParseInt(parts[2], 10, 64); err != nil {
		return err
	}
	r.known = true
	if r.gen == 0 || r.off < 0 || r.off > maxOffset || r.total < 0 {
		return errors.New("it is out of bounds")
	}
	return nil
}

// Total returns the bytes of output up to a cursor; false: it is not a cursor.
func Total(cursor string) (int64, bool) {
	var r Reader
	err := r.seekCursor(cursor)
	return r.total, err == nil
}

// seekTail moves before the last n lines.
func (r *Reader) seekTail(n int) error {
	gens, err := listGenerations(r.dir)
	if err != nil {
		return fmt.Errorf("read a log: %w", err)
	}
	for i := len(gens) - 1; i >= 0; i-- {
		b, err := os.ReadFile(filepath.Join(r.dir, fileName(gens[i])))
		if errors.Is(err, fs.ErrNotExist) {
			return nil // rotated away meanwhile: start after it
		}
		if err != nil {
			return fmt.Errorf("read a log: %w", err)
		}
		r.gen, r.off = gens[i], 0
		begin := 0 // offset of the first line, after the header
		if first := bytes.IndexByte(b, '\n'); first >= 0 {
			if _, is := headerOf(b[:first+1]); is {
				begin = first + 1
			}
		}
		end := bytes.LastIndexByte(b, '\n')
		for ; end >= begin && n > 0; n-- {
			end = bytes.LastIndexByte(b[:end], '\n')
		}
		if end >= begin {
			r.off = int64(end) + 1
		}
		r.total, r.known = totalIn(b[:r.off])
		if n == 0 {
			return nil
		}
	}
	return nil
}

// Read emits every complete line that exists now, or returns ErrAgain.
func (r *Reader) Read(ctx context.Context, emit func(machine.LogLine) error) error {
	for ctx.Err() == nil {
		gens, err := listGenerations(r.dir)
		if err != nil || len(gens) == 0 {
			return err
		}
		newest := gens[len(gens)-1]
		if r.gen > newest { // a cursor of an earlier log: all output is new
			r.gen, r.off, r.known = newest, 0, false
		}
		for len(gens) > 1 && gens[0] < r.gen {
			gens = gens[1:]
		}
		if gens[0] != r.gen {
			r.gen, r.off = gens[0], 0
		}
		// The newer files were listed before this one is read, so this one is complete if there are any.
		if err := r.readFile(ctx, emit); err != nil {
			return err
		}
		if r.gen == newest {
			return nil
		}
		if r.hold.needsReread(r.gen) {
			return ErrAgain
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
	if !r.hold.takeFile(r.gen, f) {
		defer f.Close()
	}
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
			l, ok := r.parseLogLine(line)
			if !ok {
				continue
			}
			if err := emit(l); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

// parseLogLine parses a line, and sets its cursor.
func (r *Reader) parseLogLine(b []byte) (machine.LogLine, bool) {
	if total, is := headerOf(b); is {
		if r.known {
			r.lost += max(total-r.total, 0)
		}
		r.known, r.total = true, total
		return machine.LogLine{}, false
	}
	p, ok := parseLine(b)
	if !ok {
		return machine.LogLine{}, false
	}
	r.total += p.outputBytes()
	l := machine.LogLine{At: p.at, Stream: string(p.stream), Part: p.tag == tagPart, Lost: r.lost}
	l.SetRaw(p.text)
	if p.tag == tagLost {
		var n int64
		if _, err := fmt.Sscanf(l.Text, lostNote, &n); err == nil {
			l.Lost += n
		}
	}
	r.lost = 0
	l.Cursor = fmt.Sprintf("%d:%d:%d", r.gen, r.off, r.total)
	return l, true
}

// parsed is a parsed line of a file.
type parsed struct {
	at     time.Time
	stream []byte
	tag    byte
	text   []byte
}

// outputBytes returns the bytes of output in the line.
func (p *parsed) outputBytes() int64 {
	switch p.tag {
	case tagPart:
		return int64(len(p.text))
	case tagLost:
		return 0
	}
	return int64(len(p.text)) + 1
}

// parseLine parses one line. A damaged line is skipped: the rest is still useful.
func parseLine(line []byte) (p parsed, ok bool) {
	at, rest, ok1 := bytes.Cut(bytes.TrimSuffix(line, []byte("\n")), []byte(" "))
	stream, rest, ok2 := bytes.Cut(rest, []byte(" "))
	tag, text, ok3 := bytes.Cut(rest, []byte(" "))
	t, err := time.Parse(time.RFC3339Nano, string(at))
	if !ok1 || !ok2 || !ok3 || err != nil || len(tag) != 1 {
		return p, false
	}
	return parsed{t, stream, tag[0], text}, true
}
