package reaper

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/runtime/reaper/output"
)

// stream is the reaper's end of a machine's stdout or stderr.
type stream struct {
	name  string
	file  *os.File
	inode uint64
	sink  *output.Sink

	fd      int         // of file, which hides it
	resting atomic.Bool // the pump stops for an upgrade and may be started again
	over    atomic.Bool // the program has ended: what is left of its output waits for nobody
	ended   bool        // read to the end; written by the pump

	screen *screen // of a terminal; nil: it is a pipe
}

// screen is what is shown on a terminal, to those who are attached. What one of them does not take for sendPatience
// cuts that one off; until then the terminal's programs wait, as on any terminal.
type screen struct {
	mu      sync.Mutex
	backlog []byte // what was written last
	viewers map[*conn]uint32
}

// maxBacklog bounds what is remembered of a terminal, in bytes.
const maxBacklog = 64 << 10

// showOutput shows what was written. p is not kept.
func (s *screen) showOutput(p []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.backlog = append(s.backlog, p...)
	if over := len(s.backlog) - maxBacklog; over > maxBacklog/4 {
		s.backlog = append([]byte(nil), s.backlog[over:]...)
	}
	by := time.Now().Add(sendPatience) // one for all: the program, and the end of the machine, wait for it
	for c, id := range s.viewers {
		c.sendOutput(id, p, by)
	}
}

// addConn has a connection shown what is written from now on.
func (s *screen) addConn(c *conn, id uint32, backlog bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if backlog && len(s.backlog) > 0 {
		c.sendOutput(id, s.backlog, time.Now().Add(sendPatience))
	}
	if s.viewers == nil {
		s.viewers = make(map[*conn]uint32)
	}
	s.viewers[c] = id
}

func (s *screen) removeConn(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.viewers, c)
}

// openTerminal makes the stream of a terminal's near end, which is the stream's from then on.
func openTerminal(near *os.File, sink *output.Sink) (*stream, error) {
	raw, err := near.SyscallConn()
	if err != nil {
		return nil, err
	}
	s := &stream{name: "stdout", file: near, sink: sink, screen: new(screen)}
	var st unix.Stat_t
	cerr := raw.Control(func(fd uintptr) { s.fd, err = int(fd), unix.Fstat(int(fd), &st) })
	s.inode = st.Ino
	return s, errors.Join(err, cerr)
}

// takeOutput moves what there is into the log, and shows it.
func (s *stream) takeOutput(fd int, buf []byte) error {
	if s.screen == nil {
		return s.sink.Take(fd, buf)
	}
	n, err := syscall.Read(fd, buf)
	switch {
	case errors.Is(err, syscall.EIO), n == 0 && err == nil: // nobody has the far end
		return io.EOF
	case err != nil:
		return err
	}
	s.sink.Write(buf[:n], time.Now())
	s.screen.showOutput(buf[:n])
	return nil
}

// buffers are shared by all pumps: a pump has one only while there is something to read.
type buffers struct{ pool sync.Pool }

const readSize = 32 << 10

// openStream makes the stream of a pipe. sink may be nil, and set before the stream is read.
func openStream(name string, fd int, sink *output.Sink) (*stream, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("look at a pipe: %w", err)
	}
	return &stream{name: name, fd: fd, file: os.NewFile(uintptr(fd), name), inode: st.Ino, sink: sink}, nil
}

// reopenPipe finds the pipe of a life whose reaper is gone. It must be the very pipe that was recorded: the machine may
// have put something else in its place, for good or, as a shell does while it redirects one command, for a moment.
// Then it has it under another number, or another process of the machine does.
func reopenPipe(pids []int, fd int, name string, inode uint64, sink *output.Sink) (*stream, error) {
	for range 5 { // descriptors that are moved about may be missed
		for _, pid := range pids {
			f, err := openPipe(fmt.Sprintf("/proc/%d/fd/%d", pid, fd), inode)
			if err == nil {
				return openStream(name, f, sink)
			}
			es, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid)) // it has ended, or is not ours to look at
			for _, e := range es {
				if f, err := openPipe(fmt.Sprintf("/proc/%d/fd/%s", pid, e.Name()), inode); err == nil {
					return openStream(name, f, sink)
				}
			}
		}
	}
	return nil, fmt.Errorf("the machine has replaced its %s: its output is no longer captured", name)
}

// openPipe opens the reading end of a pipe, if that is what lies at path.
func openPipe(path string, inode uint64) (int, error) {
	at, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(at)
	var st unix.Stat_t
	if err := unix.Fstat(at, &st); err != nil {
		return -1, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFIFO || st.Ino != inode {
		return -1, unix.ENOENT
	}
	return unix.Open("/proc/self/fd/"+strconv.Itoa(at), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
}

// pumps are what reads a life's output: a goroutine for each stream.
type pumps struct {
	mu   sync.Mutex
	n    int
	none chan struct{} // closed when n is 0 again; nil: nobody asked yet
}

// startPump reads a stream.
func (p *pumps) startPump(s *stream) {
	p.expectPumps(1)
	p.runPump(s)
}

// expectPumps counts n pumps that will run: rested waits for them from here on.
func (p *pumps) expectPumps(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.n += n
}

// runPump reads a stream that was expected.
func (p *pumps) runPump(s *stream) {
	go func() {
		s.pumpOutput()
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.n--; p.n == 0 && p.none != nil {
			close(p.none)
			p.none = nil
		}
	}()
}

// whenRested gives a channel that is closed when no pump runs.
func (p *pumps) whenRested() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.n == 0 {
		return closed
	}
	if p.none == nil {
		p.none = make(chan struct{})
	}
	return p.none
}

// closed holds no state: it is what a channel is that nobody waits for.
var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }() //nolint:gochecknoglobals // a constant

// pumpOutput reads until every writer is gone, or the file is closed.
func (s *stream) pumpOutput() { s.pumpWith(&shared) }

// shared holds no state, only memory that is not in use.
var shared = buffers{pool: sync.Pool{New: func() any { b := make([]byte, readSize); return &b }}}

// awaitReader waits for the log's reader. What is not taken from the pipe has the program wait.
func (s *stream) awaitReader() {
	for wait := time.Millisecond; s.sink.Full() && !s.resting.Load() && !s.over.Load(); wait = min(2*wait, slowest) {
		time.Sleep(wait) // the reader is another process, which tells nobody how far it is
	}
}

// slowest is how long a program may wait although its reader has read on.
const slowest = 32 * time.Millisecond

func (s *stream) pumpWith(bufs *buffers) {
	raw, err := s.file.SyscallConn()
	for err == nil {
		s.awaitReader()
		var rerr error
		err = raw.Read(func(fd uintptr) bool {
			b := bufs.pool.Get().(*[]byte)
			defer bufs.pool.Put(b)
			switch e := s.takeOutput(int(fd), *b); {
			case errors.Is(e, syscall.EAGAIN):
				return false
			case e != nil && !errors.Is(e, syscall.EINTR):
				rerr = e
			}
			return true
		})
		err = errors.Join(err, rerr)
	}
	if s.resting.Load() && errors.Is(err, os.ErrDeadlineExceeded) {
		return
	}
	s.ended = true
	s.sink.Cut(time.Now())
	_ = s.file.Close()
}
