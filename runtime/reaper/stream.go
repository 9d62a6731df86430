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

	fd      int         // file's descriptor, which os.File hides
	resting atomic.Bool // the pump stops for an upgrade and may be started again
	over    atomic.Bool // the program has ended: the rest of its output is read without waiting for the log's reader
	ended   bool        // read to the end; written by the pump

	screen *screen // set for a terminal; nil for a pipe
}

// pipe returns the inode of the stream's pipe; 0: the program writes to a file, and there is no stream (nil).
func (s *stream) pipe() uint64 {
	if s == nil {
		return 0
	}
	return s.inode
}

// screen sends a terminal's output to those who are attached. A viewer that does not accept output for sendPatience is
// disconnected; until then the terminal's programs wait, as on any terminal.
type screen struct {
	mu      sync.Mutex
	backlog []byte // the latest output
	viewers map[*conn]uint32
}

// maxBacklog bounds how much of a terminal's latest output is kept, in bytes.
const maxBacklog = 64 << 10

// showOutput sends output to all viewers. It does not keep p.
func (s *screen) showOutput(p []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.backlog = append(s.backlog, p...)
	if over := len(s.backlog) - maxBacklog; over > maxBacklog/4 {
		s.backlog = append([]byte(nil), s.backlog[over:]...)
	}
	// one deadline for all viewers: the program and the end of the machine wait for them
	by := time.Now().Add(sendPatience)
	for c, id := range s.viewers {
		c.sendOutput(id, p, by)
	}
}

// addConn makes a connection a viewer: it receives all output from now on.
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

// openTerminal makes a stream from the near end of a terminal, and takes ownership of it.
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

// takeOutput moves the available output into the log and shows it on the screen.
func (s *stream) takeOutput(fd int, buf []byte) error {
	if s.screen == nil {
		return s.sink.Take(fd, buf)
	}
	n, err := syscall.Read(fd, buf)
	switch {
	case errors.Is(err, syscall.EIO), n == 0 && err == nil: // no process has the far end open
		return io.EOF
	case err != nil:
		return err
	}
	s.sink.Write(buf[:n], time.Now())
	s.screen.showOutput(buf[:n])
	return nil
}

// buffers are shared by all pumps. A pump holds one only while there is something to read.
type buffers struct{ pool sync.Pool }

const readSize = 32 << 10

// openStream makes the stream of a pipe. sink may be nil if it is set before the stream is read.
func openStream(name string, fd int, sink *output.Sink) (*stream, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("look at a pipe: %w", err)
	}
	return &stream{name: name, fd: fd, file: os.NewFile(uintptr(fd), name), inode: st.Ino, sink: sink}, nil
}

// reopenPipe finds a pipe of a life whose reaper is gone. Only the pipe that was recorded is accepted: the program may
// have replaced the descriptor, permanently or (as a shell does while it redirects one command) for a moment. In that
// case the pipe is looked for under other descriptor numbers and in the machine's other processes.
func reopenPipe(pids []int, fd int, name string, inode uint64, sink *output.Sink) (*stream, error) {
	for range 5 { // a descriptor that is being moved may be missed
		for _, pid := range pids {
			f, err := openPipe(fmt.Sprintf("/proc/%d/fd/%d", pid, fd), inode)
			if err == nil {
				return openStream(name, f, sink)
			}
			// an error: the process has ended, or may not be inspected
			es, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
			for _, e := range es {
				if f, err := openPipe(fmt.Sprintf("/proc/%d/fd/%s", pid, e.Name()), inode); err == nil {
					return openStream(name, f, sink)
				}
			}
		}
	}
	return nil, fmt.Errorf("the machine has replaced its %s: its output is no longer captured", name)
}

// openPipe opens the reading end of a pipe, if path leads to the pipe with this inode.
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

// pumps are the goroutines that read a life's output, one for each stream.
type pumps struct {
	mu   sync.Mutex
	n    int
	none chan struct{} // closed when n is 0 again; nil: whenRested was not called
}

// startPump starts to read a stream.
func (p *pumps) startPump(s *stream) {
	p.expectPumps(1)
	p.runPump(s)
}

// expectPumps counts n pumps that will be started: from now on whenRested waits for them.
func (p *pumps) expectPumps(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.n += n
}

// runPump starts to read a stream that expectPumps has counted.
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

// whenRested returns a channel that is closed when no pump runs.
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

// closed is a closed channel, returned where there is nothing to wait for. It holds no state.
var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }() //nolint:gochecknoglobals // a constant

// pumpOutput reads until every writer is gone or the file is closed.
func (s *stream) pumpOutput() { s.pumpWith(&shared) }

// shared holds no state, only unused buffers.
var shared = buffers{pool: sync.Pool{New: func() any { b := make([]byte, readSize); return &b }}}

// awaitReader waits while the log is full. Meanwhile the pipe is not read, so that the program waits too.
func (s *stream) awaitReader() {
	for wait := time.Millisecond; s.sink.Full() && !s.resting.Load() && !s.over.Load(); wait = min(2*wait, slowest) {
		time.Sleep(wait) // polls, because the reader is another process that does not report its progress
	}
}

// slowest bounds how long a program waits after the reader has made room in the log.
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
