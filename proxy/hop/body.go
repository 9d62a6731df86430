package hop

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"net/http/httputil"
	"os"
	"sync"
	"time"

	"golang.org/x/net/http/httpguts"
)

// sending is a request's body that another goroutine copies while the answer may already come.
type sending struct {
	once sync.Once // the copy is started or given up once
	done chan struct{}
	err  error
	from *source
}

// source is the body as it is read from the client.
type source struct {
	io.Reader
	length int64 // -1: unknown

	mu   sync.Mutex
	n    int64
	end  bool // it was read to its end
	err  error
	used bool // somebody began to read it
}

func (s *source) Read(b []byte) (int, error) {
	s.mu.Lock()
	s.used = true
	s.mu.Unlock()
	n, err := s.Reader.Read(b)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n += int64(n)
	switch {
	case errors.Is(err, io.EOF) && s.length >= 0 && s.n < s.length:
		err = io.ErrUnexpectedEOF
		s.err = err
	case errors.Is(err, io.EOF):
		s.end = true
	case err != nil:
		s.err = err
	}
	return n, err
}

// isWhole reports whether nothing is left of the body to be read.
func (s *source) isWhole() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.end || s.length >= 0 && s.n >= s.length
}

// isUntouched reports whether nobody has read any of the body.
func (s *sending) isUntouched() bool {
	s.from.mu.Lock()
	defer s.from.mu.Unlock()
	return !s.from.used
}

func newSending(r *Request) *sending {
	return &sending{done: make(chan struct{}), from: &source{Reader: r.Body, length: r.ContentLength}}
}

// startCopy begins to copy a body, once. The head has been sent already, so a backend can refuse at once.
func (s *sending) startCopy(c *Conn, r *Request) { s.once.Do(func() { s.copyBody(c, r) }) }

// continueTime is how long a body waits for 100 Continue: many servers never send it.
const continueTime = time.Second

// startAfter copies a body whose client waits for 100 Continue, after continueTime or when the backend asks for it. An
// answer that comes before decides whether the body is wanted. Reading the body makes net/http send 100 Continue to the
// client.
func (s *sending) startAfter(c *Conn, r *Request) {
	wait := continueTime
	if r.Header > 0 {
		wait = min(wait, r.Header)
	}
	c.setPatience(wait)
	if _, err := c.br.Peek(1); errors.Is(err, os.ErrDeadlineExceeded) {
		s.startCopy(c, r)
	}
}

// mayGo returns the function to call when the other end asks for the body. s may be nil: there is none.
func (s *sending) mayGo(c *Conn, r *Request) func() {
	if s == nil {
		return func() {}
	}
	return func() { s.startCopy(c, r) }
}

func (s *sending) copyBody(c *Conn, r *Request) {
	go func() {
		defer close(s.done)
		buf := buffers.Get().(*[]byte) //nolint:forcetypeassert // nothing else is put there
		defer buffers.Put(buf)
		if r.ContentLength > 0 {
			s.err = copyPieces(c.bw, c.bw, s.from, *buf)
		} else {
			s.err = sendChunks(c.bw, r, s.from, *buf)
		}
		if s.from.err != nil { // the other end would wait for the rest
			c.Close()
		}
	}()
}

// copyPieces copies a body, each piece as it comes.
func copyPieces(to io.Writer, bw *bufio.Writer, body io.Reader, buf []byte) error {
	for {
		n, err := body.Read(buf)
		if n > 0 {
			if _, werr := to.Write(buf[:n]); werr != nil {
				return werr
			}
			if werr := bw.Flush(); werr != nil {
				return werr
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// sendChunks copies a body of unknown length and its trailers, without those that may not be trailers.
func sendChunks(bw *bufio.Writer, r *Request, body io.Reader, buf []byte) error {
	cw := httputil.NewChunkedWriter(bw)
	if err := copyPieces(cw, bw, body, buf); err != nil {
		return err
	}
	if err := cw.Close(); err != nil {
		return err
	}
	for name, values := range r.Trailer {
		if !httpguts.ValidHeaderFieldName(name) || hopByHop(name) || r.Drop != nil && r.Drop(name) ||
			isSet(r.Set, name) {
			continue
		}
		for _, v := range values {
			writeField(bw, name, v)
		}
	}
	bw.WriteString("\r\n")
	return bw.Flush()
}

var errNotSent = errors.New("the body was not asked for") //nolint:gochecknoglobals // a constant

// Bounds of a body that is not wanted any more.
const (
	bodyPatience  = 2 * time.Second        // for a read under way, since the body may be sent to another machine
	wholePatience = 20 * time.Millisecond  // for the last write, so that the connection can be kept
	lingerTime    = 500 * time.Millisecond // for what the client has sent already, so that it reads the answer
)

// endBody waits until nobody reads the body any more, and reports whether it was sent whole. If not, the body is given
// up together with the connection: the answer came before its end, or there is none.
func (s *sending) endBody(w http.ResponseWriter, r *http.Request, c *Conn, failed bool) bool {
	s.once.Do(func() { s.err = errNotSent; close(s.done) }) // the backend never asked for it
	select {
	case <-s.done:
		if s.err != nil {
			boundLinger(w, r)
		}
		return s.err == nil
	default:
	}
	if s.from.isWhole() { // nothing is read from the client, so leave its connection alone
		select {
		case <-s.done:
			return s.err == nil
		case <-time.After(wholePatience):
		}
		c.Close()
		<-s.done
		return false
	}
	c.Close() // makes the writer fail
	if failed {
		select {
		case <-s.done:
			return false
		case <-time.After(bodyPatience):
		}
	}
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now()) // fails on a hijacked connection
	<-s.done
	boundLinger(w, r)
	return false
}

// boundLinger bounds how long net/http reads what is left of a body before it closes the connection.
func boundLinger(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 1 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(lingerTime))
	}
}

var buffers = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }} //nolint:gochecknoglobals // a pool
