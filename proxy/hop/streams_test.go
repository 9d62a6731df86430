package hop_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/proxy/hop"
)

// TestStreamedPiecesAreFlushedAtOnce: each event is seen before the next one is sent.
func TestStreamedPiecesAreFlushedAtOnce(t *testing.T) {
	for name, head := range map[string]string{
		"events":          "Content-Type: text/event-stream\r\n",
		"events, chunked": "Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n",
		"a length":        "Content-Type: text/event-stream\r\nContent-Length: 3\r\n",
		"JSON lines":      "Content-Type: application/x-ndjson\r\n",
		"a plain length":  "Content-Length: 3\r\n",
		"chunks":          "Transfer-Encoding: chunked\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			next := make(chan struct{})
			f := newFront(t, backend(t, func(_ int, c net.Conn, br *bufio.Reader) {
				headOf(br)
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n"+head+"\r\n")
				for _, s := range []string{"a", "b", "c"} {
					<-next
					if strings.Contains(head, "chunked") {
						s = chunk(s)
					}
					_, _ = io.WriteString(c, s)
				}
				if strings.Contains(head, "chunked") {
					_, _ = io.WriteString(c, end)
				}
			}))
			x := connect(t, f.Server)
			x.Send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			resp, err := http.ReadResponse(x.In, nil) // comes before any of the body
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range []string{"a", "b", "c"} {
				next <- struct{}{}
				got := make([]byte, 1)
				if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != s {
					t.Fatalf("%q, %v", got, err)
				}
			}
			if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) > 0 {
				t.Errorf("%q, %v", rest, err)
			}
		})
	}
}

func TestEarlyHintsPassThrough(t *testing.T) {
	f := newFront(t, backend(t, func(_ int, c net.Conn, br *bufio.Reader) {
		for headOf(br) != "" {
			_, _ = io.WriteString(c, "HTTP/1.1 103 Early Hints\r\nLink: <a>\r\nSet-Cookie: x\r\n\r\n"+
				"HTTP/1.1 103 Early Hints\r\nLink: <b>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
		}
	}))
	var hints []string
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			if code != 103 || h.Get("Set-Cookie") != "" {
				t.Error(code, h)
			}
			hints = append(hints, h.Get("Link"))
			return nil
		}})
	r, _ := http.NewRequestWithContext(ctx, http.MethodGet, f.URL, nil)
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if strings.Join(hints, " ") != "<a> <b>" || resp.Header.Get("Link") != "" {
		t.Error(hints, resp.Header)
	}
	x := connect(t, f.Server) // HTTP/1.0 knows no hints
	x.Send("GET / HTTP/1.0\r\nHost: a\r\n\r\n")
	if all := x.Ends(); strings.Contains(all, "103") || !strings.HasSuffix(all, "hi") {
		t.Errorf("%q", all)
	}
}

func TestProtocolUpgradePassesBothWays(t *testing.T) {
	head := make(chan string, 1)
	f := newFront(t, backend(t, func(_ int, c net.Conn, br *bufio.Reader) {
		head <- headOf(br)
		_, _ = io.WriteString(
			c,
			"HTTP/1.1 101 Switching Protocols\r\nUpgrade: WebSocket\r\nConnection: Upgrade, X-Hop\r\n"+
				"X-Hop: 1\r\nA b: c\r\nSec-WebSocket-Accept: x\r\n\r\nfirst",
		)
		all, _ := io.ReadAll(br) // until the client has nothing more to say
		_, _ = c.Write(bytes.ToUpper(all))
	}))
	x := connect(t, f.Server)
	x.Send(
		"GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n" +
			"Sec-WebSocket-Key: k\r\n\r\n" +
			"early ",
	)
	got := headOf(x.In)
	if want := <-head; !strings.Contains(want, "\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n") ||
		!strings.Contains(want, "Sec-Websocket-Key: k\r\n") {
		t.Errorf("the backend got %q", want)
	}
	if !strings.HasPrefix(got, "HTTP/1.1 101 ") || !strings.Contains(got, "\r\nUpgrade: WebSocket\r\n") ||
		!strings.Contains(got, "Sec-Websocket-Accept: x\r\n") || strings.Contains(got, "X-Hop") ||
		strings.Contains(got, "A b") {
		t.Errorf("the client got %q", got)
	}
	first := make([]byte, 5)
	if _, err := io.ReadFull(x.In, first); err != nil || string(first) != "first" {
		t.Errorf("%q, %v", first, err)
	}
	x.Send("late")
	_ = x.Conn.(*net.TCPConn).CloseWrite()
	if rest := x.Ends(); rest != "EARLY LATE" {
		t.Errorf("%q", rest)
	}
	if o := f.last(t); o.err != nil || !o.Upgraded || o.Code != 101 || o.Bytes != 15 || o.Reusable {
		t.Errorf("%+v", o)
	}
}

