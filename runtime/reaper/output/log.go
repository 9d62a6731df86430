// Package output keeps what machines print: the writer's side in the reaper, the reader's side in the worker.
//
// A machine's log is a few files in one directory, named by a generation number that only grows. A line is
//
//	2026-11-21T10:00:00.123456789Z stdout F the text
//
// where F is a whole line (or its end) and P a part of one that is longer than 16 KiB, or that has no newline: the
// format that container runtimes write and log collectors read. L is a line of souk's own that says how much could not
// be written. Only the newest few files are kept, each of a bounded size. A file begins with a line that says how much
// output there was before it, so that who reads knows what it has missed.
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

// header is what a file begins with, before the bytes of output that went into those before it.
const header = "souk-log "

func fileName(gen uint64) string { return fmt.Sprintf("%08d%s", gen, suffix) }

// listGenerations lists the generations in dir, oldest first.
func listGenerations(dir string) ([]uint64, error) {
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
	total  int64 // bytes of output in this file and those before
	lost   int64 // bytes of output that could not be written since the last that could

	read   bool      // it has a reader who is waited for, or will have
	absent time.Time // since when he is missing; zero: he is there, or nobody has looked
	kept   int       // files, when last counted
}

// Open gives the log in dir. Its newest file is opened, or a first one made, when there is something to write: a
// machine that prints nothing costs nothing. grown is called after each write, with no lock held.
func Open(dir string, maxBytes int64, files int, grown func()) *Log {
	return &Log{dir: dir, maxBytes: max(maxBytes, batch), files: max(files, 2), grown: grown}
}

// ensureFile sees to it that there is a file to write to.
func (l *Log) ensureFile() error {
	if l.closed {
		return os.ErrClosed
	}
	if l.file != nil {
		return nil
	}
	if err := os.Mkdir(l.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("open a log: %w", err)
	}
	gens, err := listGenerations(l.dir)
	if err != nil {
		return fmt.Errorf("open a log: %w", err)
	}
	l.gen, l.kept, l.read = 1, len(gens), hasReader(l.dir)
	if len(gens) > 0 {
		l.gen = gens[len(gens)-1]
	}
	return l.openFile()
}

func (l *Log) openFile() error {
	f, err := os.OpenFile(filepath.Join(l.dir, fileName(l.gen)), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open a log file: %w", err)
	}
	size, err := mendTail(f)
	if err == nil && size == 0 {
		var n int
		n, err = fmt.Fprintf(f, "%s%d\n", header, l.total)
		size = int64(n)
	} else if err == nil && l.file == nil {
		l.total, err = totalOf(f, size)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("open a log file: %w", err), f.Close())
	}
	l.file, l.size = f, size
	return nil
}

// totalOf counts the bytes of output up to the end of a file.
func totalOf(f *os.File, size int64) (n int64, err error) {
	b := make([]byte, size)
	if _, err := f.ReadAt(b, 0); err != nil {
		return 0, err
	}
	n, _ = totalIn(b)
	return n, nil
}

// totalIn counts the bytes of output up to the end of what a file begins with. known says that those before the file
// are among them.
func totalIn(b []byte) (n int64, known bool) {
	for line := range bytes.Lines(b) {
		if before, is := headerOf(line); is {
			n, known = before, true
		} else if l, ok := parseLine(line); ok {
			n += l.outputBytes()
		}
	}
	return n, known
}

// headerOf reads the line that a file begins with.
func headerOf(line []byte) (total int64, is bool) {
	rest, is := bytes.CutPrefix(line, []byte(header))
	if !is {
		return 0, false
	}
	n, err := strconv.ParseInt(string(bytes.TrimSuffix(rest, []byte("\n"))), 10, 64)
	return n, err == nil && n >= 0
}

// mendTail cuts off a line that a process did not live to write to its end, and gives the size of the file. The next
// line would become a part of it.
func mendTail(f *os.File) (size int64, err error) {
	st, err := f.Stat()
	if err != nil || st.Size() == 0 {
		return 0, err
	}
	size = st.Size()
	for end, n := size, int64(1); end > 0; n = min(end, 2*batch) { // most often the last byte is it
		b := make([]byte, n)
		if _, err := f.ReadAt(b, end-n); err != nil {
			return 0, err
		}
		i := bytes.LastIndexByte(b, '\n')
		if i < 0 {
			end -= n
			continue
		}
		if end += int64(i+1) - n; end < size {
			err = f.Truncate(end)
		}
		return end, err
	}
	return 0, f.Truncate(0)
}

// loggedBytes counts the bytes of a stream's output that lines of one stamp hold.
func (l *Log) loggedBytes(prefix []byte) (n int64, err error) {
	gens, err := listGenerations(l.dir)
	if err != nil {
		return 0, fmt.Errorf("read a log: %w", err)
	}
	for _, g := range gens {
		b, err := os.ReadFile(filepath.Join(l.dir, fileName(g)))
		if err != nil {
			return 0, fmt.Errorf("read a log: %w", err)
		}
		for line := range bytes.Lines(b) {
			rest, ok := bytes.CutPrefix(line, prefix)
			switch {
			case !ok || line[len(line)-1] != '\n':
			case bytes.HasPrefix(rest, []byte(" F ")):
				n += int64(len(rest) - len(" F "))
			case bytes.HasPrefix(rest, []byte(" P ")):
				n += int64(len(rest) - len(" P ") - 1)
			}
		}
	}
	return n, nil
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

// writeLines appends formatted lines that hold so many bytes of output. A machine is never held up by a full disk: what
// cannot be written is counted, and said in the log once it can be again.
func (l *Log) writeLines(b []byte, output int64) {
	l.mu.Lock()
	err := l.ensureFile()
	if errors.Is(err, os.ErrClosed) {
		l.mu.Unlock()
		return
	}
	if l.lost > 0 {
		note := fmt.Sprintf(lostNote, l.lost)
		b = append(appendLine(nil, linePrefix(time.Now(), "stderr"), tagLost, []byte(note)), b...)
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
		l.lost += output
	} else {
		l.lost = 0
		l.total += output
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
	if err := l.openFile(); err != nil {
		l.gen--
		return err
	}
	_ = old.Close() // nothing is buffered: an error here says nothing new
	_, err := l.trimLocked()
	return err
}

// linePrefix is what lines of one stream that came together begin with.
func linePrefix(at time.Time, stream string) []byte {
	b := make([]byte, 0, 48)
	b = at.UTC().AppendFormat(b, time.RFC3339Nano)
	b = append(b, ' ')
	return append(b, stream...)
}

// Tags of lines.
const (
	tagFull = 'F'
	tagPart = 'P'
	tagLost = 'L'
)

// lostNote is the text of a line that says how many bytes could not be written.
const lostNote = "souk: %d bytes of output were lost because they could not be written"

func appendLine(b, stamp []byte, tag byte, text []byte) []byte {
	b = append(b, stamp...)
	b = append(b, ' ', tag, ' ')
	b = append(b, text...)
	return append(b, '\n')
}

// Note writes one line of souk's own.
func (l *Log) Note(text string) {
	l.writeLines(appendLine(nil, linePrefix(time.Now(), "stderr"), tagFull, []byte(text)), int64(len(text))+1)
}
