package wire

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
)

// A command's streams cross as frames, in both directions at once: one byte for the kind, four for the length
// (big-endian), then the payload. Readers ignore frames of an unknown kind, so that kinds can be added.
const (
	frameOrder  = 'o' // to the worker, first: an execOrder
	frameStdin  = 'i' // to the worker; an empty one ends stdin
	frameSize   = 's' // to the worker: a machine.WindowSize
	frameStdout = '1'
	frameStderr = '2'
	frameExit   = 'x' // from the worker, last: an execEnd
)

const (
	maxFrame = 1 << 20 // bytes
	chunk    = 32 << 10
)

type execOrder struct {
	ref
	Argv  []string `json:"argv"`
	User  string   `json:"user,omitempty"`
	Dir   string   `json:"dir,omitempty"`
	Stdin bool     `json:"stdin,omitempty"`

	Terminal *machine.Terminal `json:"terminal,omitempty"`
	Attach   bool              `json:"attach,omitempty"`
	Backlog  bool              `json:"backlog,omitempty"`
}

type execEnd struct {
	Code    int      `json:"code"`
	Problem *problem `json:"problem,omitempty"`
}

func writeFrame(w io.Writer, kind byte, payload []byte) error {
	_, err := w.Write(appendFrame(make([]byte, 0, 5+len(payload)), kind, payload))
	return err
}

func appendFrame(to []byte, kind byte, payload []byte) []byte {
	to = binary.BigEndian.AppendUint32(append(to, kind), uint32(len(payload)))
	return append(to, payload...)
}

func readFrame(r io.Reader) (kind byte, payload []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > maxFrame {
		return 0, nil, fault.New(fault.Invalid, fault.CodeFrame, "a frame of %d bytes; at most %d", n, maxFrame)
	}
	payload = make([]byte, n)
	_, err = io.ReadFull(r, payload)
	return head[0], payload, err
}

// stdinReader returns the bytes of the stdin frames.
type stdinReader struct {
	from  io.Reader
	size  func(machine.WindowSize) // called with each size of the terminal; nil: there is no terminal
	left  []byte
	ended error
}

// Read waits for the next frame when the last is used up.
func (s *stdinReader) Read(p []byte) (int, error) {
	for len(s.left) == 0 && s.ended == nil {
		kind, payload, err := readFrame(s.from)
		switch {
		case err != nil:
			s.ended = io.ErrUnexpectedEOF // stdin should end with an empty frame
		case kind == frameStdin && len(payload) == 0 && s.size == nil: // with a terminal, size frames may still follow
			s.ended = io.EOF
		case kind == frameStdin:
			s.left = payload
		case kind == frameSize && s.size != nil:
			var size machine.WindowSize
			if json.Unmarshal(payload, &size) == nil {
				s.size(size)
			}
		}
	}
	if len(s.left) == 0 {
		return 0, s.ended
	}
	n := copy(p, s.left)
	s.left = s.left[n:]
	return n, nil
}

// frameWriter writes frames of one kind. Several may share one out.
type frameWriter struct {
	mu   *sync.Mutex
	to   *out
	kind byte
}

// Write sends one frame for each chunk.
func (f frameWriter) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for done := 0; done < len(p); {
		n := min(chunk, len(p)-done)
		if err := writeFrame(f.to.w, f.kind, p[done:done+n]); err != nil {
			return done, err
		}
		done += n
	}
	if err := f.to.control.Flush(); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (s *Server) exec(w http.ResponseWriter, r *http.Request, _ Peer) error {
	in := bufio.NewReader(r.Body)
	o := &out{w: w, control: http.NewResponseController(w)}
	var order execOrder
	if err := s.readOrder(o.control, in, &order); err != nil {
		return err
	}
	if err := o.beginStream("application/octet-stream"); err != nil {
		return nil //nolint:nilerr // the caller is gone
	}
	var mu sync.Mutex
	req := runtime.ExecRequest{Argv: order.Argv, User: order.User, Dir: order.Dir,
		Stdout: frameWriter{&mu, o, frameStdout}, Stderr: frameWriter{&mu, o, frameStderr}}
	ctx := r.Context()
	stdin := &stdinReader{from: in}
	if order.Stdin {
		req.Stdin = stdin
	}
	if order.Terminal != nil {
		var over context.CancelFunc
		ctx, over = context.WithCancel(ctx)
		defer over()
		var typed *io.PipeReader
		req.Terminal, typed = order.splitInput(ctx, stdin)
		req.Attach, req.Backlog = order.Attach, order.Backlog
		defer typed.Close()
		if order.Stdin {
			req.Stdin = typed
		}
	}
	var end execEnd
	var err error
	end.Code, err = s.o.Worker.Exec(ctx, order.App, order.Machine, req)
	if err != nil {
		p := problemOf(err)
		end.Problem = &p
	}
	if raw, merr := marshal(end); merr == nil {
		_, _ = frameWriter{&mu, o, frameExit}.Write(raw) // the caller may be gone
	}
	return nil
}

