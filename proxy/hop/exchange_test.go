package hop_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/proxy/hop"
)

func TestConnectionIsReused(t *testing.T) {
	f := newFront(t, answers(t, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"))
	c := connect(t, f.Server)
	for range 5 {
		c.Send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		if _, body := c.Answer("GET"); body != "hi" {
			t.Fatal(body)
		}
		if o := f.last(t); o.err != nil || !o.Reusable || o.Bytes != 2 || o.Code != 200 {
			t.Fatalf("%+v", o)
		}
	}
	if f.dials != 1 || f.conns.Len() != 1 {
		t.Errorf("%d connections were made, %d are kept", f.dials, f.conns.Len())
	}
}

// TestAnswersReachTheClientAsRead: what a backend may answer, and how the client reads it.
func TestAnswersReachTheClientAsRead(t *testing.T) {
	for _, c := range []struct {
		name, method, answer, want string // want: status, body
		kept, broken               bool
	}{
		{"length", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", "200 hi", true, false},
		{"same length twice", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nhi", "200 hi",
			true, false},
		{"chunks", "GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk("h") + chunk("i") + end,
			"200 hi",
			true, false},
		{"until it closes", "GET", "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhi", "200 hi", false, false},
		{"1.0", "GET", "HTTP/1.0 200 OK\r\n\r\nhi", "200 hi", false, false},
		{"empty", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "200 ", true, false},
		{"HEAD", "HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n", "200 ", true, false},
		{"HEAD, chunks", "HEAD", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "200 ", true, false},
		{"204", "GET", "HTTP/1.1 204 No Content\r\n\r\n", "204 ", true, false},
		{"204 with a length", "GET", "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", "204 ", false, false},
		{"304", "GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 12\r\n\r\n", "304 ", true, false},
		{"100 before it", "POST", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
			"200 hi",
			true, false},
		{"a space before the colon", "GET", "HTTP/1.1 200 OK\r\nContent-Length : 1\r\n\r\nhi", "200 hi", false, false},
		{"a space in a name", "GET", "HTTP/1.1 200 OK\r\nA b: c\r\nContent-Length: 0\r\n\r\n", "200 ", true, false},
		{"an own status", "GET", "HTTP/1.1 299 Odd\r\nContent-Length: 0\r\n\r\n", "299 ", true, false},

		{"no HTTP", "GET", "SSH-2.0-x\r\n\r\n", "502 ", false, false},
		{"nothing", "GET", "", "502 ", false, false},
		{"half a head", "GET", "HTTP/1.1 200 OK\r\nContent-", "502 ", false, false},
		{"status 000", "GET", "HTTP/1.1 000 Odd\r\n\r\n", "502 ", false, false},
		{"status 1000", "GET", "HTTP/1.1 1000 Odd\r\n\r\n", "502 ", false, false},
		{"two lengths", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nhi", "502 ", false,
			false},
		{"a negative length", "GET", "HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nhi", "502 ", false, false},
		{"an unknown coding", "GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked\r\n\r\nhi", "502 ", false, false},
		{"no colon", "GET", "HTTP/1.1 200 OK\r\nContent-Length\r\n\r\n", "502 ", false, false},
		{"endless 1xx", "GET", strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", 50), "502 ", false, false},
		{"a huge head", "GET", "HTTP/1.1 200 OK\r\nA: " + strings.Repeat("a", 1<<20) + "\r\n\r\n", "502 ", false,
			false},
		{"many fields", "GET", "HTTP/1.1 200 OK\r\n" + strings.Repeat("A: b\r\n", 1<<17) + "\r\n", "502 ", false,
			false},
		{"another protocol", "GET", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n",
			"502 ",
			false, false},

		{"too short", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi", "", false, true},
		{"no last chunk", "GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk("hi"), "", false,
			true},
		{"a broken chunk", "GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk("hi") + "x\r\n",
			"", false,
			true},
	} {
		t.Run(c.name, func(t *testing.T) {
			closes := !c.kept
			f := newFront(t, backend(t, func(_ int, conn net.Conn, br *bufio.Reader) {
				headOf(br)
				_, _ = io.WriteString(conn, c.answer)
				if !closes {
					_, _ = br.Peek(1)
				} else {
					_ = conn.(*net.TCPConn).CloseWrite()
					_, _ = io.Copy(io.Discard, br)
				}
			}))
			x := connect(t, f.Server)
			x.Send(c.method + " / HTTP/1.1\r\nHost: a\r\n\r\n")
			if c.broken {
				rest := x.Ends()
				resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(rest)), nil)
				if err == nil {
					_, err = io.ReadAll(resp.Body)
				}
				if o := f.last(t); err == nil || o.err == nil || o.Code == 0 {
					t.Errorf("%q is a whole answer; %+v", rest, o)
				}
				return
			}
			resp, body := x.Answer(c.method)
			if got := resp.Status[:4] + body; got != c.want {
				t.Errorf("%q instead of %q", got, c.want)
			}
			o := f.last(t)
			if o.Reusable != c.kept || (o.err != nil) != (resp.StatusCode == 502) {
				t.Errorf("%+v", o)
			}
			if o.err != nil && !errors.Is(o.err, hop.ErrAnswer) {
				t.Errorf("it is not the other end's: %v", o.err)
			}
			if len(resp.Header["A b"])+len(resp.Header["A"]) > 0 {
				t.Error("a field that is none is passed on")
			}
			if resp.StatusCode == 204 && resp.Header.Get("Content-Length") != "" {
				t.Error("a 204 has a length")
			}
			if c.method == "HEAD" && c.name == "HEAD" && resp.Header.Get("Content-Length") != "12" {
				t.Error("HEAD loses the length: ", resp.Header)
			}
		})
	}
}

// TestBodiesArriveWholeAndReframed: each body arrives whole, framed anew.
func TestBodiesArriveWholeAndReframed(t *testing.T) {
	large := strings.Repeat("0123456789abcdef", 40<<10)
	for _, c := range []struct{ name, send, head, body string }{
		{"length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi", "Content-Length: 2", "hi"},
		{"empty", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", "Content-Length: 0", ""},
		{"none", "POST / HTTP/1.1\r\nHost: a\r\n\r\n", "Content-Length: 0", ""},
		{"GET with one", "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi", "Content-Length: 2", "hi"},
		{"chunks", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk("h") +
			"1;ext=1\r\ni\r\n" + end,
			"Transfer-Encoding: chunked", "hi"},
		{"no chunks", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + end,
			"Transfer-Encoding: chunked",
			""},
		{"large", "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 655360\r\n\r\n" + large, "Content-Length: 655360",
			large},
		{"large chunk", "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(large) + end,
			"Transfer-Encoding: chunked", large},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := make(chan string, 2)
			f := newFront(t, backend(t, func(_ int, conn net.Conn, br *bufio.Reader) {
				for {
					head := headOf(br)
					r, err := http.ReadRequest(bufio.NewReader(io.MultiReader(strings.NewReader(head+"\r\n"), br)))
					if err != nil {
						return
					}
					body, _ := io.ReadAll(r.Body)
					got <- head
					got <- string(body)
					_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				}
			}))
			x := connect(t, f.Server)
			x.Send(c.send)
			x.Answer("POST")
			if head := <-got; !strings.Contains(head, "\r\n"+c.head+"\r\n") || strings.Contains(head, "ext=1") {
				t.Errorf("the head is %q", head)
			}
			if body := <-got; body != c.body {
				t.Errorf("the body has %d bytes, not %d", len(body), len(c.body))
			}
			if o := f.last(t); !o.Reusable {
				t.Errorf("%+v", o)
			}
		})
	}
}

// TestTrailersPassBothWays: trailers pass both ways, except fields that no trailer may have.
func TestTrailersPassBothWays(t *testing.T) {
	got := make(chan http.Header, 1)
	f := newFront(t, backend(t, func(_ int, c net.Conn, br *bufio.Reader) {
		r, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		got <- r.Trailer
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nTrailer: Sum\r\nTransfer-Encoding: chunked\r\n\r\n"+chunk("hi")+
			"0\r\nSum: 7\r\nMore: 8\r\n\r\n")
		_, _ = br.Peek(1)
	}), func(r *hop.Request) { r.Drop = func(n string) bool { return n == "X-Forwarded-For" } })
	x := connect(t, f.Server)
	x.Send(
		"POST / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nTrailer: Sum\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(
			"x",
		) +
			"0\r\nSum: 5\r\nX-Forwarded-For: 1.2.3.4\r\n" +
			"Connection: close\r\nHost: b\r\nTransfer-Encoding: chunked\r\n\r\n",
	)
	resp, body := x.Answer("POST")
	if h := <-got; len(h) != 1 || h.Get("Sum") != "5" {
		t.Errorf("the backend's trailers are %v", h)
	}
	if body != "hi" || resp.Trailer.Get("Sum") != "7" || resp.Trailer.Get("More") != "8" {
		t.Errorf("%q, %v", body, resp.Trailer)
	}
}

