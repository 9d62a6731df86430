package proxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/proxy/hop/hoptest"
)

// tooMuch are answers behind which more comes, by the method and path that are asked for.
var tooMuch = map[string]struct{ answer, more string }{
	"GET /behind":    {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", stolen},
	"GET /short":     {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "more than its length"},
	"GET /chunks":    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nA: b\r\n\r\n", stolen},
	"GET /both":      {"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", stolen},
	"HEAD /":         {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "hello"},
	"HEAD /whole":    {"HTTP/1.1 200 OK\r\n\r\n", stolen},
	"GET /204":       {"HTTP/1.1 204 No Content\r\n\r\n", "hello"},
	"GET /204length": {"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", "hello"},
	"GET /204whole":  {"HTTP/1.1 204 No Content\r\n\r\n", stolen},
	"GET /304":       {"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", "hello"},
	"GET /304whole":  {"HTTP/1.1 304 Not Modified\r\n\r\n", stolen},
	"GET /upgrade":   {"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno", stolen},
	// It reads no body, so what is in it is a request to it.
	"POST /unread": {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", ""},
}

const stolen = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nstolen"

// wild serves requests by tooMuch, and others by their path. Behind an answer of tooMuch it waits for go on, and it
// says when more was written.
type wild struct {
	goOn, said chan struct{} // nil: it writes on at once
	oneWrite   bool
}

func (a *wild) serve(c net.Conn) {
	br := bufio.NewReader(c)
	for {
		q, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		bad, is := tooMuch[q.Method+" "+q.URL.Path]
		switch {
		case !is:
			_, _ = io.Copy(io.Discard, q.Body)
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(q.URL.Path), q.URL.Path)
			continue
		case a.oneWrite:
			_, _ = io.WriteString(c, bad.answer+bad.more)
		default:
			_, _ = io.WriteString(c, bad.answer)
			if a.goOn != nil {
				<-a.goOn
			}
			_, _ = io.WriteString(c, bad.more)
		}
		if a.said != nil {
			a.said <- struct{}{}
		}
	}
}

func askOf(what string) string {
	method, path, _ := strings.Cut(what, " ")
	head, body := method+" "+path+" HTTP/1.1\r\nHost: shop.localhost\r\n", ""
	if method == http.MethodPost {
		body = "GET /of-the-body HTTP/1.1\r\nHost: a\r\n\r\n"
		head += fmt.Sprintf("Content-Length: %d\r\n", len(body))
	}
	if path == "/upgrade" {
		head += "Connection: Upgrade\r\nUpgrade: websocket\r\n"
	}
	return head + "\r\n" + body
}

// newWild is a rig whose app has one machine, which is wild: of its own, or of another member.
func newWild(t *testing.T, way string, a *wild) *rig {
	to := far{}
	r := newRig(t, withFar(to))
	h := r.host
	if way == "far" {
		h = r.behind("w2", to).host
	}
	g := h.add("shop", "m1", machine.Started, httpService(nil), a.serve)
	if way == "far" {
		r.knows(g, machine.Started)
	}
	return r
}

// TestExcessAnswerBytesReachNoOtherClient: what an app sends behind an answer reaches no other client, however soon that one asks.
func TestExcessAnswerBytesReachNoOtherClient(t *testing.T) {
	for _, way := range []string{"own", "far"} {
		for _, oneWrite := range []bool{true, false} {
			a := &wild{said: make(chan struct{}, 1), oneWrite: oneWrite}
			r := newWild(t, way, a)
			good := r.connect()
			for what := range tooMuch {
				method, _, _ := strings.Cut(what, " ")
				for _, ms := range []time.Duration{0, 1, 8, 30} {
					pause := ms * time.Millisecond
					bad := r.connect()
					bad.Send(askOf(what))
					if resp, body := bad.Answer(method); resp.StatusCode == 502 || strings.Contains(body, "stolen") {
						t.Errorf("%s, %s: %s %q", way, what, resp.Status, body)
					}
					bad.Close()
					<-a.said
					timer := time.NewTimer(pause)
					<-timer.C
					good.Send("GET /mine HTTP/1.1\r\nHost: shop.localhost\r\n\r\n")
					if resp, body := good.Answer("GET"); resp.StatusCode != 200 || body != "/mine" {
						t.Errorf("%s, %s, %v later: another client gets %s %q", way, what, pause, resp.Status, body)
					}
				}
			}
		}
	}
}

// TestLateForbiddenBodyReachesNoOtherClient: a body where none may be is often written apart from the head, and requests come meanwhile.
func TestLateForbiddenBodyReachesNoOtherClient(t *testing.T) {
	for _, what := range []string{"HEAD /", "HEAD /whole", "GET /204", "GET /204length", "GET /204whole", "GET /304",
		"GET /304whole"} {
		a := &wild{goOn: make(chan struct{}), said: make(chan struct{}, 1)}
		r := newWild(t, "own", a)
		bad, good := r.connect(), r.connect()
		method, _, _ := strings.Cut(what, " ")
		for range 20 {
			bad.Send(askOf(what))
			bad.Answer(method)
			for _, path := range []string{"/before", "/behind-it"} {
				good.Send("GET " + path + " HTTP/1.1\r\nHost: shop.localhost\r\n\r\n")
				if resp, body := good.Answer("GET"); resp.StatusCode != 200 || body != path {
					t.Errorf("%s: another client gets %s %q", what, resp.Status, body)
				}
				if path == "/before" {
					a.goOn <- struct{}{}
					<-a.said
				}
			}
		}
	}
}

// TestVeryLateBytesReachNoOtherClient: a body where none may be, and the answer to a request that was a body, may come when the machine
// gets to it. However long that takes, whoever asks meanwhile gets an answer of its own.
func TestVeryLateBytesReachNoOtherClient(t *testing.T) {
	for _, way := range []string{"own", "far"} {
		a := &wild{goOn: make(chan struct{})}
		r := newWild(t, way, a)
		for what := range tooMuch {
			method, path, _ := strings.Cut(what, " ")
			if method == http.MethodGet && path[1] > '9' { // of those with a body souk cannot know
				continue
			}
			for range 3 { // one may be closed, and not kept
				bad := r.connect()
				bad.Send(askOf(what))
				bad.Answer(method)
			}
		}
		pause := func(d time.Duration) { timer := time.NewTimer(d); <-timer.C }
		pause(100 * time.Millisecond) // longer than any rest
		var all []*hoptest.Client
		for i := range 30 {
			c := r.connect()
			c.Send(fmt.Sprintf("GET /mine/%d HTTP/1.1\r\nHost: shop.localhost\r\n\r\n", i))
			all = append(all, c)
		}
		pause(20 * time.Millisecond) // for them to be under way
		close(a.goOn)
		for i, c := range all {
			if resp, body := c.Answer("GET"); resp.StatusCode != 200 || body != fmt.Sprint("/mine/", i) {
				t.Errorf("%s: a client gets %s %q", way, resp.Status, body)
			}
		}
	}
}

// TestOverlongAnswerHarmsNoConcurrentClient: under load, a client gets its own answer and no error, whatever others make an app
// send.
func TestOverlongAnswerHarmsNoConcurrentClient(t *testing.T) {
	for _, way := range []string{"own", "far"} {
		r := newWild(t, way, &wild{})
		var all sync.WaitGroup
		done := make(chan struct{})
		for _, what := range []string{"HEAD /", "HEAD /whole", "GET /204", "GET /304", "GET /304whole",
			"POST /unread"} {
			method, _, _ := strings.Cut(what, " ")
			all.Go(func() {
				for {
					c := r.connect()
					c.Send(askOf(what))
					c.Answer(method)
					c.Close()
					select {
					case <-done:
						return
					default:
					}
				}
			})
		}
		var good sync.WaitGroup
		for i := range 4 {
			c := r.connect()
			good.Go(func() { asksForItsOwn(t, c, i) })
		}
		good.Wait()
		close(done)
		all.Wait()
	}
}

func asksForItsOwn(t *testing.T, c *hoptest.Client, i int) {
	for n := range 400 {
		path := fmt.Sprintf("/%d/%d", i, n)
		c.Send("GET " + path + " HTTP/1.1\r\nHost: shop.localhost\r\n\r\n")
		if resp, body := c.Answer("GET"); resp.StatusCode != 200 || body != path {
			t.Errorf("%s is answered %s %q", path, resp.Status, body)
			return
		}
	}
}
