package hop_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/proxy/hop"
)

// FuzzAnswerIsWholeOrBroken: for any backend Exchange ends, and the client gets one whole answer or an error.
func FuzzAnswerIsWholeOrBroken(f *testing.F) {
	for _, s := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
		"HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n", "HTTP/1.0 200 OK\r\n\r\nhi",
		"HTTP/1.1 200 OK\r\nTrailer: A\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: b\r\nB: c\r\n\r\n",
		"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nx",
		"HTTP/1.1 000 X\r\n\r\n",
		"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", "HTTP/1.1 200 OK\r\nA b: c\r\nConnection: a\r\n\r\n",
	} {
		f.Add(s, "GET")
		f.Add(s, "HEAD")
	}
	f.Fuzz(func(t *testing.T, answer, method string) {
		if method != "HEAD" {
			method = "GET"
		}
		near, far := net.Pipe()
		go func() {
			_, _ = http.ReadRequest(bufio.NewReader(far))
			_, _ = io.WriteString(far, answer)
			far.Close()
		}()
		w := httptest.NewRecorder()
		ctx, cancel := context.WithTimeout(t.Context(), waittest.Patience)
		defer cancel()
		r := httptest.NewRequestWithContext(ctx, method, "http://a/", nil)
		c := hop.NewConn("b", near)
		res, err := hop.Exchange(w, &hop.Request{Request: r, Header: waittest.Patience, Idle: waittest.Patience}, c)
		c.Close()
		far.Close()
		if ctx.Err() != nil {
			t.Fatal("it does not end")
		}
		if err == nil && (res.Code < 200 || res.Code > 999 || res.Code != w.Code && res.Code != 101 &&
			w.Code != 103) { // which the recorder takes for the answer
			t.Errorf("%+v, %d", res, w.Code)
		}
		if err != nil && res.Reusable {
			t.Errorf("what was broken off is used again: %v", err)
		}
		for name := range w.Header() {
			if strings.EqualFold(name, "Transfer-Encoding") || strings.EqualFold(name, "Upgrade") {
				t.Errorf("%s is passed on", name)
			}
		}
	})
}

// FuzzRequestHasOneReading: whatever a client says, each request that reaches the backend has one reading, and the same as here.
func FuzzRequestHasOneReading(f *testing.F) {
	for _, s := range []string{
		"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "POST /a?b HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi",
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: A\r\n\r\n2\r\nhi\r\n0\r\nA: b\r\n\r\n",
		"GET http://b/c HTTP/1.1\r\nHost: a\r\n\r\n", "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, x\r\nUpgrade: websocket\r\nX: y\r\nTE: trailers\r\n\r\n",
		"PUT /%20/ HTTP/1.0\r\nHost: a\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\nx",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(raw)))
		if err != nil {
			return
		}
		ctx, cancel := context.WithTimeout(t.Context(), waittest.Patience)
		defer cancel()
		near, far := net.Pipe()
		_ = far.SetDeadline(time.Now().Add(waittest.Patience))
		sent := make(chan *bytes.Buffer, 1)
		go func() {
			var all bytes.Buffer
			br := bufio.NewReader(io.TeeReader(far, &all))
			if q, err := http.ReadRequest(br); err == nil {
				_, _ = io.Copy(io.Discard, q.Body)
				_, _ = io.WriteString(far, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			}
			far.Close()
			sent <- &all
		}()
		c := hop.NewConn("b", near)
		res, err := hop.Exchange(
			httptest.NewRecorder(),
			&hop.Request{Request: r.WithContext(ctx), Header: waittest.Patience},
			c,
		)
		c.Close()
		got := (<-sent).String()
		if ctx.Err() != nil {
			t.Fatal("it does not end")
		}
		if err != nil {
			return
		}
		head, _, _ := strings.Cut(got, "\r\n\r\n")
		for i, line := range strings.Split(head, "\r\n") {
			if strings.ContainsAny(line, "\r\n\x00") || i == 0 && strings.Count(line, " ") != 2 ||
				i > 0 && !strings.Contains(line, ": ") {
				t.Errorf("%q is sent, of %q", line, raw)
			}
		}
		if n := strings.Count(strings.ToLower(head), "\r\ncontent-length:") + strings.Count(strings.ToLower(head),
			"\r\ntransfer-encoding:"); n > 1 || res.Code != 200 {
			t.Errorf("%q is sent, of %q; %+v", got, raw, res)
		}
	})
}
