package proxy_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/proxy/hop/hoptest"
)

func overHTTP2(s *machine.Service) {
	s.Ports[0].HTTPOptions = &machine.HTTPOptions{H2Backend: new(true)}
}

// goesAway is a machine over HTTP/2 that takes one request of each connection and says GOAWAY to the next.
type goesAway struct {
	served, refused atomic.Int32
}

func (g *goesAway) serve(c net.Conn) {
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(c, preface); err != nil {
		return
	}
	f := http2.NewFramer(c, c)
	_ = f.WriteSettings()
	for {
		x, err := f.ReadFrame()
		if err != nil {
			return
		}
		switch x := x.(type) {
		case *http2.SettingsFrame:
			if !x.IsAck() {
				_ = f.WriteSettingsAck()
			}
		case *http2.HeadersFrame:
			if x.StreamID > 1 {
				g.refused.Add(1)
				_ = f.WriteGoAway(1, http2.ErrCodeNo, nil)
			} else if x.StreamEnded() {
				g.answer(f)
			}
		case *http2.DataFrame:
			if x.StreamID == 1 && x.StreamEnded() {
				g.answer(f)
			}
		}
	}
}

func (g *goesAway) answer(f *http2.Framer) {
	g.served.Add(1)
	var b bytes.Buffer
	_ = hpack.NewEncoder(&b).WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: b.Bytes(), EndHeaders: true,
		EndStream: true})
}

// TestGoAwayResendsUnprocessedRequests (9): what it has not taken is sent over another connection, whatever the method.
func TestGoAwayResendsUnprocessedRequests(t *testing.T) {
	for _, way := range []string{"own", "far"} {
		to := far{}
		r := newRig(t, withFar(to))
		h := r.host
		if way == "far" {
			h = r.behind("w2", to).host
		}
		var m goesAway
		g := h.add("shop", "m1", machine.Started, httpService(overHTTP2), m.serve)
		if way == "far" {
			r.knows(g, machine.Started)
		}
		const times = 40
		for i := range times {
			method, body := "GET", ""
			if i%2 == 1 {
				method, body = "POST", "hello"
			}
			if resp, text := r.do(method, "shop", "/", body); resp.StatusCode != 200 {
				t.Errorf("%s %s: %s %s", way, method, resp.Status, text)
			}
		}
		if m.served.Load() != times || m.refused.Load() == 0 {
			t.Errorf("%s: %d served, %d refused", way, m.served.Load(), m.refused.Load())
		}
	}
}

// TestGoAwayLetsStreamsFinish (9): a stream that is under way ends well behind the GOAWAY.
func TestGoAwayLetsStreamsFinish(t *testing.T) {
	r := newRig(t, nil)
	say, came := make(chan struct{}), make(chan struct{})
	r.host.add("shop", "m1", machine.Started, httpService(nil), handles(func(w http.ResponseWriter, _ *http.Request) {
		close(came)
		<-say
		_, _ = io.WriteString(w, "hello")
	}))
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	ln := listen(t)
	r.addr = ln.Addr().String()
	ended := make(chan error, 1)
	go func() { ended <- r.proxy.ServeHTTPAt(ctx, ln, nil) }()
	f := r.frames()
	for _, x := range []hpack.HeaderField{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "http"},
		{Name: ":path", Value: "/"}, {Name: ":authority", Value: "shop.localhost"}} {
		_ = f.enc.WriteField(x)
	}
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: f.buf.Bytes(), EndHeaders: true,
		EndStream: true})
	<-came
	cancel()
	away, body := false, ""
	for {
		x, err := f.ReadFrame()
		if err != nil {
			t.Fatal(away, body, err)
		}
		switch x := x.(type) {
		case *http2.GoAwayFrame:
			if !away {
				away = true
				close(say)
			}
		case *http2.DataFrame:
			if body += string(x.Data()); x.StreamEnded() {
				if !away || body != "hello" {
					t.Error(away, body)
				}
				if err := <-ended; err != nil {
					t.Error(err)
				}
				return
			}
		}
	}
}

// TestExtendedConnectIsNotAdvertised (19), so browsers open their WebSockets over HTTP/1.1.
func TestExtendedConnectIsNotAdvertised(t *testing.T) {
	r := newRig(t, nil)
	f := r.frames()
	for {
		x, err := f.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if s, is := x.(*http2.SettingsFrame); is && !s.IsAck() {
			if v, announced := s.Value(http2.SettingEnableConnectProtocol); announced && v != 0 {
				t.Error("it is announced")
			}
			return
		}
	}
}

