package output

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// A Spool holds output between a machine's pipe and its log, so that nothing is lost or duplicated if the process that
// moves it is killed. The kernel moves a piece from the pipe to a file of the spool, and records the new length in that
// file: one call of splice(2), which a kill does not divide. Then the piece is written to the log with a stamp that was
// recorded in the file before: by the logged lines with that stamp, the next process knows how much of the piece has
// been logged.
//
// A file belongs to one stream from before its piece is moved until all of it is in the log, including an incomplete
// line. It is not fsynced: when the host goes down, all writers end anyway.
type Spool struct {
	dir string
	off atomic.Bool // the file system lacks support: output is kept in memory

	mu   sync.Mutex
	free []*spoolFile
	made int
	left map[Source]*spoolFile // files left by an earlier process
}

// Source is one stream of one life.
type Source struct {
	Machine string
	Attempt uint64
	Stream  string // stdout or stderr
}

const (
	spoolBytes  = 256 << 10 // a file larger than this is replaced, even if a line is incomplete
	maxFreeFile = 16        // files kept open for reuse
)

// OpenSpool opens the spool in dir. Sink and Left give access to what an earlier process left in it.
func OpenSpool(dir string) (*Spool, error) {
	s := &Spool{dir: dir, left: make(map[Source]*spoolFile)}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("open the spool: %w", err)
	}
	es, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("open the spool: %w", err)
	}
	for _, e := range es {
		n, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		s.made = max(s.made, n)
		path := filepath.Join(dir, e.Name())
		if st, err := e.Info(); err == nil && st.Size() < contentAt {
			_ = os.Remove(path) // nothing was ever in it
			continue
		}
		f, err := openSpoolFile(path)
		if err != nil {
			return nil, err
		}
		src := f.head.src
		old := s.left[src]
		switch {
		case src.Machine == "":
			s.giveBack(f)
		case old == nil:
			s.left[src] = f
		case old.head.stamp > f.head.stamp: // an incomplete line had just been moved to the newer file
			s.giveBack(f)
		default:
			s.left[src] = f
			s.giveBack(old)
		}
	}
	return s, nil
}

// Left calls each with the streams of an earlier process that no Sink has taken yet, with the arguments for Open of
// their logs.
func (s *Spool) Left(each func(src Source, logBytes int64, logFiles int)) {
	s.mu.Lock()
	left := make(map[Source]head, len(s.left))
	for src, f := range s.left {
		left[src] = f.head
	}
	s.mu.Unlock()
	for src, h := range left {
		each(src, h.bytes, h.files)
	}
}

// Forget drops what an earlier process left of a stream.
func (s *Spool) Forget(src Source) {
	if f := s.takeLeft(src); f != nil {
		s.giveBack(f)
	}
}

func (s *Spool) takeLeft(src Source) *spoolFile {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.left[src]
	delete(s.left, src)
	return f
}

// takeFree returns a free file, nil if there is none.
func (s *Spool) takeFree() *spoolFile {
	if s == nil || s.off.Load() {
		return nil
	}
	s.mu.Lock()
	if n := len(s.free); n > 0 {
		f := s.free[n-1]
		s.free = s.free[:n-1]
		s.mu.Unlock()
		if f.clearContent() != nil {
			f.close()
			return nil
		}
		return f
	}
	s.made++
	path := filepath.Join(s.dir, strconv.Itoa(s.made))
	s.mu.Unlock()
	f, err := openSpoolFile(path)
	if err == nil {
		err = f.clearContent()
	}
	if err == nil {
		return f
	}
	if f != nil {
		f.close()
	}
	_ = os.Remove(path) // otherwise a full disk would leave many empty files
	if errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EINVAL) {
		s.off.Store(true)
	}
	return nil // too many open files or a full disk: the next piece retries
}

// giveBack frees a file whose content is not needed any more.
func (s *Spool) giveBack(f *spoolFile) {
	err := f.writeHead(head{})
	s.mu.Lock()
	full := err != nil || len(s.free) >= maxFreeFile
	if !full {
		s.free = append(s.free, f)
	}
	s.mu.Unlock()
	if full {
		_ = os.Remove(f.file.Name()) // if this fails, the file is free, or its content is logged again
		f.close()
	}
}

// Close closes the free files, and those left by an earlier process.
func (s *Spool) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.free {
		f.close()
	}
	for _, f := range s.left {
		f.close()
	}
	s.free, s.left = nil, nil
}
