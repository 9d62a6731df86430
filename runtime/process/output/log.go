// Package output keeps what machines print: the writer's side in the reaper, the reader's side in the worker.
//
// A machine's log is a few files in one directory, named by a generation number that only grows. A line is
//
//	2026-11-21T10:00:00.123456789Z stdout F the text
//
// where F is a whole line (or its end) and P a part of one that is longer than 16 KiB: the format that container
// runtimes write and log collectors read. Only the newest few files are kept, each of a bounded size.
package output

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// MaxPart bounds the text of one line in the log: longer ones come in parts.
const MaxPart = 16 << 10

// batch bounds how much formatted output is written at once, and so how far a file may exceed its size.
const batch = 32 << 10

const suffix = ".log"

func fileName(gen uint64) string { return fmt.Sprintf("%08d%s", gen, suffix) }

// generations lists the generations in dir, oldest first.
func generations(dir string) ([]uint64, error) {
	es, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // nothing has been printed yet
	}
	if err != nil {
		return nil, err
	}
	var out []uint64
	for _, e := range es {
		if n, ok := strings.CutSuffix(e.Name(), suffix); ok {
			if g, err := strconv.ParseUint(n, 10, 64); err == nil && g > 0 {
				out = append(out, g)
			}
		}
	}
	slices.Sort(out)
	return out, nil
}

// Log writes one machine's output. Its methods may be called from many goroutines.
type Log struct {
	dir      string
	maxBytes int64 // of one file
	files    int   // kept
	grown    func()

	mu     sync.Mutex
	closed bool
	file   *os.File // nil until the first write
	gen    uint64
	size   int64
	lost   int64 // bytes that could not be written since the last that could
}

// Open gives the log in dir. Its newest file is opened, or a first one made, when there is something to write: a
// machine that prints nothing costs nothing. grown is called after each write, with no lock held.
func Open(dir string, maxBytes int64, files int, grown func()) *Log {
	return &Log{dir: dir, maxBytes: max(maxBytes, batch), files: max(files, 2), grown: grown}
}

// ready sees to it that there is a file to write to.
func (l *Log) ready() error {
	if l.closed {
		return os.ErrClosed
	}
	if l.file != nil {
		return nil
	}
	if err := os.Mkdir(l.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("open a log: %w", err)
	}
	gens, err := generations(l.dir)
	if err != nil {
		return fmt.Errorf("open a log: %w", err)
	}
	l.gen = 1
	if len(gens) > 0 {
		l.gen = gens[len(gens)-1]
	}
	return l.open()
}

func (l *Log) open() error {
	f, err := os.OpenFile(filepath.Join(l.dir, fileName(l.gen)), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open a log file: %w", err)
	}
	st, err := f.Stat()
	if err != nil {
		return errors.Join(fmt.Errorf("open a log file: %w", err), f.Close())
	}
	l.file, l.size = f, st.Size()
	return nil
}

// Close closes the file. Later writes are dropped.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.file == nil {
		return nil
	}
	err := l.file.Close()
	l.file = nil
	return err
}

// write appends formatted lines. A machine is never held up by a full disk: what cannot be written is counted, and
// said in the log once it can be again.
func (l *Log) write(b []byte) {
	l.mu.Lock()
	err := l.ready()
	if errors.Is(err, os.ErrClosed) {
		l.mu.Unlock()
		return
	}
	if l.lost > 0 {
		note := fmt.Sprintf("souk: %d bytes of output were lost because they could not be written", l.lost)
		b = append(appendLine(nil, stamp(time.Now(), "stderr"), true, []byte(note)), b...)
	}
	if err == nil {
		err = l.rotate(int64(len(b)))
	}
	if err == nil {
		var n int
		n, err = l.file.Write(b)
		l.size += int64(n)
		if err != nil && n > 0 {
			// Half a line would run into the next one.
			_ = l.file.Truncate(l.size - int64(n))
			l.size -= int64(n)
		}
	}
	if err != nil {
		l.lost += int64(len(b))
	} else {
		l.lost = 0
	}
	l.mu.Unlock()
	l.grown()
}

// rotate begins the next file when n more bytes do not fit, and deletes the oldest.
func (l *Log) rotate(n int64) error {
	if l.size == 0 || l.size+n <= l.maxBytes {
		return nil
	}
	old := l.file
	l.gen++
	if err := l.open(); err != nil {
		l.gen--
		return err
	}
	_ = old.Close() // nothing is buffered: an error here says nothing new
	gens, err := generations(l.dir)
	if err != nil {
		return fmt.Errorf("rotate a log: %w", err)
	}
	for len(gens) > l.files {
		if err := os.Remove(filepath.Join(l.dir, fileName(gens[0]))); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("rotate a log: %w", err)
		}
		gens = gens[1:]
	}
	return nil
}

// stamp is what lines of one stream that came together begin with.
func stamp(at time.Time, stream string) []byte {
	b := make([]byte, 0, 48)
	b = at.UTC().AppendFormat(b, time.RFC3339Nano)
	b = append(b, ' ')
	return append(b, stream...)
}

func appendLine(b, stamp []byte, full bool, text []byte) []byte {
	b = append(b, stamp...)
	if full {
		b = append(b, " F "...)
	} else {
		b = append(b, " P "...)
	}
	b = append(b, text...)
	return append(b, '\n')
}

// Note writes one line of souk's own.
func (l *Log) Note(text string) {
	l.write(appendLine(nil, stamp(time.Now(), "stderr"), true, []byte(text)))
}

// Sink splits one stream into lines. It is used by one goroutine. It holds memory only while a line is unfinished.
type Sink struct {
	log     *Log
	stream  string
	pending []byte
}

// Sink gives the writer of a stream: stdout or stderr.
func (l *Log) Sink(stream string) *Sink { return &Sink{log: l, stream: stream} }

// Write takes a piece of output as it came.
func (s *Sink) Write(p []byte, at time.Time) {
	head := stamp(at, s.stream)
	out := make([]byte, 0, min(len(p)+len(p)/4+len(head), batch))
	flush := func() {
		if len(out) > 0 {
			s.log.write(out)
			out = out[:0]
		}
	}
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		text, full := p, i >= 0
		if full {
			text = p[:i]
		}
		room := MaxPart - len(s.pending)
		switch {
		case len(text) > room: // a part is full
			out = appendLine(out, head, false, append(s.pending, text[:room]...))
			s.pending, p = nil, p[room:]
		case full:
			if len(s.pending) > 0 {
				text = append(s.pending, text...)
			}
			out = appendLine(out, head, true, text)
			s.pending, p = nil, p[i+1:]
		default:
			s.pending, p = append(s.pending, text...), nil
		}
		if len(out) >= batch-MaxPart {
			flush()
		}
	}
	flush()
}

// End writes what is left without a newline.
func (s *Sink) End(at time.Time) {
	if len(s.pending) > 0 {
		s.log.write(appendLine(nil, stamp(at, s.stream), true, s.pending))
		s.pending = nil
	}
}

// Cut writes an unfinished line as a part of one, and holds nothing any more.
func (s *Sink) Cut(at time.Time) {
	if len(s.pending) > 0 {
		s.log.write(appendLine(nil, stamp(at, s.stream), false, s.pending))
		s.pending = nil
	}
}