// splitInput splits the input of the caller's terminal into typed text and window sizes; sizes arrive whether or not
// the text is read. Its goroutine ends with the request.
func (o *execOrder) splitInput(ctx context.Context, stdin *stdinReader) (*runtime.Terminal, *io.PipeReader) {
	sizes := make(chan machine.WindowSize)
	stdin.size = func(size machine.WindowSize) {
		select {
		case sizes <- size:
		case <-ctx.Done():
		}
	}
	typed, feed := io.Pipe()
	go func() {
		_, err := io.Copy(feed, stdin)
		_ = feed.CloseWithError(err) // never fails
	}()
	return &runtime.Terminal{Terminal: *o.Terminal, Resize: sizes}, typed
}

// readOrder reads the first frame of a command.
func (s *Server) readOrder(control *http.ResponseController, in io.Reader, order checked) error {
	return s.readFirst(control, in, frameOrder, order)
}

// readFirst reads the first frame, within bodyTime. Later frames may take any time: a person may be typing them.
func (s *Server) readFirst(control *http.ResponseController, in io.Reader, want byte, order checked) error {
	if err := control.SetReadDeadline(time.Now().Add(s.bodyTime)); err != nil {
		return fault.Wrap(err, fault.Internal, fault.CodeDeadline, "this connection cannot be given a deadline")
	}
	kind, payload, err := readFrame(in)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fault.Wrap(err, fault.Timeout, machine.CodeBody, "the request did not arrive whole within %v",
			s.bodyTime)
	}
	if err == nil {
		err = json.Unmarshal(payload, order)
	}
	if err != nil || kind != want {
		return fault.Wrap(err, fault.Invalid, fault.CodeFrame, "the first frame must be an order")
	}
	if err := control.SetReadDeadline(time.Time{}); err != nil {
		return fault.Wrap(err, fault.Internal, fault.CodeDeadline, "this connection's deadline cannot be lifted")
	}
	return order.check()
}

// runCommand runs a command on the worker. If the request's Stdin blocks when the command ends, the goroutine reading
// it stays until Stdin returns; its data is then discarded.
func (l *Link) runCommand(ctx context.Context, order execOrder, req runtime.ExecRequest) (int, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	raw, err := marshal(order)
	if err != nil {
		return 0, err
	}
	body, feed := io.Pipe()
	defer body.Close()
	go func() {
		err := writeFrame(feed, frameOrder, raw)
		if err == nil && req.Terminal != nil {
			go sendSizes(ctx, feed, req.Terminal.Resize)
		}
		if err == nil && req.Stdin != nil {
			err = sendStdin(feed, req.Stdin)
		}
		if err == nil && req.Terminal != nil {
			<-ctx.Done() // the window may be resized as long as the command runs
		}
		feed.CloseWithError(err)
	}()
	r := l.newRequest(ctx, pathExec, nil)
	r.Body, r.GetBody, r.ContentLength = body, nil, -1
	res, err := l.sendRequest(ctx, l.currentWires().streams, r)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	// The transport ignores ctx while it waits for more of the request's body, unless the answer's body is closed.
	defer context.AfterFunc(ctx, func() { _ = res.Body.Close() })()
	from := bufio.NewReader(res.Body)
	for {
		kind, payload, err := readFrame(from)
		if err != nil {
			return 0, l.lostError(ctx, err)
		}
		switch kind {
		case frameStdout:
			err = writeAll(req.Stdout, payload)
		case frameStderr:
			err = writeAll(req.Stderr, payload)
		case frameExit:
			return l.exitOf(payload)
		}
		if err != nil {
			return 0, err
		}
	}
}

// sendSizes sends each new size of a terminal. Concurrent writers do not mix: each write is one whole frame.
func sendSizes(ctx context.Context, feed io.Writer, sizes <-chan machine.WindowSize) {
	for {
		select {
		case size, more := <-sizes:
			raw, err := marshal(size)
			if !more || err != nil || writeFrame(feed, frameSize, raw) != nil {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

func (l *Link) exitOf(payload []byte) (int, error) {
	var end execEnd
	if err := json.Unmarshal(payload, &end); err != nil {
		return 0, fault.Wrap(err, fault.Unavailable, fault.CodeLost, "the end of the command cannot be read as JSON")
	}
	if end.Problem != nil {
		return 0, end.Problem.asError()
	}
	return end.Code, nil
}

func sendStdin(feed io.Writer, from io.Reader) error {
	buf := make([]byte, chunk)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if err := writeFrame(feed, frameStdin, buf[:n]); err != nil {
				return err
			}
		}
		if err == io.EOF { //nolint:errorlint // io.Reader returns it unwrapped
			return writeFrame(feed, frameStdin, nil)
		}
		if err != nil {
			return err
		}
	}
}

func writeAll(w io.Writer, p []byte) error {
	if w == nil {
		return nil
	}
	_, err := w.Write(p)
	return err
}
