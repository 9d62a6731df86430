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

// maxInformed bounds the answers of 1xx before the answer proper.
const maxInformed = 8

// readHead reads the head of the answer. Early hints go on to the client at once. mayGo is called when the other end
// says that it wants the body.
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

// passHints passes early hints on: their links alone, and nothing to HTTP/1.0, which would take them for the answer.
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

// isUnsure reports whether nobody can say where an answer ends: its head tells of a body where there may be none
// (RFC 9110, 8.6), or of its end in two ways (RFC 9112, 6.3). head is what came of it; net/http does not tell.
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

// isWholeHead reports whether b begins with the whole head of an answer that is none of 1xx.
func isWholeHead(b []byte) bool {
	return bytes.Contains(b, []byte("\r\n\r\n")) && !bytes.HasPrefix(b[len("HTTP/1.1"):], []byte(" 1"))
}

const lengthField = "Content-Length:"

// isBodyless reports whether an answer ends with its head, whatever that says. Many a server sends a body all the same.
func isBodyless(resp *http.Response) bool {
	return resp.Request.Method == http.MethodHead || resp.StatusCode == http.StatusNoContent ||
		resp.StatusCode == http.StatusNotModified
}

// drainRest reads what is left of an answer that is not wanted, if that is little, and reports whether the connection
// may be used again.
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
	for name, values := range resp.Trailer { // some that were not announced
		h[http.TrailerPrefix+name] = values
	}
	return n, nil
}

// keepFields keeps those fields of a 304 that say what a 200 would have said. net/http drops them from an answer of
// HTTP/1.1 by their canonical names, so they stand in small letters, as they do in HTTP/2.
func keepFields(h http.Header, resp *http.Response) {
	for _, name := range []string{"Content-Length", "Content-Type"} {
		if v := resp.Header[name]; len(v) == 1 {
			delete(h, name)
			h[strings.ToLower(name)] = v
		}
	}
}

// hasLengthItself reports whether the length of an answer belongs to its head: not where net/http made it up.
func hasLengthItself(resp *http.Response) bool { return len(resp.Header["Content-Length"]) == 1 }

// copyBody copies an answer's body. What has come is passed on when no more of it waits to be read, since somebody may
// wait for it. What came of an answer that is cut goes out before the error: its client sees where it was cut.
func copyBody(w http.ResponseWriter, resp *http.Response, c *Conn, idle time.Duration) (n int64, err error) {
	buf := buffers.Get().(*[]byte) //nolint:forcetypeassert // nothing else is put there
	defer buffers.Put(buf)
	flush := flusherOf(w)
	waits := func() bool { // and no more of the body is there yet
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

// switchOver connects both ends once they have agreed on another protocol, until one of them ends.
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
		Half{c.Conn, c.br}, // which can be closed in one direction
	)
	res.Bytes = toClient
	return res, nil
}

// Ask sends a request without a body over c and returns its answer, for who reads that himself. Drained has c ready for
// the next one.
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