// TestNonUpgradeHeadersAreNotPassed: what is not handed on as a wish for another protocol.
func TestNonUpgradeHeadersAreNotPassed(t *testing.T) {
	for name, fields := range map[string]string{
		"h2c": "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n" +
			"HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n",
		"h2c of several":    "Connection: Upgrade\r\nUpgrade: websocket, h2c\r\n",
		"h2c, odd":          "Connection: upgrade\r\nUpgrade: H2C\r\n",
		"h2c twice":         "Connection: Upgrade\r\nUpgrade: h2c\r\nUpgrade: websocket\r\n",
		"second h2c":        "Connection: Upgrade\r\nUpgrade: websocket\r\nUpgrade: h2c\r\n",
		"not in Connection": "Upgrade: websocket\r\n",
		"with a body":       "Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 1\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			head := make(chan string, 1)
			f := newFront(t, backend(t, func(_ int, c net.Conn, br *bufio.Reader) {
				head <- headOf(br)
				_, _ = io.WriteString(
					c,
					"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n",
				)
				_, _ = io.Copy(io.Discard, br)
			}))
			x := connect(t, f.Server)
			x.Send("GET / HTTP/1.1\r\nHost: a\r\n" + fields + "\r\n")
			if strings.Contains(fields, "Length") {
				x.Send("x")
			}
			if resp, _ := x.Answer("GET"); resp.StatusCode != http.StatusBadGateway {
				t.Error(resp.Status)
			}
			got := strings.ToLower(<-head)
			if strings.Contains(got, "h2c") || strings.Contains(got, "http2-settings") ||
				!strings.Contains(name, "second") && strings.Contains(got, "upgrade") {
				t.Errorf("the backend got %q", got)
			}
			if o := f.last(t); !errors.Is(o.err, hop.ErrAnswer) || o.Reusable {
				t.Errorf("%+v", o)
			}
		})
	}
}

// TestFullDuplexStreamsBothWays: the answer begins before the request's end, and each side hears the other at once.
func TestFullDuplexStreamsBothWays(t *testing.T) {
	to := backend(t, func(_ int, c net.Conn, br *bufio.Reader) {
		r, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
		_, _ = io.Copy(c, r.Body)
	})
	for _, version := range []int{1, 2} {
		f := newFront(t, to)
		protocols := new(http.Protocols)
		protocols.SetHTTP1(version == 1)
		protocols.SetUnencryptedHTTP2(version == 2)
		tr := &http.Transport{Protocols: protocols}
		defer tr.CloseIdleConnections()
		body, say := io.Pipe()
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, f.URL, body)
		resp, err := tr.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		if resp.ProtoMajor != version {
			t.Error(resp.Proto)
		}
		for _, s := range []string{"one", "two"} {
			go func() { _, _ = io.WriteString(say, s) }()
			got := make([]byte, 3)
			if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != s {
				t.Fatalf("%q, %v", got, err)
			}
		}
		say.Close()
		if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) > 0 {
			t.Errorf("%q, %v", rest, err)
		}
		if o := f.last(t); o.err != nil {
			t.Errorf("%+v", o)
		}
	}
}

// TestBodyIsSentWithoutA100Continue: one that never asks for a body gets it all the same.
func TestBodyIsSentWithoutA100Continue(t *testing.T) {
	f := newFront(t, backend(t, func(_ int, c net.Conn, br *bufio.Reader) {
		headOf(br)
		body := make([]byte, 2)
		_, _ = io.ReadFull(br, body)
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"+string(body))
		_, _ = br.Peek(1)
	}))
	x := connect(t, f.Server)
	x.Send("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
	if head := headOf(x.In); head != "HTTP/1.1 100 Continue\r\n" {
		t.Fatalf("%q", head)
	}
	x.Send("hi")
	if _, body := x.Answer("POST"); body != "hi" {
		t.Error(body)
	}
}

// TestAmbiguousRequestIsNotSent: what would be read in two ways is not sent at all.
func TestAmbiguousRequestIsNotSent(t *testing.T) {
	for _, change := range []option{
		func(r *hop.Request) { r.Method = "GET /a HTTP/1.1" },
		func(r *hop.Request) { r.Method = "" },
		func(r *hop.Request) { r.RequestURI = "/?a HTTP/1.1" },
		func(r *hop.Request) { r.RequestURI = "/?a\r\nX: y" },
		func(r *hop.Request) { r.RequestURI, r.URL.RawQuery = "", "a\r\nX: y" },
		func(r *hop.Request) { r.RequestURI, r.URL.Opaque = "", "a\tb" },
	} {
		f := newFront(t, answers(t, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), change)
		x := connect(t, f.Server)
		x.Send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		x.Answer("GET")
		if o := f.last(t); !errors.Is(o.err, hop.ErrRequest) {
			t.Errorf("%+v", o)
		}
	}
	// What the proxy sets has no end of a line.
	got := make(chan string, 1)
	f := newFront(t, backend(t, func(_ int, _ net.Conn, br *bufio.Reader) { got <- headOf(br) }),
		func(r *hop.Request) { r.Set = []hop.Field{{"X", "a\r\nY: b\x00"}, {"Empty", ""}} })
	x := connect(t, f.Server)
	x.Send("GET / HTTP/1.1\r\nHost: a\r\nX: c\r\nEmpty: d\r\n\r\n")
	if head := <-got; !strings.Contains(head, "\r\nX: a  Y: b \r\n") || strings.Contains(head, ": c") ||
		strings.Contains(head, "Empty") {
		t.Errorf("%q", head)
	}
	x.Ends()
}

// h2Backend speaks HTTP/2 in the clear, with trailers, as gRPC does.
func h2Backend(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: h, Protocols: new(http.Protocols)}
	s.Protocols.SetUnencryptedHTTP2(true)
	go func() { _ = s.Serve(ln) }()
	t.Cleanup(func() { s.Close() })
	return ln.Addr().String()
}

