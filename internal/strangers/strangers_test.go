package strangers_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/soukhq/souk/internal/strangers"
)

// server lets in who says "friend", at most four strangers at once.
func server(t *testing.T) (*strangers.Places, string) {
	t.Helper()
	p := strangers.New(4)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Say") == "friend" {
			strangers.Known(r.Context())
		}
	}))
	p.Attach(s.Config)
	s.Start()
	t.Cleanup(s.Close)
	return p, s.Listener.Addr().String()
}

func dial(t *testing.T, from, addr string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := d.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// say makes a request on a connection, and reports whether it was answered.
func say(t *testing.T, c net.Conn, what string) bool {
	t.Helper()
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\nSay: "+what+"\r\n\r\n"); err != nil {
		return false
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return true
}

// closed waits until the server has closed a connection.
func closed(t *testing.T, c net.Conn) {
	t.Helper()
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !strings.Contains(err.Error(), "reset") {
		t.Fatal(err)
	}
}

func TestFloodDoesNotEvictKnownAddresses(t *testing.T) {
	p, addr := server(t)
	friend := dial(t, "127.0.0.1", addr)
	if !say(t, friend, "friend") {
		t.Fatal("no answer")
	}
	var flood []net.Conn
	for range 50 {
		c := dial(t, "127.0.0.1", addr)
		if !say(t, c, "nothing") {
			t.Fatal("a stranger was not answered")
		}
		flood = append(flood, c)
	}
	for _, c := range flood[:46] {
		closed(t, c)
	}
	for _, c := range append(flood[46:], friend) {
		if !say(t, c, "nothing") {
			t.Error("one that had a place lost it")
		}
	}
	if n := p.Evicted(); n != 46 {
		t.Errorf("%d were evicted", n)
	}
}

func TestFloodingAddressEvictsOnlyItself(t *testing.T) {
	_, addr := server(t)
	first := dial(t, "127.0.0.2", addr)
	if !say(t, first, "nothing") {
		t.Fatal("no answer")
	}
	for range 50 {
		if !say(t, dial(t, "127.0.0.1", addr), "nothing") {
			t.Fatal("a stranger was not answered")
		}
	}
	if !say(t, first, "nothing") {
		t.Error("one address took the place of another")
	}
}
