package hop

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
)

// maxInformed bounds the 1xx answers before the final one.
const maxInformed = 8

// readHead reads the head of the answer. Early hints go on to the client at once. mayGo is called when the other end
// asks for the body (100 Continue).
func readHead(w http.ResponseWriter, br *bufio.Reader, r *http.Request, mayGo func()) (*http.Response, error) {
	for range maxInformed {
		resp, err := http.ReadResponse(br, r)
		if err != nil {
			return nil, err
		}
		if resp.StatusCode < 100 {
			return nil, errors.New("its status is " + resp.Status)
		}
		if resp.StatusCode >= 200 || resp.StatusCode == http.StatusSwitchingProtocols {
			return resp, nil
		}
		switch resp.StatusCode {
		case http.StatusContinue:
			mayGo()
		case http.StatusEarlyHints:
			passHints(w, r, resp.Header)
		}
	}
	return nil, errors.New("it sends one 1xx after another")
}

// passHints passes early hints on: only their links, and nothing to HTTP/1.0 clients, which would take them for the
// answer.
func passHints(w http.ResponseWriter, r *http.Request, from http.Header) {
	links := from["Link"]
	if len(links) == 0 || !r.ProtoAtLeast(1, 1) || hasName(connectionNames(from), "Link") {
		return
	}
	h := w.Header()
	h["Link"] = links
	w.WriteHeader(http.StatusEarlyHints)
	delete(h, "Link")
}

// isUnsure reports whether the end of an answer is ambiguous: its head announces a body where none is allowed (RFC
// 9110, 8.6), or its length in two ways (RFC 9112, 6.3). head is the raw head, since net/http does not report this.
func isUnsure(resp *http.Response, head []byte) bool {
	switch {
	case resp.StatusCode == http.StatusNoContent:
		length := resp.Header["Content-Length"]
		return resp.TransferEncoding != nil || len(length) > 0 && length[0] != "0"
	case resp.TransferEncoding == nil:
		return false
	}
	for line := range bytes.Lines(head) {
		if len(line) > len(lengthField) && bytes.EqualFold(line[:len(lengthField)], []byte(lengthField)) {
			return true
		}
		if line[0] == '\r' || line[0] == '\n' {
			break
		}
	}
	return false
}

// isWholeHead reports whether b begins with the whole head of an answer other than 1xx.
func isWholeHead(b []byte) bool {
	return bytes.Contains(b, []byte("\r\n\r\n")) && !bytes.HasPrefix(b[len("HTTP/1.1"):], []byte(" 1"))
}

const lengthField = "Content-Length:"

// isBodyless reports whether an answer must end with its head, whatever the head says. Many servers send a body all the
// same.
func isBodyless(resp *http.Response) bool {
	return resp.Request.Method == http.MethodHead || resp.StatusCode == http.StatusNoContent ||
		resp.StatusCode == http.StatusNotModified
}

// drainRest reads what is left of an unwanted answer, if that is little, and reports whether the connection may be used
// again.
func drainRest(resp *http.Response) bool {
	if resp.Close {
		return false
	}
	_, err := io.CopyN(io.Discard, resp.Body, 64<<10)
	return errors.Is(err, io.EOF)
}

// passOn writes an answer to the client.
func passOn(w http.ResponseWriter, resp *http.Response, c *Conn, idle time.Duration) (n int64, err error) {
	h := w.Header()
	drop := connectionNames(resp.Header)
	for name, values := range resp.Header {
		if !hopByHop(name) && !hasName(drop, name) {
			if old := h[name]; old != nil && name != "Date" {
				values = append(old[:len(old):len(old)], values...)
			}
			h[name] = values
		}
	}
	if resp.ContentLength >= 0 && hasLengthItself(resp) {
		h["Content-Length"] = resp.Header["Content-Length"]
	}
	if _, typed := h["Content-Type"]; !typed {
		h["Content-Type"] = nil // net/http would guess one
	}
	if resp.StatusCode == http.StatusNotModified {
		keepFields(h, resp)
	}
	announced := len(resp.Trailer)
	for name := range resp.Trailer {
		h.Add("Trailer", name)
	}
	w.WriteHeader(resp.StatusCode)
	if n, err = copyBody(w, resp, c, idle); err != nil {
		return n, err
	}
	if len(resp.Trailer) == announced {
		maps.Copy(h, resp.Trailer)
		return n, nil
	}
	for name, values := range resp.Trailer { // including unannounced ones
		h[http.TrailerPrefix+name] = values
	}
	return n, nil
}

