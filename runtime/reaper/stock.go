package reaper

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/runtime/reaper/output"
	"github.com/soukhq/souk/runtime/reaper/users"
)

// stock is what a start needs and is of no machine yet, made beforehand, between two starts: pipes, and empty
// directories, which only get their names in a start. A start that finds none makes its own.
type stock struct {
	dir   *os.File    // of the machines: held, so that one that is made in its place is never taken for it
	users *users.Pool // nil: directories are whoever's the reaper is

	mu     sync.Mutex
	pairs  []pipePair
	dirs   []unusedDir
	next   int
	making bool
	closed bool
}

// unusedDir is an empty directory, and whose it is; 0: the reaper's.
type unusedDir struct {
	name string
	uid  int
}

// minStock is as many as there are groups for later (minFreeSlots).
const minStock = 4

// stockPrefix begins the names of directories that are of no machine: no machine id has a dot.
const stockPrefix = ".stock-"

// openStock makes none yet. It removes the directories that a reaper before this one has left, which nobody ever used.
func openStock(dir string) (*stock, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	s := &stock{dir: f}
	names, err := f.Readdirnames(-1)
	for _, name := range names {
		if err == nil && strings.HasPrefix(name, stockPrefix) {
			err = s.removeEmptyDir(name)
		}
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return s, nil
}

func (s *stock) dirFD() int { return int(s.dir.Fd()) }

// removeEmptyDir removes an empty directory.
func (s *stock) removeEmptyDir(name string) error {
	if err := unix.Unlinkat(s.dirFD(), name, unix.AT_REMOVEDIR); err != nil {
		return &fs.PathError{Op: "rmdir", Path: filepath.Join(s.dir.Name(), name), Err: err}
	}
	return nil
}

// makeMachineDir makes a machine's directory, unless it is there, and gives whose it is; 0: the reaper's, or not known.
func (s *stock) makeMachineDir(id string) (uid int, err error) {
	s.mu.Lock()
	var unused unusedDir
	if n := len(s.dirs); n > 0 {
		unused, s.dirs = s.dirs[n-1], s.dirs[:n-1]
	}
	s.mu.Unlock()
	if unused.name != "" {
		// A directory that is there must not be replaced: a machine may work in it.
		err := unix.Renameat2(s.dirFD(), unused.name, s.dirFD(), id, unix.RENAME_NOREPLACE)
		if err == nil {
			return unused.uid, nil
		}
		s.discardDir(unused)
	}
	uid, err = s.makeDir(id)
	if errors.Is(err, fs.ErrExist) {
		err = nil
	}
	return uid, err
}

// makeDir makes a directory, and with users one of a user of its own, whom nobody else has.
func (s *stock) makeDir(name string) (uid int, err error) {
	if err := unix.Mkdirat(s.dirFD(), name, 0o700); err != nil {
		return 0, &fs.PathError{Op: "mkdir", Path: filepath.Join(s.dir.Name(), name), Err: err}
	}
	if s.users == nil {
		return 0, nil
	}
	if uid, err = s.users.Take(); err != nil {
		return 0, nil // the start that needs it says why
	}
	if err := unix.Fchownat(s.dirFD(), name, uid, uid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		s.users.Give(uid)
		return 0, nil // so does the start
	}
	return uid, nil
}

// discardDir removes a directory of the stock.
func (s *stock) discardDir(d unusedDir) {
	if s.removeEmptyDir(d.name) == nil && s.users != nil { // where it stays, the next reaper removes it
		s.users.Give(d.uid)
	}
}

// takePipes gives the pipes for one life.
func (s *stock) takePipes() (pipePair, error) {
	s.mu.Lock()
	if n := len(s.pairs); n > 0 {
		p := s.pairs[n-1]
		s.pairs = s.pairs[:n-1]
		s.mu.Unlock()
		return p, nil
	}
	s.mu.Unlock()
	return newPipePair()
}

// makeMissing makes what is missing, beside the caller.
func (s *stock) makeMissing(pool *workerPool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.making || len(s.pairs) >= minStock && len(s.dirs) >= minStock {
		return
	}
	s.making = true
	pool.runBeside(s.fillStock)
}

func (s *stock) fillStock() {
	for s.makeOne() {
	}
}

// makeOne makes one of what is missing most, and reports whether there may be more to make. What cannot be made is
// left: the start that needs it says why.
func (s *stock) makeOne() bool {
	s.mu.Lock()
	pair, dir := !s.closed && len(s.pairs) < minStock, !s.closed && len(s.dirs) < minStock
	s.making = pair || dir
	s.next++
	name := stockPrefix + strconv.Itoa(s.next)
	s.mu.Unlock()
	var p pipePair
	var err error
	made := unusedDir{name: name}
	switch {
	case dir:
		made.uid, err = s.makeDir(name)
	case pair:
		p, err = newPipePair()
	default:
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil:
		s.making = false
	case dir && s.closed:
		s.discardDir(made)
	case dir:
		s.dirs = append(s.dirs, made)
	default:
		s.pairs = append(s.pairs, p)
	}
	return err == nil
}

// close removes the directories, at the end of the reaper. The pipes end with it.
func (s *stock) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.dirs {
		s.discardDir(d)
	}
	s.dirs, s.closed = nil, true
}

// pipePair is stdout and stderr of a life to be.
type pipePair [2]pipe

// pipe is one of them.
type pipe struct {
	s   *stream
	end int // for the machine
}

var streamNames = [2]string{"stdout", "stderr"} //nolint:gochecknoglobals // a constant

func newPipePair() (p pipePair, err error) {
	for i, name := range streamNames {
		if p[i], err = newPipe(name); err != nil {
			if i > 0 {
				_ = p[0].s.file.Close()
				_ = syscall.Close(p[0].end)
			}
			return pipePair{}, err
		}
	}
	return p, nil
}

// newPipe makes a pipe. Its end for the machine is open for reading too, so that a write never fails with EPIPE while
// no reaper reads: it waits for the next one, which opens the pipe again through /proc/PID/fd.
func newPipe(name string) (pipe, error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return pipe{}, fmt.Errorf("make a pipe: %w", err)
	}
	// The machine's may block.
	end, err := unix.Open("/proc/self/fd/"+strconv.Itoa(p[0]), unix.O_RDWR|unix.O_CLOEXEC, 0)
	_ = unix.Close(p[1])
	if err != nil {
		_ = unix.Close(p[0])
		return pipe{}, fmt.Errorf("open a pipe both ways: %w", err)
	}
	s, err := openStream(name, p[0], nil)
	if err != nil {
		_, _ = unix.Close(p[0]), unix.Close(end)
		return pipe{}, err
	}
	return pipe{s, end}, nil
}

// openStreams gives the reaper's ends, each with its sink.
func (p pipePair) openStreams(sink func(name string) *output.Sink) (s [2]*stream) {
	for i := range p {
		s[i] = p[i].s
		s[i].sink = sink(s[i].name)
	}
	return s
}

// closeEnds closes the machine's ends, which the machine has for itself.
func (p pipePair) closeEnds() {
	for i := range p {
		_ = syscall.Close(p[i].end)
	}
}
