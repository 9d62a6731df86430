package hop_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/proxy/hop"
)

// pair returns two ends of a connection of TCP: as hop keeps it, and the other one.
func pair(t *testing.T, key string) (*hop.Conn, net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	near, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	other, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); other.Close() })
	return hop.NewConn(key, near), other
}

// TestExcessBytesQuarantineTheBackend: after bytes that no request asked for, no connection to the same end is used at once, and
// those to others are.
func TestExcessBytesQuarantineTheBackend(t *testing.T) {
	for name, believed := range map[string]bool{"a machine": false, "a member": true} {
		conns := &hop.Conns{Believed: believed}
		put := func(key string) net.Conn {
			c, other := pair(t, key)
			conns.Put(c)
			return other
		}
		put("bad")
		other := put("bad")
		put("good")
		_, _ = io.WriteString(other, "x")
		waittest.Until(t, "the bytes are seen", func() bool {
			c := conns.Get("bad", false)
			if c != nil && believed {
				return true // the one that said nothing
			}
			if c != nil {
				conns.Put(c)
			}
			return c == nil
		})
		if c := conns.Get("good", false); c == nil {
			t.Errorf("%s: another end's connection is not used", name)
		}
		if believed {
			continue
		}
		waittest.Until(t, "it is used again after a rest", func() bool { return conns.Get("bad", false) != nil })
	}
}

// TestDoubtfulConnectionIsClosedOrRests: behind an answer that more may follow, a connection is closed, or rests before its next use.
func TestDoubtfulConnectionIsClosedOrRests(t *testing.T) {
	var conns hop.Conns
	for range 200 {
		c, other := pair(t, "b")
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			if _, err := http.ReadRequest(bufio.NewReader(other)); err == nil {
				_, _ = io.WriteString(other, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")
			}
		}()
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodHead, "http://a/", nil)
		res, err := hop.Exchange(&discard{}, &hop.Request{Request: r}, c)
		if <-answered; err != nil || !res.Reusable {
			t.Fatal(res, err)
		}
		conns.Put(c)
	}
	if n := conns.Len(); n < 64 || n > 199 {
		t.Errorf("%d of 200 are kept", n)
	}
	kept, soon := conns.Len(), 0
	for conns.Get("b", false) != nil {
		soon++
	}
	if kept-soon > 64 {
		t.Errorf("%d of %d rest", kept-soon, kept)
	}
	waittest.Until(t, "the others have rested", func() bool {
		if conns.Get("b", false) != nil {
			soon++
		}
		return soon == kept
	})
}

// answer has an end answer one request of a client, and returns its connection.
func answer(t *testing.T, method, body, whose string) *hop.Conn {
	t.Helper()
	c, other := pair(t, "b")
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		if q, err := http.ReadRequest(bufio.NewReader(other)); err == nil {
			_, _ = io.Copy(io.Discard, q.Body)
			_, _ = io.WriteString(other, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}
	}()
	r, _ := http.NewRequestWithContext(t.Context(), method, "http://a/", strings.NewReader(body))
	res, err := hop.Exchange(&discard{}, &hop.Request{Request: r, Whose: whose}, c)
	if <-answered; err != nil || !res.Reusable {
		t.Fatal(res, err)
	}
	return c
}

// TestDoubtfulConnectionServesOnlyItsClient: late bytes on a doubtful connection reach no other client, even after
// later correct answers. Another client that finds no other connection has the oldest one closed.
func TestDoubtfulConnectionServesOnlyItsClient(t *testing.T) {
	for method, body := range map[string]string{http.MethodPost: "x", http.MethodHead: ""} {
		var conns hop.Conns
		first, second := answer(t, method, body, "a"), answer(t, http.MethodGet, "", "b")
		conns.Put(first)
		conns.Put(second)
		if c := conns.GetFor("b", "c", false); c != second {
			t.Errorf("%s: another client does not get the one that is not doubtful", method)
		}
		conns.Put(second)
		waittest.Until(t, "its client gets it", func() bool {
			c := conns.GetFor("b", "a", false)
			if c == second { // the other one rests yet
				conns.Put(c)
			}
			return c == first
		})
		conns.Put(first) // as behind a GET that was answered well
		if c := conns.GetFor("b", "c", false); c != second {
			t.Errorf("%s: another client gets what was doubtful before", method)
		}
		if n := conns.Len(); n != 1 {
			t.Errorf("%s: %d are kept", method, n)
		}
		if c := conns.GetFor("b", "c", false); c != nil || conns.Len() != 0 {
			t.Errorf("%s: it is not closed for another client, which has none", method)
		}
	}
}