// keepFields keeps the fields of a 304 that describe the 200. net/http drops them by their canonical names in HTTP/1.1,
// so they are written in lower case, as in HTTP/2.
func keepFields(h http.Header, resp *http.Response) {
	for _, name := range []string{"Content-Length", "Content-Type"} {
		if v := resp.Header[name]; len(v) == 1 {
			delete(h, name)
			h[strings.ToLower(name)] = v
		}
	}
}

// hasLengthItself reports whether the answer itself gave its length; net/http computes one otherwise.
func hasLengthItself(resp *http.Response) bool { return len(resp.Header["Content-Length"]) == 1 }

// copyBody copies an answer's body. It flushes when no more is waiting to be read, since the client may wait for the
// data. If an answer breaks off, the client gets what came before the error.
func copyBody(w http.ResponseWriter, resp *http.Response, c *Conn, idle time.Duration) (n int64, err error) {
	buf := buffers.Get().(*[]byte) //nolint:forcetypeassert // nothing else is put there
	defer buffers.Put(buf)
	flush := flusherOf(w)
	waits := func() bool { // no more of the body has arrived yet
		return n != resp.ContentLength && (c == nil || resp.ContentLength < 0 || c.br.Buffered() == 0)
	}
	if resp.Body != http.NoBody && waits() {
		flush() // the head
	}
	for {
		if idle > 0 && c != nil && c.br.Buffered() == 0 {
			c.setPatience(idle)
		}
		m, rerr := resp.Body.Read(*buf)
		if m > 0 {
			k, werr := w.Write((*buf)[:m])
			n += int64(k)
			if werr != nil {
				return n, werr
			}
			if waits() {
				flush()
			}
		}
		if errors.Is(rerr, io.EOF) {
			return n, nil
		}
		if rerr != nil {
			flush()
			return n, errors.Join(ErrAnswer, rerr)
		}
	}
}

func flusherOf(w http.ResponseWriter) func() {
	if f, is := w.(http.Flusher); is {
		return f.Flush
	}
	return func() {}
}

// switchOver connects client and machine once they have agreed on another protocol, until one of them closes.
func switchOver(w http.ResponseWriter, r *Request, c *Conn, resp *http.Response, wanted string,
	res Result) (Result, error) {
	res.Upgraded = true
	if wanted == "" || !strings.EqualFold(resp.Header.Get("Upgrade"), wanted) {
		return Result{}, errors.Join(ErrAnswer, errors.New("it switches to a protocol that nobody asked for"))
	}
	client, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return Result{}, err
	}
	defer client.Close()
	_ = client.SetDeadline(time.Time{})
	_ = c.SetDeadline(time.Time{})
	head := buffered.Writer
	head.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n")
	drop := connectionNames(resp.Header)
	for name, values := range resp.Header {
		if httpguts.ValidHeaderFieldName(name) && (!hopByHop(name) && !hasName(drop, name) || name == "Upgrade") {
			for _, v := range values {
				writeField(head, name, v)
			}
		}
	}
	head.WriteString("\r\n")
	if err := head.Flush(); err != nil {
		return res, err
	}
	toClient, _ := Pipe(
		Half{client, buffered.Reader},
		Half{c.Conn, c.br}, // Half closes one direction alone
	)
	res.Bytes = toClient
	return res, nil
}

// Ask sends a request without a body over c and returns its answer; the caller reads the body. Drained then makes c
// ready for the next request.
func Ask(r *http.Request, c *Conn, set ...Field) (*http.Response, error) {
	stop := context.AfterFunc(r.Context(), func() { c.Close() })
	defer stop()
	c.setPatience(0)
	if err := writeHead(c.bw, &Request{Request: r, Set: set}, ""); err != nil {
		return nil, err
	}
	if err := c.bw.Flush(); err != nil {
		return nil, err
	}
	resp, err := http.ReadResponse(c.br, r)
	if err == nil {
		c.used = true
	}
	return resp, err
}

// Drained reads what is left of an answer, if that is little, and reports whether its connection may be used again.
func Drained(resp *http.Response) bool { return drainRest(resp) }
