// Package output stores what machines print: the writer's side for the reaper, the reader's side for the worker.
//
// A machine's log is a few files in one directory, named by ascending generation numbers. A line is
//
//	2026-11-21T10:00:00.123456789Z stdout F the text
//
// where F marks a whole line (or its end) and P a part of a line that is longer than 16 KiB or has no newline: the
// format that container runtimes write and log collectors read. L marks a line of souk's own that says how much output
// could not be written. Only the newest few files are kept, each of a bounded size. A file begins with a header line
// that says how much output came before it, so that a reader knows what it has missed.
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

// MaxPart bounds the text of one line in the log: longer lines are split into parts.
const MaxPart = 16 << 10

// batch bounds the formatted output written at once, and so how far a file may exceed its size.
const batch = 32 << 10

const suffix = ".log"

// header begins a file's header line; the bytes of output in all earlier files follow.
const header = "souk-log "

func fileName(gen uint64) string { return fmt.Sprintf("%08d%s", gen, suffix) }

// listGenerations lists the generation numbers in dir, oldest first.
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
	maxBytes int64 // size of one file
	files    int   // number of files kept
	grown    func()

	mu     sync.Mutex
	closed bool
	file   *os.File // nil until the first write
	gen    uint64
	size   int64
	total  int64 // bytes of output in this file and all earlier ones
	lost   int64 // bytes of output lost since the last successful write

	read   bool      // a reader is waited for
	absent time.Time // since when the reader is missing; zero: present, or not checked yet
	kept   int       // number of files at the last count
}

// Open returns the log in dir. It opens no file before the first write: a machine that prints nothing costs nothing.
// grown is called after each write, without a lock held.
func Open(dir string, maxBytes int64, files int, grown func()) *Log {
	return &Log{dir: dir, maxBytes: max(maxBytes, batch), files: max(files, 2), grown: grown}
}

// ensureFile opens the newest file for writing, or makes the first.
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

// totalOf returns the bytes of output up to the end of a file.
func totalOf(f *os.File, size int64) (n int64, err error) {
	b := make([]byte, size)
	if _, err := f.ReadAt(b, 0); err != nil {
		return 0, err
	}
	n, _ = totalIn(b)
	return n, nil
}

// totalIn counts the bytes of output in the beginning of a file. known means that it includes those of earlier files,
// from the file's header.
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

// headerOf parses a file's header line.
func headerOf(line []byte) (total int64, is bool) {
	rest, is := bytes.CutPrefix(line, []byte(header))
	if !is {
		return 0, false
	}
	n, err := strconv.ParseInt(string(bytes.TrimSuffix(rest, []byte("\n"))), 10, 64)
	return n, err == nil && n >= 0
}

// mendTail cuts off an incomplete last line, whose writer was killed, and returns the size of the file. Otherwise the
// next line would merge with it.
func mendTail(f *os.File) (size int64, err error) {
	st, err := f.Stat()
	if err != nil || st.Size() == 0 {
		return 0, err
	}
	size = st.Size()
	for end, n := size, int64(1); end > 0; n = min(end, 2*batch) { // usually the last byte is a newline
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

// loggedBytes counts the output bytes in the lines with a certain stamp and stream.
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

// writeLines appends formatted lines that contain so many bytes of output. A full disk never blocks a machine: output
// that cannot be written is counted, and reported in the log once writing works again.
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
			// Half a line would merge with the next one.
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

// rotate starts the next file if n more bytes do not fit, and deletes the oldest.
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
	_ = old.Close() // nothing is buffered, so an error here does not matter
	_, err := l.trimLocked()
	return err
}

// linePrefix returns the beginning of lines of one stream and time.
func linePrefix(at time.Time, stream string) []byte {
	b := make([]byte, 0, 48)
	b = at.UTC().AppendFormat(b, time.RFC3339Nano)
	b = append(b, ' ')
	return append(b, stream...)
}

// The tags of lines.
const (
	tagFull = 'F'
	tagPart = 'P'
	tagLost = 'L'
)

// lostNote is the text of a line that reports lost output.
const lostNote = "souk: %d bytes of output were lost because they could not be written"

func appendLine(b, stamp []byte, tag byte, text []byte) []byte {
	b = append(b, stamp...)
	b = append(b, ' ', tag, ' ')
	b = append(b, text...)
	return append(b, '\n')
}

// Note writes one line of souk's own to the log.
func (l *Log) Note(text string) {
	l.writeLines(appendLine(nil, linePrefix(time.Now(), "stderr"), tagFull, []byte(text)), int64(len(text))+1)
}
