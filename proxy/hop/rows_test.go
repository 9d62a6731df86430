package hop_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
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

// once answers each connection's first request by say, reads on until it is closed, and tells each head on heads.
func once(t *testing.T, heads chan<- string, say func(c net.Conn)) string {
	return backend(t, func(_ int, c net.Conn, br *bufio.Reader) {
		head := headOf(br)
		if heads != nil {
			heads <- head
		}
		say(c)
	})
}

func writes(s string) func(net.Conn) { return func(c net.Conn) { _, _ = io.WriteString(c, s) } }

// TestKeepAliveHintLimitsReuse (6): what a server says of how long it keeps a connection is believed,
// and what cannot be sent twice goes over none that was not used just now.
func TestKeepAliveHintLimitsReuse(t *testing.T) {
	answer := func(fields string) string {
		return "HTTP/1.1 200 OK\r\n" + fields + "Content-Length: 0\r\n\r\n"
	}
	for name, c := range map[string]struct {
		conns  *hop.Conns
		fields string
		once   bool
		kept   bool
	}{
		"kept":                  {&hop.Conns{}, "", false, true},
		"unused for too long":   {&hop.Conns{Unused: time.Nanosecond}, "", false, false},
		"its server closes":     {&hop.Conns{}, "Keep-Alive: max=9, timeout=1\r\n", false, false},
		"its server keeps it":   {&hop.Conns{}, "Keep-Alive: timeout=5\r\n", false, true},
		"once, used just now":   {&hop.Conns{Once: time.Hour}, "", true, true},
		"once, used long ago":   {&hop.Conns{Once: time.Nanosecond}, "", true, false},
		"twice, used long ago":  {&hop.Conns{Once: time.Nanosecond}, "", false, true},
		"a timeout that is odd": {&hop.Conns{}, "Keep-Alive: timeout=x\r\n", false, true},
	} {
		near, far := net.Pipe()
		go func() {
			_, _ = http.ReadRequest(bufio.NewReader(far))
			_, _ = io.WriteString(far, answer(c.fields))
		}()
		conn := hop.NewConn("b", near)
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		res, err := hop.Exchange(httptest.NewRecorder(), &hop.Request{Request: r}, conn)
		if err != nil || !res.Reusable {
			t.Errorf("%s: %+v, %v", name, res, err)
		}
		c.conns.Put(conn)
		if got := c.conns.Get("b", c.once); (got != nil) != c.kept {
			t.Errorf("%s: kept is %v", name, got != nil)
		}
		if c.once && !c.kept && c.conns.Get("b", false) == nil {
			t.Errorf("%s: it is of use to nobody", name)
		}
		near.Close()
		far.Close()
	}
}

// TestRefusedUploadGetsItsAnswer (8): the answer reaches who still sends.
func TestRefusedUploadGetsItsAnswer(t *testing.T) {
	f := newFront(t, once(t, nil, writes("HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno")))
	body := bytes.Repeat([]byte("x"), 8<<20)
	for range 20 {
		x := connect(t, f.Server)
		x.Send(fmt.Sprintf("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", len(body)))
		done := make(chan struct{})
		go func() { defer close(done); _, _ = x.Write(body) }()
		if resp, text := x.Answer("POST"); resp.StatusCode != 413 || text != "no" {
			t.Error(resp.Status, text)
		}
		x.Close()
		<-done
	}
}

// TestExpectContinueIsDecidedByTheBackend (8): the machine decides whether the client gets 100 Continue, which is
// sent once.
func TestExpectContinueIsDecidedByTheBackend(t *testing.T) {
	ask := "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
	t.Run("refused", func(t *testing.T) {
		heads := make(chan string, 1)
		f := newFront(t, once(t, heads, writes("HTTP/1.1 401 No\r\nContent-Length: 2\r\n\r\nno")))
		x := connect(t, f.Server)
		x.Send(ask)
		if resp, body := x.Answer("POST"); resp.StatusCode != 401 || body != "no" || !resp.Close {
			t.Error(resp.Status, body)
		}
		if head := <-heads; !strings.Contains(head, "\r\nExpect: 100-continue\r\n") {
			t.Errorf("the machine got %q", head)
		}
		if rest := x.Ends(); rest != "" {
			t.Errorf("%q", rest)
		}
		if o := f.last(t); o.err != nil || o.Reusable {
			t.Errorf("%+v", o)
		}
	})
	t.Run("wanted", func(t *testing.T) {
		say := make(chan struct{})
		f := newFront(t, backend(t, func(_ int, c net.Conn, br *bufio.Reader) {
			headOf(br)
			<-say
			_, _ = io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\n")
			body := make([]byte, 2)
			_, _ = io.ReadFull(br, body)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"+string(body))
			_, _ = br.Peek(1)
		}))
		x := connect(t, f.Server)
		x.Send(ask)
		_ = x.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		if got, err := x.In.Peek(1); err == nil {
			t.Errorf("%q before the machine was heard", got)
		}
		_ = x.SetReadDeadline(time.Now().Add(waittest.Patience))
		close(say)
		if head := headOf(x.In); head != "HTTP/1.1 100 Continue\r\n" {
			t.Errorf("%q", head)
		}
		x.Send("hi")
		if resp, body := x.Answer("POST"); resp.StatusCode != 200 || body != "hi" {
			t.Error(resp.Status, body)
		}
		if o := f.last(t); o.err != nil || !o.Reusable {
			t.Errorf("%+v", o)
		}
	})
}

