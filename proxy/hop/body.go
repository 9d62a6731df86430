package hop

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"net/http/httputil"
	"sync"
	"time"

	"golang.org/x/net/http/httpguts"
)

// sending is a body on its way, which another goroutine copies while the answer may come already.
type sending struct {
	done chan struct{}
	err  error
	from *source
}

// source is a body as it is read of who asks.
type source struct {
	io.Reader
	length int64 // -1: nobody knows

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

// untouched reports whether nobody has read any of the body.
func (s *sending) untouched() bool {
	s.from.mu.Lock()
	defer s.from.mu.Unlock()
	return !s.from.used
}

// send begins to copy a body. The head goes before it: a backend that wants to refuse has it at once.
func send(c *Conn, r *Request) *sending {
	s := &sending{done: make(chan struct{}), from: &source{Reader: r.Body, length: r.ContentLength}}
	go func() {
		defer close(s.done)
		if s.err = c.bw.Flush(); s.err != nil {
			return
		}
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
	return s
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

// sendChunks copies a body of unknown length and its trailers, of which none may say what no header may.
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

// Bounds of a body that is not wanted any more.
const (
	bodyPatience  = 2 * time.Second        // for a piece of it that is being read, as it may be sent elsewhere
	wholePatience = 20 * time.Millisecond  // for the last of it to be written, so that the connection can be kept
	lingerTime    = 500 * time.Millisecond // for what its client has sent already, so that it reads the answer
)

// end waits until nobody reads the body any more, and reports whether it was sent whole. One that is not is given up,
// and the connection with it: the answer came before its end, or there is none.
func (s *sending) end(w http.ResponseWriter, r *http.Request, c *Conn, failed bool) bool {
	select {
	case <-s.done:
		return s.err == nil
	default:
	}
	if s.from.isWhole() { // who asks is not waited for, so its connection is left alone
		select {
		case <-s.done:
			return s.err == nil
		case <-time.After(wholePatience):
		}
		c.Close()
		<-s.done
		return false
	}
	c.Close() // whoever writes has an error
	if failed {
		select {
		case <-s.done:
			return false
		case <-time.After(bodyPatience):
		}
	}
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now()) // a connection that was taken over has none
	<-s.done
	if r.ProtoMajor == 1 {
		_ = rc.SetReadDeadline(time.Now().Add(lingerTime))
	}
	return false
}

var buffers = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }} //nolint:gochecknoglobals // a pool
