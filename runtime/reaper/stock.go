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

// stock holds prepared resources for starts, made between starts: pipes, and empty directories, which a start only
// renames. A start that finds none makes its own.
type stock struct {
	dir   *os.File    // the machines' directory, kept open so that a replacement is never taken for it
	users *users.Pool // nil: directories belong to the reaper's user

	mu     sync.Mutex
	pairs  []pipePair
	dirs   []unusedDir
	next   int
	making bool
	closed bool
}

// unusedDir is an empty directory and its owner; 0: the reaper's user.
type unusedDir struct {
	name string
	uid  int
}

// minStock equals the number of prepared groups (minFreeSlots).
const minStock = 4

// stockPrefix begins the names of directories in the stock: machine ids contain no dot.
const stockPrefix = ".stock-"

// openStock opens an empty stock. It removes unused directories that an earlier reaper left.
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

// makeMachineDir makes a machine's directory unless it exists, and returns its owner; 0: the reaper's user, or unknown.
func (s *stock) makeMachineDir(id string) (uid int, err error) {
	s.mu.Lock()
	var unused unusedDir
	if n := len(s.dirs); n > 0 {
		unused, s.dirs = s.dirs[n-1], s.dirs[:n-1]
	}
	s.mu.Unlock()
	if unused.name != "" {
		// Do not replace an existing directory: a machine may be running in it.
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

// makeDir makes a directory. If there is a pool of users, the directory gets an owner of its own.
func (s *stock) makeDir(name string) (uid int, err error) {
	if err := unix.Mkdirat(s.dirFD(), name, 0o700); err != nil {
		return 0, &fs.PathError{Op: "mkdir", Path: filepath.Join(s.dir.Name(), name), Err: err}
	}
	if s.users == nil {
		return 0, nil
	}
	if uid, err = s.users.Take(); err != nil {
		return 0, nil // the start that needs a user reports the error
	}
	if err := unix.Fchownat(s.dirFD(), name, uid, uid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		s.users.Give(uid)
		return 0, nil // the start reports the error
	}
	return uid, nil
}

// discardDir removes a directory of the stock.
func (s *stock) discardDir(d unusedDir) {
	if s.removeEmptyDir(d.name) == nil && s.users != nil { // if this fails, the next reaper removes it
		s.users.Give(d.uid)
	}
}

// takePipes returns the pipes for one life.
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

// makeMissing refills the stock in the background.
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

// makeOne makes one missing resource, and reports whether to continue. It ignores errors: the start that needs the
// resource reports them.
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

// close removes the directories, at the end of the reaper. The pipes end with the process.
func (s *stock) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.dirs {
		s.discardDir(d)
	}
	s.dirs, s.closed = nil, true
}

// pipePair is the stdout and stderr of a future life.
type pipePair [2]pipe

// pipe is one pipe of a pair.
type pipe struct {
	s   *stream
	end int // the machine's end
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

// newPipe makes a pipe. The machine's end is open for reading too, so that a write never fails with EPIPE while no
// reaper reads: it waits for the next reaper, which reopens the pipe through /proc/PID/fd.
func newPipe(name string) (pipe, error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return pipe{}, fmt.Errorf("make a pipe: %w", err)
	}
	// The machine's end is blocking.
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

// openStreams returns the reaper's ends, each with its sink.
func (p pipePair) openStreams(sink func(name string) *output.Sink) (s [2]*stream) {
	for i := range p {
		s[i] = p[i].s
		s[i].sink = sink(s[i].name)
	}
	return s
}

// closeEnds closes this process's copies of the machine's ends.
func (p pipePair) closeEnds() {
	for i := range p {
		_ = syscall.Close(p[i].end)
	}
}
