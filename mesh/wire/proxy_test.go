package wire

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"
)

// lastWords answers requests, and has something to say at the end.
type lastWords struct{}

const bye = "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"

func (lastWords) ServeHTTP(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "fine") }
func (lastWords) Goodbye() []byte                                  { return []byte(bye) }

// TestProxyConnectionsGetAShutdownNotice: a server that stops sends a notice on each idle connection of another
// member's proxy before it closes it; a proxy that is just sending a request reads the notice as its answer.
func TestProxyConnectionsGetAShutdownNotice(t *testing.T) {
	c := newCast(t, time.Now())
	s, err := NewServer(Options{Identity: c.all["w1"], Worker: newStub(), Proxy: lastWords{},
		Log: slog.New(slog.DiscardHandler)})
	must(t, err)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	ctx, end := context.WithCancel(t.Context())
	var served sync.WaitGroup
	served.Go(func() {
		if err := s.Serve(ctx, ln); err != nil {
			t.Error(err)
		}
	})
	dial := func() net.Conn {
		conn, err := NewClient(c.all["g1"], nil).DialProxy(t.Context(), "w1", ln.Addr().String())
		must(t, err)
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	fresh, used := dial(), dial()
	for range 2 {
		_, err = io.WriteString(used, "GET / HTTP/1.1\r\nHost: souk\r\n\r\n")
		must(t, err)
		resp, err := http.ReadResponse(bufio.NewReader(used), nil)
		must(t, err)
		if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "fine" {
			t.Fatal(string(body), err)
		}
	}
	end()
	for what, conn := range map[string]net.Conn{"without a request": fresh, "that was used": used} {
		must(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
		if got, err := io.ReadAll(conn); err != nil || string(got) != bye {
			t.Errorf("a connection %s: %q, %v", what, got, err)
		}
	}
	served.Wait()
}