// discard is a client that reads nothing.
type discard struct{ h http.Header }

func (d *discard) Header() http.Header {
	if d.h == nil {
		d.h = http.Header{}
	}
	return d.h
}
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
func (d *discard) WriteHeader(int)             {}

// TestLeftoverBytesAreNoAnswer: what cannot be an answer is left of the one before. A request that may be sent twice is sent
// over another connection then, and nobody gets what was left.
func TestLeftoverBytesAreNoAnswer(t *testing.T) {
	for send, unsent := range map[string]bool{
		"GET / HTTP/1.1\r\nHost: a\r\n\r\n":                       true,
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n": false,
	} {
		for _, left := range []string{"x", "<html>", "\r\nHTTP/1.1 200 OK\r\n\r\n"} {
			f := newFront(t, backend(t, func(_ int, conn net.Conn, br *bufio.Reader) {
				headOf(br)
				_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				headOf(br)
				_, _ = io.WriteString(conn, left)
			}))
			x := connect(t, f.Server)
			x.Send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			x.Answer("GET")
			f.last(t)
			x.Send(send)
			if resp, body := x.Answer("GET"); resp.StatusCode != http.StatusBadGateway || strings.Contains(body, left) {
				t.Error(resp.Status, body)
			}
			if o := f.last(t); o.Unsent != unsent || o.err == nil || o.Reusable {
				t.Errorf("%q, %q: %+v", send, left, o)
			}
		}
	}
}

// TestEarlyAnsweredConnectionIsNotReused: the connection is not used again, though all of the request went over it later.
func TestEarlyAnsweredConnectionIsNotReused(t *testing.T) {
	read := make(chan struct{})
	f := newFront(t, backend(t, func(_ int, c net.Conn, br *bufio.Reader) {
		headOf(br)
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nea")
		_, _ = br.Discard(5)
		close(read)
		_, _ = io.WriteString(c, "rl")
		_, _ = br.Peek(1)
	}))
	x := connect(t, f.Server)
	x.Send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n")
	if head := headOf(x.In); !strings.HasPrefix(head, "HTTP/1.1 200 ") {
		t.Fatalf("%q", head)
	}
	x.Send("hello")
	<-read
	if o := f.last(t); o.err != nil || o.Bytes != 4 || o.Reusable {
		t.Errorf("%+v", o)
	}
}

// TestAnswerWithTwoLengthsEndsItsConnection: an answer that says in two ways where it ends is the last one on its connection.
func TestAnswerWithTwoLengthsEndsItsConnection(t *testing.T) {
	chunks := "\r\n\r\n" + chunk("hi") + end
	for answer, kept := range map[string]bool{
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked" + chunks:                                       true,
		"HTTP/1.1 200 OK\r\nX-Content-Length: 2\r\nTransfer-Encoding: chunked" + chunks:                true,
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked" + chunks:                  false,
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nA: b\r\ncontent-length: 99" + chunks:         false,
		"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n":                                false,
		"HTTP/1.1 204 No Content\r\nContent-Length: 1\r\n\r\n":                                         false,
		"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n":                                         true,
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk("Content-Length: 5\r\n") + end: true,
	} {
		f := newFront(t, answers(t, answer))
		x := connect(t, f.Server)
		x.Send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		x.Answer("GET")
		if o := f.last(t); o.err != nil || o.Reusable != kept {
			t.Errorf("%q: %+v", answer, o)
		}
	}
}

// TestPastDeadlineLeavesTheConnectionUsable: that the time for an answer before has passed says nothing of a connection.
func TestPastDeadlineLeavesTheConnectionUsable(t *testing.T) {
	var conns hop.Conns
	c, _ := pair(t, "b")
	_ = c.SetReadDeadline(time.Now().Add(-time.Second))
	conns.Put(c)
	if conns.Get("b", true) == nil {
		t.Error("it is not used again")
	}
}