// TestClientsThatReadNothingHoldLittleMemory (20): a client that reads nothing holds little memory, with any HTTP
// version on either side; the machine is not read further, and other clients are answered.
func TestClientsThatReadNothingHoldLittleMemory(t *testing.T) {
	const clients = 60
	for name, c := range map[string]struct{ client, machine bool }{ // over HTTP/2
		"1 to 1": {}, "1 to 2": {machine: true}, "2 to 1": {client: true}, "2 to 2": {true, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			var sent atomic.Int64
			svc := httpService(nil)
			if c.machine {
				overHTTP2(&svc)
			}
			piece := make([]byte, 16<<10)
			r.host.add("shop", "m1", machine.Started, svc, handles(func(w http.ResponseWriter, q *http.Request) {
				for q.URL.Path == "/endless" && q.Context().Err() == nil {
					n, err := w.Write(piece)
					if sent.Add(int64(n)); err != nil {
						return
					}
				}
				_, _ = io.WriteString(w, "hi")
			}))
			before := heap()
			for range clients {
				if !c.client {
					r.connect().Send("GET /endless HTTP/1.1\r\nHost: shop.localhost\r\n\r\n")
					continue
				}
				f := r.frames()
				for _, x := range []hpack.HeaderField{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "http"},
					{Name: ":path", Value: "/endless"}, {Name: ":authority", Value: "shop.localhost"}} {
					_ = f.enc.WriteField(x)
				}
				_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: f.buf.Bytes(), EndHeaders: true,
					EndStream: true})
			}
			last, since := int64(-1), time.Now()
			waittest.Until(t, "the machine's writes block", func() bool {
				if now := sent.Load(); now != last {
					last, since = now, time.Now()
				}
				return last > 0 && time.Since(since) > 300*time.Millisecond
			})
			if resp, body := r.get("shop", "/"); body != "hi" {
				t.Error(resp.Status, body)
			}
			if grown := int64(heap()) - int64(before); grown > clients*256<<10 {
				t.Errorf("%d KiB a client", grown/clients>>10)
			} else {
				t.Logf("%d KiB a client, of both proxy and machine", grown/clients>>10)
			}
		})
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestSilentUpgradedConnectionIsClosed (17): without a byte for as long as its service says it is closed, and with bytes it is not.
func TestSilentUpgradedConnectionIsClosed(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.host.add("shop", "m1", machine.Started, httpService(func(s *machine.Service) {
		s.Ports[0].HTTPOptions = &machine.HTTPOptions{IdleTimeout: new(uint32(1))}
	}), echoes)
	r.host.add("long", "m2", machine.Started, httpService(nil), echoes)
	var conns []*hoptest.Client
	for _, app := range []string{"shop", "shop", "long"} {
		c := r.connect()
		c.Send("GET / HTTP/1.1\r\nHost: " + app + ".localhost\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		if resp, err := http.ReadResponse(c.In, nil); err != nil || resp.StatusCode != 101 {
			t.Fatal(resp, err)
		}
		conns = append(conns, c)
	}
	says := func(c *hoptest.Client) bool {
		_, err := io.WriteString(c, "x")
		b, rerr := c.In.ReadByte()
		return err == nil && rerr == nil && b == 'x'
	}
	waittest.Until(t, "the silent one is closed", func() bool {
		r.proxy.CloseSilent()
		if !says(conns[1]) {
			t.Fatal("one with bytes is closed")
		}
		_ = conns[0].SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		_, err := conns[0].In.ReadByte()
		return !errors.Is(err, os.ErrDeadlineExceeded)
	})
	if !says(conns[2]) {
		t.Error("one of another service is closed")
	}
}

// TestEarlyHintsPassFromHTTP2 (10): early hints pass from a machine that speaks HTTP/2.
func TestEarlyHintsPassFromHTTP2(t *testing.T) {
	r := newRig(t, nil)
	serve := handles(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "<a>")
		w.Header().Set("X-Other", "1")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("Link")
		_, _ = io.WriteString(w, "hi")
	})
	r.host.add("shop", "m1", machine.Started, httpService(overHTTP2), serve)
	c := r.connect()
	c.Send("GET /a%2Fb?x=%zz HTTP/1.1\r\nHost: shop.localhost\r\n\r\n")
	hint, err := http.ReadResponse(c.In, nil)
	if err != nil || hint.StatusCode != 103 || fmt.Sprint(hint.Header) != "map[Link:[<a>]]" {
		t.Fatal(hint, err)
	}
	if resp, body := c.Answer("GET"); body != "hi" || strings.Contains(fmt.Sprint(resp.Header), "<a>") {
		t.Error(resp.Header, body)
	}
}