// TestStaleConnectionReportsNothingSent: of one that was closed at its other end it is said that nothing was done, unless the request
// may have been carried out.
func TestStaleConnectionReportsNothingSent(t *testing.T) {
	for _, c := range []struct {
		send   string
		unsent bool
	}{
		{"GET / HTTP/1.1\r\nHost: a\r\n\r\n", true},
		{"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", true},
		{"POST / HTTP/1.1\r\nHost: a\r\n\r\n", false},
		{"DELETE / HTTP/1.1\r\nHost: a\r\n\r\n", false},
		{"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi", false},
		{"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi", false}, // some of its body was read
	} {
		f := newFront(t, backend(t, func(_ int, conn net.Conn, br *bufio.Reader) {
			headOf(br)
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			if r, err := http.ReadRequest(br); err == nil { // and then it dies
				_, _ = io.Copy(io.Discard, r.Body)
			}
		}))
		x := connect(t, f.Server)
		x.Send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		x.Answer("GET")
		f.last(t)
		x.Send(c.send)
		if resp, _ := x.Answer(c.send[:4]); resp.StatusCode != http.StatusBadGateway {
			t.Error(resp.Status)
		}
		if o := f.last(t); o.Unsent != c.unsent || o.err == nil || o.Reusable {
			t.Errorf("%q: %+v", c.send, o)
		}
	}
	// One that is closed while it is kept is not handed out.
	f := newFront(t, backend(t, func(_ int, conn net.Conn, br *bufio.Reader) {
		headOf(br)
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	}))
	x := connect(t, f.Server)
	for range 5 {
		x.Send("POST / HTTP/1.1\r\nHost: a\r\n\r\n")
		if resp, _ := x.Answer("POST"); resp.StatusCode != 200 {
			t.Error(resp.Status)
		}
		f.last(t)
		waittest.Until(t, "the end is seen", func() bool { return f.conns.Get("b", true) == nil })
	}
}

