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

// A Spool is where output lies between a machine's pipe and its log, so that nothing is lost or doubled when the
// process that carries it is killed in between. The kernel itself moves a piece out of the pipe and into a file of the
// spool, and notes in the file how much there is now: one call of splice(2), which a kill does not divide. Then the
// piece is written into the log, under a stamp that is in the file beforehand: by the lines that have it the next
// process knows what of the piece is in the log already.
//
// A file belongs to one stream from before its piece is moved until all of it is in the log, an unfinished line too. It
// is not fsynced: when the host goes down all that printed is over.
type Spool struct {
	dir string
	off atomic.Bool // its file system cannot do it: output is carried in memory only

	mu   sync.Mutex
	free []*spoolFile
	made int
	left map[Source]*spoolFile // of an earlier process
}

// Source is one stream of one life.
type Source struct {
	Machine string
	Attempt uint64
	Stream  string // stdout or stderr
}

const (
	spoolBytes  = 256 << 10 // an unfinished line leaves a file that has grown to this
	maxFreeFile = 16        // files that are kept open for the next piece
)

// OpenSpool opens the spool in dir. What an earlier process left there waits for Sink and Left.
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
		case old.head.stamp > f.head.stamp: // an unfinished line had just been moved over to the newer of the two
			s.giveBack(f)
		default:
			s.left[src] = f
			s.giveBack(old)
		}
	}
	return s, nil
}

// Left lists the streams of which an earlier process left something that has not been given to a Sink, with what Open
// is to be told of their logs.
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

// takeFree gives a free file; nil when there is none to be had.
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
	_ = os.Remove(path) // or many stay behind a disk that was full for a while
	if errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EINVAL) {
		s.off.Store(true)
	}
	return nil // no descriptor or a full disk: it is tried again with the next piece
}

// giveBack takes a file back whose content nobody needs any more.
func (s *Spool) giveBack(f *spoolFile) {
	err := f.writeHead(head{})
	s.mu.Lock()
	full := err != nil || len(s.free) >= maxFreeFile
	if !full {
		s.free = append(s.free, f)
	}
	s.mu.Unlock()
	if full {
		_ = os.Remove(f.file.Name()) // one that stays is free, or is written into its log again
		f.close()
	}
}

// Close closes the files that are free, and those that nobody asked for.
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
