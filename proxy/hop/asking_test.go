package hop_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/proxy/hop"
)

// kept returns a connection on which a request was answered, kept in conns, and its other end.
func kept(t *testing.T, conns *hop.Conns) (net.Conn, *bufio.Reader) {
	t.Helper()
	c, other := pair(t, "b")
	br := bufio.NewReader(other)
	go answerOne(br, other)
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://a/", nil)
	if res, err := hop.Exchange(&discard{}, &hop.Request{Request: r}, c); err != nil || !res.Reusable {
		t.Fatal(res, err)
	}
	conns.Put(c)
	return other, br
}

func answerOne(br *bufio.Reader, to io.Writer) {
	if q, err := http.ReadRequest(br); err == nil {
		_, _ = io.WriteString(to, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n"+q.URL.Path)
	}
}

// TestConnectionWithUnreadBytesIsNotReused: a request goes over no connection on which something came since its last answer,
// its end or bytes, and may be sent elsewhere, whatever its method.
func TestConnectionWithUnreadBytesIsNotReused(t *testing.T) {
	for name, come := range map[string]func(net.Conn){
		"its end": func(c net.Conn) { _ = c.(*net.TCPConn).CloseWrite() },
		"bytes":   func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx") },
	} {
		for _, method := range []string{http.MethodGet, http.MethodDelete} {
			var conns hop.Conns
			other, br := kept(t, &conns)
			come(other)
			c := conns.GetToAsk("b", "")
			if c == nil {
				t.Fatalf("%s: nothing is kept", name)
			}
			r, _ := http.NewRequestWithContext(t.Context(), method, "http://a/", nil)
			res, err := hop.Exchange(&discard{}, &hop.Request{Request: r}, c)
			conns.Discard(c)
			if err == nil || !res.Unsent || res.Reusable {
				t.Errorf("%s, %s: %+v, %v", method, name, res, err)
			}
			if raw, _ := io.ReadAll(br); len(raw) > 0 {
				t.Errorf("%s, %s: %q was sent", method, name, raw)
			}
		}
	}
}

// TestLargeHeadIsSentWhole: a head that a socket does not take at once goes out behind the look all the same.
func TestLargeHeadIsSentWhole(t *testing.T) {
	c, other := pair(t, "b")
	if err := c.Conn.(*net.TCPConn).SetWriteBuffer(1 << 10); err != nil {
		t.Fatal(err)
	}
	large := strings.Repeat("x", 900<<10)
	got := make(chan int, 1)
	go func() {
		q, err := http.ReadRequest(bufio.NewReader(other))
		if err != nil {
			got <- -1
			return
		}
		got <- len(q.Header.Get("Large"))
		_, _ = io.WriteString(other, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	}()
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://a/", nil)
	r.Header.Set("Large", large)
	res, err := hop.Exchange(&discard{}, &hop.Request{Request: r}, c)
	if n := <-got; err != nil || !res.Reusable || n != len(large) {
		t.Errorf("%d of %d bytes came: %+v, %v", n, len(large), res, err)
	}
}

// TestClientLeavingEndsItsRequest: one whose client goes while it waits for its answer ends, though nothing comes.
func TestClientLeavingEndsItsRequest(t *testing.T) {
	c, other := pair(t, "b")
	ctx, cancel := context.WithCancel(t.Context())
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = http.ReadRequest(bufio.NewReader(other))
	}()
	go func() { <-read; cancel() }()
	r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://a/", nil)
	res, err := hop.Exchange(&discard{}, &hop.Request{Request: r}, c)
	if err == nil || res.Reusable || !errors.Is(err, net.ErrClosed) {
		t.Errorf("%+v, %v", res, err)
	}
}

// TestKeepAliveAnswersStayInOrder: what is asked over and over on one connection is answered in order.
func TestKeepAliveAnswersStayInOrder(t *testing.T) {
	var conns hop.Conns
	other, br := kept(t, &conns)
	for range 100 {
		go answerOne(br, other)
		var c *hop.Conn
		waittest.Until(t, "the connection is kept", func() bool { c = conns.GetToAsk("b", ""); return c != nil })
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://a/", nil)
		res, err := hop.Exchange(&discard{}, &hop.Request{Request: r}, c)
		if err != nil || !res.Reusable || res.Code != http.StatusOK || res.Bytes != 1 {
			t.Fatalf("%+v, %v", res, err)
		}
		conns.Put(c)
	}
}