// TestHangingBackendTimesOut: the patience for its head, and between two pieces, ends.
func TestHangingBackendTimesOut(t *testing.T) {
	short := func(r *hop.Request) { r.Header, r.Idle = 30*time.Millisecond, 30*time.Millisecond }
	for name, say := range map[string]string{
		"nothing":    "",
		"half":       "HTTP/1.1 200 OK\r\nA: ",
		"one hint":   "HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n",
		"only head":  "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n",
		"half chunk": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nab",
	} {
		t.Run(name, func(t *testing.T) {
			f := newFront(t, backend(t, func(_ int, c net.Conn, br *bufio.Reader) {
				headOf(br)
				_, _ = io.WriteString(c, say)
				_, _ = br.Peek(1)
			}), short)
			x := connect(t, f.Server)
			x.Send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			x.Ends()
			o := f.last(t)
			if !errors.Is(o.err, os.ErrDeadlineExceeded) || o.Unsent || o.Reusable {
				t.Errorf("%+v", o)
			}
		})
	}
}

// TestBackendThatReadsNothingTimesOut: a body that exceeds the buffers times out at a backend that reads nothing.
func TestBackendThatReadsNothingTimesOut(t *testing.T) {
	f := newFront(t, backend(t, func(_ int, c net.Conn, _ *bufio.Reader) {
		_, _ = io.WriteString(c, "HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
		<-t.Context().Done()
	}))
	for _, send := range []string{
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5f5e0ff\r\n",
	} {
		x := connect(t, f.Server)
		x.Send(send)
		go func() { _, _ = io.CopyN(x, endless{}, 99999999) }()
		if resp, body := x.Answer("POST"); resp.StatusCode != 413 || body != "no" || !resp.Close {
			t.Error(resp.Status, body, resp.Close)
		}
		if o := f.last(t); o.err != nil || o.Reusable {
			t.Errorf("%+v", o)
		}
	}
}

type endless struct{}

func (endless) Read(b []byte) (int, error) { return len(b), nil }

// TestEarlyAnswerDropsTheRestOfTheBody: what is left of the body is not read as another request.
func TestEarlyAnswerDropsTheRestOfTheBody(t *testing.T) {
	for _, send := range []string{
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 40\r\n\r\nhi",
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n28\r\nhi",
	} {
		f := newFront(t, backend(t, func(_ int, c net.Conn, br *bufio.Reader) {
			headOf(br)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno")
			_, _ = io.Copy(io.Discard, br)
		}))
		x := connect(t, f.Server)
		x.Send(send)
		resp, body := x.Answer("POST")
		if body != "no" || !resp.Close {
			t.Errorf("%q, closes %v", body, resp.Close)
		}
		_, _ = io.WriteString(x, "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n") // it may be closed
		if rest := x.Ends(); rest != "" {
			t.Errorf("the rest of a body was answered: %q", rest)
		}
		if o := f.last(t); o.err != nil || o.Reusable {
			t.Errorf("%+v", o)
		}
		if len(f.outcomes) > 0 {
			t.Error("the rest of a body is a request")
		}
	}
}

// TestBrokenBodyEndsTheBackendRequest: the backend is not left waiting, and what comes behind is no request.
func TestBrokenBodyEndsTheBackendRequest(t *testing.T) {
	for _, send := range []string{
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" +
			"zz\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" +
			"1\r\nabGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n",
	} {
		gone := make(chan struct{})
		f := newFront(t, backend(t, func(_ int, _ net.Conn, br *bufio.Reader) {
			defer close(gone)
			_, _ = io.Copy(io.Discard, br)
		}))
		x := connect(t, f.Server)
		x.Send(send)
		x.Ends()
		if o := f.last(t); !errors.Is(o.err, hop.ErrBody) || o.Unsent || o.Reusable {
			t.Errorf("%+v", o)
		}
		<-gone
		if len(f.outcomes) > 0 {
			t.Error("the rest of a body is a request")
		}
	}
}

// TestClientLeavingClosesItsBackend: a client that leaves closes the connection of its backend.
func TestClientLeavingClosesItsBackend(t *testing.T) {
	for name, send := range map[string]string{
		"waiting":     "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
		"in a body":   "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhi",
		"in a chunk":  "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhi",
		"in answer":   "GET /endless HTTP/1.1\r\nHost: a\r\n\r\n",
		"full duplex": "POST /endless HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhi",
	} {
		t.Run(name, func(t *testing.T) {
			came := make(chan string, 1)
			f := newFront(t, backend(t, func(_ int, c net.Conn, br *bufio.Reader) {
				head := headOf(br)
				came <- head
				if strings.Contains(head, "/endless") {
					_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
					_, _ = io.Copy(c, endless{})
				}
				_, _ = io.Copy(io.Discard, br)
			}))
			leavesNothing(t, func() {
				x := connect(t, f.Server)
				x.Send(send)
				<-came
				if strings.Contains(send, "/endless") {
					_, _ = x.In.Peek(1)
				}
				x.Close()
				if o := f.last(t); o.err == nil || o.Reusable {
					t.Errorf("%+v", o)
				}
			})
		})
	}
}