// TestHTTP2BackendStreamsAndTrailersWork: streams both ways and trailers, as gRPC has them, and a backend that hangs.
func TestHTTP2BackendStreamsAndTrailersWork(t *testing.T) {
	to := h2Backend(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hang" {
			<-r.Context().Done()
			return
		}
		if r.Header.Get("Te") != "trailers" || r.Host != "a.example" || r.Header.Get("X-Drop") != "" {
			t.Error(r.Host, r.Header)
		}
		w.Header().Set("Trailer", "Grpc-Status")
		_ = http.NewResponseController(w).Flush()
		buf := make([]byte, 3)
		for {
			if _, err := io.ReadFull(r.Body, buf); err != nil {
				break
			}
			_, _ = w.Write(buf)
			_ = http.NewResponseController(w).Flush()
		}
		w.Header().Set("Grpc-Status", "0")
		w.Header().Set(http.TrailerPrefix+"Grpc-Message", "fine")
	})
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	rt := &http.Transport{Protocols: protocols, DisableCompression: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", to)
		}}
	defer rt.CloseIdleConnections()
	outcomes := make(chan outcome, 1)
	front := h2Backend(t, func(w http.ResponseWriter, r *http.Request) {
		req := &hop.Request{Request: r, Drop: func(n string) bool { return n == "X-Drop" }}
		if r.URL.Path == "/hang" {
			req.Header = 20 * time.Millisecond
		}
		res, err := hop.RoundTrip(w, req, rt)
		outcomes <- outcome{res, err}
	})
	client := &http.Transport{Protocols: protocols}
	defer client.CloseIdleConnections()
	body, say := io.Pipe()
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+front+"/x", body)
	r.Host = "a.example"
	r.Header = http.Header{"Te": {"trailers"}, "X-Drop": {"x"}, "Content-Type": {"application/grpc"}}
	resp, err := client.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{"one", "two"} {
		_, _ = io.WriteString(say, s)
		got := make([]byte, 3)
		if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != s {
			t.Fatalf("%q, %v", got, err)
		}
	}
	say.Close()
	if _, err := io.ReadAll(resp.Body); err != nil {
		t.Error(err)
	}
	if resp.Trailer.Get("Grpc-Status") != "0" || resp.Trailer.Get("Grpc-Message") != "fine" {
		t.Error(resp.Trailer)
	}
	if o := <-outcomes; o.err != nil || o.Bytes != 6 {
		t.Errorf("%+v", o)
	}
	r, _ = http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+front+"/hang", nil)
	if resp, err := client.RoundTrip(r); err == nil {
		resp.Body.Close()
	}
	if o := <-outcomes; !errors.Is(o.err, os.ErrDeadlineExceeded) {
		t.Errorf("%+v", o)
	}
}

// TestSlowReaderBlocksNoOtherStream: many read nothing of their answers, and another one is answered.
func TestSlowReaderBlocksNoOtherStream(t *testing.T) {
	f := newFront(t, backend(t, func(_ int, c net.Conn, br *bufio.Reader) {
		for {
			head := headOf(br)
			if head == "" {
				return
			}
			if strings.Contains(head, "/endless") {
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
				_, _ = io.Copy(c, endless{})
				return
			}
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
		}
	}))
	for range 20 {
		x := connect(t, f.Server)
		x.Send("GET /endless HTTP/1.1\r\nHost: a\r\n\r\n")
		_, _ = x.In.Peek(1) // and reads no more
		defer x.Close()
	}
	x := connect(t, f.Server)
	for range 20 {
		x.Send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		if _, body := x.Answer("GET"); body != "hi" {
			t.Fatal(body)
		}
	}
}