// TestEarlyHintsPassOnlyLinks (10): nothing of a hint but its links, and nothing of it in the answer.
func TestEarlyHintsPassOnlyLinks(t *testing.T) {
	say := make(chan struct{}, 1)
	f := newFront(t, once(t, nil, func(c net.Conn) {
		_, _ = io.WriteString(c, "HTTP/1.1 103 Early Hints\r\nLink: <a>\r\nConnection: X-N\r\nX-N: 1\r\n"+
			"Keep-Alive: timeout=1\r\n\r\n")
		<-say
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
	}))
	x := connect(t, f.Server)
	x.Send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if head := headOf(x.In); head != "HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n" {
		t.Errorf("%q", head)
	}
	say <- struct{}{}
	if head := headOf(x.In); strings.Contains(head, "Link") || !strings.HasPrefix(head, "HTTP/1.1 200 OK\r\n") {
		t.Errorf("%q", head)
	}
}

// TestHTTP10ClientGetsNoChunks (12): HTTP/1.0 gets no chunks, and the end of its answer is that of the connection.
func TestHTTP10ClientGetsNoChunks(t *testing.T) {
	f := newFront(t, answers(t, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"+chunk("hi")+end))
	x := connect(t, f.Server)
	x.Send("GET / HTTP/1.0\r\nHost: a\r\n\r\n")
	head, body, _ := strings.Cut(x.Ends(), "\r\n\r\n")
	if body != "hi" || strings.Contains(head, "hunked") {
		t.Errorf("%q %q", head, body)
	}
	x = connect(t, f.Server)
	x.Send("GET / HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n")
	if head, body, _ := strings.Cut(x.Ends(), "\r\n\r\n"); body != "hi" || strings.Contains(head, "keep-alive") {
		t.Errorf("%q %q", head, body)
	}
	f = newFront(t, answers(t, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"))
	x = connect(t, f.Server)
	for range 3 {
		x.Send("GET / HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n")
		resp, body := x.Answer("GET")
		if body != "hi" || !strings.EqualFold(resp.Header.Get("Connection"), "keep-alive") {
			t.Errorf("%v %q", resp.Header, body)
		}
	}
}

// TestBodilessAnswersKeepTheirLength (12): nothing is awaited behind their heads, and what they say of a length is kept.
func TestBodilessAnswersKeepTheirLength(t *testing.T) {
	for _, c := range []struct{ method, head, length string }{
		{"HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 123\r\n", "123"},
		{"HEAD", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n", ""},
		{"HEAD", "HTTP/1.1 200 OK\r\n", ""},
		{"GET", "HTTP/1.1 204 No Content\r\n", ""},
		{"GET", "HTTP/1.1 304 Not Modified\r\n", ""},
		{"GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 123\r\nContent-Type: a/b\r\n", "123"},
	} {
		f := newFront(t, backend(t, func(_ int, conn net.Conn, br *bufio.Reader) {
			for headOf(br) != "" {
				_, _ = io.WriteString(conn, c.head+"\r\n")
			}
		}))
		x := connect(t, f.Server)
		for range 2 {
			x.Send(c.method + " / HTTP/1.1\r\nHost: a\r\n\r\n")
			head := headOf(x.In)
			resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(head+"\r\n")),
				&http.Request{Method: c.method})
			if err != nil {
				t.Fatal(err)
			}
			chunked := resp.TransferEncoding != nil && c.method == "GET"
			if got := resp.Header.Get("Content-Length"); got != c.length || chunked {
				t.Errorf("%s %q: %q", c.method, c.head, head)
			}
			if strings.Contains(c.head, "a/b") && resp.Header.Get("Content-Type") != "a/b" {
				t.Errorf("%q", head)
			}
		}
	}
}

// TestTargetPassesByteForByte (13): the machine reads what was asked for.
func TestTargetPassesByteForByte(t *testing.T) {
	heads := make(chan string, 1)
	f := newFront(t, once(t, heads, writes("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")))
	for asked, want := range map[string]string{
		"/a%2Fb//c/../d;x?q=1;2&z=%zz": "", "//a": "", "/?": "", "/a?": "", "/%41": "", "/a|b^c{d}\"<>`": "",
		"/\xc3\xa4?\xc3\xa4": "", "/a?b?c": "", "/.": "", "/a\\..\\b": "", "/a:b@c": "",
		"http://a/x%2Fy?z=%zz": "/x%2Fy?z=%zz", "http://a?b": "/?b", "http://a": "/", "/a#b": "/a%23b",
	} {
		x := connect(t, f.Server)
		x.Send("GET " + asked + " HTTP/1.1\r\nHost: a\r\n\r\n")
		if resp, _ := x.Answer("GET"); resp.StatusCode != 200 {
			t.Error(asked, resp.Status)
			continue
		}
		if want == "" {
			want = asked
		}
		if line, _, _ := strings.Cut(<-heads, "\r\n"); line != "GET "+want+" HTTP/1.1" {
			t.Errorf("%q became %q", asked, line)
		}
	}
}

// TestTruncatedAnswerIsVisibleToTheClient (14): its client gets the head and what came, and sees that it is not all.
func TestTruncatedAnswerIsVisibleToTheClient(t *testing.T) {
	for name, c := range map[string]struct{ say, head, body string }{
		"nothing of a length": {"HTTP/1.1 500 Bad\r\nContent-Length: 123\r\n\r\n", "HTTP/1.1 500 ", ""},
		"some of a length":    {"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc", "HTTP/1.1 200 ", "abc"},
		"no last chunk": {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk("abc"), "HTTP/1.1 200 ",
			chunk("abc")},
		"no length, reset": {"HTTP/1.1 200 OK\r\n\r\nabc", "HTTP/1.1 200 ", chunk("abc")},
	} {
		heard := make(chan struct{})
		f := newFront(t, backend(t, func(_ int, conn net.Conn, br *bufio.Reader) {
			headOf(br)
			_, _ = io.WriteString(conn, c.say)
			if strings.Contains(name, "reset") {
				<-heard
				_ = conn.(*net.TCPConn).SetLinger(0)
			}
		}))
		x := connect(t, f.Server)
		x.Send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		head := headOf(x.In)
		if strings.Contains(name, "reset") {
			part := make([]byte, len(c.body))
			_, _ = io.ReadFull(x.In, part)
			close(heard)
			if rest := x.Ends(); string(part) != c.body || rest != "" {
				t.Errorf("%s: %q %q", name, part, rest)
			}
		} else if rest := x.Ends(); rest != c.body {
			t.Errorf("%s: %q", name, rest)
		}
		if !strings.HasPrefix(head, c.head) {
			t.Errorf("%s: the head is %q", name, head)
		}
		if o := f.last(t); !errors.Is(o.err, hop.ErrAnswer) || o.Code == 0 {
			t.Errorf("%s: %+v", name, o)
		}
	}
}

// TestNoHeadersAreAdded (15): neither to what a machine reads nor to what a client does.
func TestNoHeadersAreAdded(t *testing.T) {
	heads := make(chan string, 1)
	f := newFront(t, backend(t, func(_ int, c net.Conn, br *bufio.Reader) {
		for {
			head := headOf(br)
			if strings.Contains(head, "chunked") {
				_, _ = br.Discard(len(end))
			}
			if head == "" {
				return
			}
			heads <- head
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 5\r\nEtag: e\r\n\r\n<html")
		}
	}))
	for ask, want := range map[string]string{
		"GET / HTTP/1.1\r\nHost: a\r\n\r\n": "GET / HTTP/1.1\r\nHost: a\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n": "POST / HTTP/1.1\r\nHost: a\r\n" +
			"Content-Length: 0\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n": "POST / HTTP/1.1\r\nHost: a\r\n" +
			"Transfer-Encoding: chunked\r\n",
	} {
		x := connect(t, f.Server)
		x.Send(ask)
		if head := headOf(x.In); head != "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nDate: d\r\nEtag: e\r\n" {
			t.Errorf("the client got %q", head)
		}
		if head := <-heads; head != want {
			t.Errorf("the machine got %q", head)
		}
	}
}

// TestOversizedHeadIsItsOwnError (16): heads of nearly 64 KiB pass, of more are an error of their own.
func TestOversizedHeadIsItsOwnError(t *testing.T) {
	for size, large := range map[int]bool{60 << 10: false, 70 << 10: true} {
		f := newFront(t, once(t, nil, writes("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nA: "+strings.Repeat("a", size)+
			"\r\n\r\nhi")))
		x := connect(t, f.Server)
		x.Send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		if resp, _ := x.Answer("GET"); (resp.StatusCode == 200) == large {
			t.Error(size, resp.Status)
		}
		if o := f.last(t); errors.Is(o.err, hop.ErrLargeHead) != large {
			t.Errorf("%+v", o)
		}
	}
}

// TestRefusedUpgradeKeepsTheConnection (18): a refusal is an answer, and its connection is used again.
func TestRefusedUpgradeKeepsTheConnection(t *testing.T) {
	const times = 1000
	f := newFront(t, answers(t, "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno"))
	leavesNothing(t, func() {
		x := connect(t, f.Server)
		for range times {
			x.Send("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
				"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n")
			if resp, body := x.Answer("GET"); resp.StatusCode != 403 || body != "no" {
				t.Fatal(resp.Status, body)
			}
			if o := f.last(t); !o.Reusable || o.Upgraded {
				t.Fatalf("%+v", o)
			}
		}
		x.Close()
		f.conns.Close()
	})
	if f.dials != 1 {
		t.Errorf("%d connections", f.dials)
	}
}
