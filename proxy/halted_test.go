package proxy_test

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/proxy/hop/hoptest"
)

func hangs(c net.Conn) { _, _ = io.Copy(io.Discard, c) }

// TestRequestsOfAStuckStopAreMovedOrEnded: a request to a machine that a signal stops too slowly is ended: an
// idempotent one goes to another machine, or gets 503 where there is none; another gets 504. A machine that is slow to
// answer, or has begun its answer, is left alone.
func TestRequestsOfAStuckStopAreMovedOrEnded(t *testing.T) {
	for _, remote := range []bool{false, true} {
		to := far{}
		entry := newRig(t, withFar(to))
		r := entry
		if remote {
			r = entry.behind("w2", to)
		}
		g := r.host.add("shop", "m1", machine.Started, httpService(nil), hangs)
		if remote {
			entry.knows(g, machine.Started)
		}
		ask := func(method string) *hoptest.Client {
			c := entry.connect()
			c.Send(method + " / HTTP/1.1\r\nHost: shop.localhost\r\nContent-Length: 0\r\n\r\n")
			waittest.Until(t, "it is under way", func() bool { return r.proxy.Load("m1") == 1 })
			return c
		}
		end := func() { // once the request has a connection
			waittest.Until(t, "it is ended", func() bool {
				r.proxy.EndHalted(time.Now().Add(5 * time.Second))
				return r.proxy.Load("m1") == 0
			})
		}
		halt := func(is bool) {
			r.host.mu.Lock()
			g.halted = is
			r.host.mu.Unlock()
		}
		want := func(c *hoptest.Client, method string, code int, says string) {
			t.Helper()
			resp, body := c.Answer(method)
			if resp.StatusCode != code || !strings.Contains(body, says) {
				t.Errorf("%s, at another member %v: %s %s", method, remote, resp.Status, body)
			}
		}
		c := ask("POST")
		r.proxy.EndHalted(time.Now().Add(time.Hour))
		if r.proxy.Load("m1") != 1 {
			t.Fatal("a machine that thinks was given up")
		}
		halt(true)
		r.proxy.EndHalted(time.Now())
		if r.proxy.Load("m1") != 1 {
			t.Fatal("a request was ended at once")
		}
		end()
		want(c, "POST", http.StatusGatewayTimeout, "is stopped by a signal; souk signal m1 --signal SIGCONT")
		c = ask("GET")
		end()
		want(c, "GET", http.StatusServiceUnavailable, "m1 took the request and does not answer")
	}
}

// TestRequestOfAHaltedMachineIsResent: of two machines the one that runs gets the request.
func TestRequestOfAHaltedMachineIsResent(t *testing.T) {
	r := newRig(t, nil)
	r.host.add("shop", "m1", machine.Started, httpService(nil), hangs).halted = true
	r.host.add("shop", "m2", machine.Stopped, httpService(nil), says("two"))
	c := r.connect()
	c.Send("GET / HTTP/1.1\r\nHost: shop.localhost\r\n\r\n")
	waittest.Until(t, "it is ended", func() bool {
		r.proxy.EndHalted(time.Now().Add(5 * time.Second))
		return r.proxy.Load("m1") == 0
	})
	if resp, body := c.Answer("GET"); resp.StatusCode != http.StatusOK || !strings.HasPrefix(body, "two GET") {
		t.Error(resp.Status, body)
	}
}
