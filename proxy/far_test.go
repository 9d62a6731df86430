package proxy_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/soukhq/souk/machine"
)

// TestRemoteMachineIsWokenByItsOwner: a machine of another member is woken and asked by that member, for any path.
func TestRemoteMachineIsWokenByItsOwner(t *testing.T) {
	to := far{}
	r := newRig(t, withFar(to))
	x := r.behind("w2", to)
	g := x.host.add("shop", "m1", machine.Stopped, httpService(nil), says("m1"))
	r.knows(g, machine.Stopped)
	for _, path := range []string{"/souk/wake", "/", "/a"} {
		if resp, body := r.do("POST", "shop", path, "hello"); body != "m1 POST "+path+" hello" {
			t.Errorf("%s %q", resp.Status, body)
		}
	}
	if starts, _ := x.host.count(); starts != 1 {
		t.Errorf("%d starts", starts)
	}
	// The entry believes that it runs, and its owner knows better: it is woken, and the body is sent again.
	x.host.mu.Lock()
	g.close()
	g.reserve(t)
	g.State = machine.Stopped
	x.host.mu.Unlock()
	r.knows(g, machine.Started)
	if resp, body := r.do("POST", "shop", "/b", "again"); body != "m1 POST /b again" {
		t.Errorf("%s %q", resp.Status, body)
	}
}

// TestProxyHeadersFromMachinesAreIgnored: what a machine says in the proxies' own headers is believed by none.
func TestProxyHeadersFromMachinesAreIgnored(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		for _, way := range []string{"own", "far"} {
			to := far{}
			r := newRig(t, withFar(to))
			h := r.host
			if way == "far" {
				h = r.behind("w2", to).host
			}
			asked := 0
			g := h.add("shop", "m1", machine.Started, httpService(func(s *machine.Service) {
				s.Ports[0].HTTPOptions = &machine.HTTPOptions{H2Backend: &h2}
			}), handles(func(w http.ResponseWriter, q *http.Request) {
				asked++
				if (q.ProtoMajor == 2) != h2 {
					t.Error(q.Proto)
				}
				for name, v := range map[string]string{"Souk-Correction": "1", "Souk-Failed": "evil", "Souk-Wake": "x",
					"Souk-Error": "x", "Souk-To": "a b 1", "Fly-Request-Id": "x"} {
					w.Header().Set(name, v)
				}
				w.WriteHeader(http.StatusServiceUnavailable)
				_, _ = io.WriteString(w, `{"kind":"internal","code":"evil","text":"evil"}`)
			}))
			if way == "far" {
				r.knows(g, machine.Started)
			}
			resp, body := r.get("shop", "/")
			if resp.StatusCode != 503 || !strings.Contains(body, "evil") || asked != 1 {
				t.Errorf("%s, h2 %v: %s %q, asked %d times", way, h2, resp.Status, body, asked)
			}
			for name := range resp.Header {
				if strings.HasPrefix(name, "Souk-") {
					t.Errorf("%s, h2 %v: %s is passed on", way, h2, name)
				}
			}
			if resp.Header.Get("Fly-Request-Id") == "x" {
				t.Error("a machine names a request")
			}
		}
	}
}

// TestUnreachableMemberIsSkippedOrReported: a request skips an unreachable member where another machine exists, else
// reports it.
func TestUnreachableMemberIsSkippedOrReported(t *testing.T) {
	to := far{}
	r := newRig(t, withFar(to))
	x := r.behind("w2", to)
	g := x.host.add("shop", "m1", machine.Started, httpService(nil), says("m1"))
	r.knows(g, machine.Started)
	to["w2"] = "127.0.0.1:1"
	resp, _ := r.get("shop", "/")
	if got := fmt.Sprint(resp.StatusCode, " ", resp.Header.Get("Souk-Error")); got != "503 unreachable" ||
		resp.Header.Get("Retry-After") == "" {
		t.Error(got, resp.Header)
	}
	r.host.add("shop", "m2", machine.Started, httpService(nil), says("m2"))
	for range 5 {
		if _, body := r.do("POST", "shop", "/", "b"); body != "m2 POST / b" {
			t.Errorf("%q", body)
		}
	}
}
