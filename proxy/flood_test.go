package proxy_test

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/proxy"
)

// TestIdleConnectionsAreBounded: those that came first go, and who has a request is answered.
func TestIdleConnectionsAreBounded(t *testing.T) {
	r := &rig{t: t, fleet: fleet.New(), idle: 64}
	r.host = newHost(t, r.fleet, "w1")
	r.run(proxy.Options{Fleet: r.fleet, Workers: []proxy.Worker{r.host}, Domains: []string{"localhost"}})
	r.host.add("shop", "m1", machine.Started, httpService(nil), says("m1"))
	const n = 200
	first := r.connect()
	for i := range n {
		c := r.connect()
		switch i % 3 {
		case 1:
			c.Send("GET / HTTP/1.1\r\nHo") // and no more
		case 2:
			c.Send(http2.ClientPreface)
		}
		if i == n/2 {
			if _, body := r.get("shop", "/"); body != "m1 GET / " {
				t.Error(body)
			}
		}
	}
	if rest, err := io.ReadAll(first.In); err != nil && strings.Contains(err.Error(), "timeout") {
		t.Errorf("the first one is still there: %q, %v", rest, err)
	}
	if _, body := r.get("shop", "/"); body != "m1 GET / " {
		t.Error(body)
	}
}

// TestUnknownNamesKeepNoState: requests for unknown names leave no state and wake no machine.
func TestUnknownNamesKeepNoState(t *testing.T) {
	r := newRig(t, nil)
	r.host.add("shop", "m1", machine.Stopped, httpService(nil), says("m1"))
	c := r.connect()
	for i := range 500 {
		c.Send(fmt.Sprintf("GET / HTTP/1.1\r\nHost: app%d.localhost\r\n\r\n", i))
		if resp, _ := c.Answer("GET"); resp.StatusCode != 404 {
			t.Fatal(resp.Status)
		}
	}
	if n := r.proxy.Pools(); n != 0 {
		t.Errorf("%d pools", n)
	}
	if starts, _ := r.host.count(); starts != 0 {
		t.Errorf("%d starts", starts)
	}
}

// TestHTTP2FloodsCostOnlyTheirConnection: resets, continuations and large heads close their own connection and affect
// no other.
func TestHTTP2FloodsCostOnlyTheirConnection(t *testing.T) {
	r := newRig(t, nil)
	r.host.add("shop", "m1", machine.Started, httpService(nil), says("m1"))
	fields := []hpack.HeaderField{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "http"},
		{Name: ":path", Value: "/"}, {Name: ":authority", Value: "shop.localhost"}}
	head := func(more ...hpack.HeaderField) []byte {
		var b bytes.Buffer
		enc := hpack.NewEncoder(&b)
		enc.SetMaxDynamicTableSize(0)
		for _, f := range append(fields, more...) {
			_ = enc.WriteField(f)
		}
		return b.Bytes()
	}
	t.Run("rapid reset", func(t *testing.T) {
		f := r.frames()
		go func() { _, _ = io.Copy(io.Discard, f.c.In) }()
		for i := uint32(1); i < 4000; i += 2 {
			err := f.WriteHeaders(
				http2.HeadersFrameParam{StreamID: i, BlockFragment: head(), EndHeaders: true, EndStream: true},
			)
			if err == nil {
				err = f.WriteRSTStream(i, http2.ErrCodeCancel)
			}
			if err != nil {
				break // it has had enough
			}
		}
	})
	t.Run("continuations", func(t *testing.T) {
		f := r.frames()
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head()})
		part := bytes.Repeat([]byte{0}, 0)
		var b bytes.Buffer
		_ = hpack.NewEncoder(&b).
			WriteField(hpack.HeaderField{Name: "x", Value: strings.Repeat("y", 8000), Sensitive: true})
		part = append(part, b.Bytes()...)
		var err error
		for i := 0; i < 20000 && err == nil; i++ { // 160 MB, if somebody reads them
			err = f.WriteContinuation(1, false, part)
		}
		if err == nil {
			t.Error("a head without end is read")
		}
	})
	t.Run("a large head", func(t *testing.T) {
		f := r.frames()
		var more []hpack.HeaderField
		for range 200 {
			more = append(more, hpack.HeaderField{Name: "x", Value: strings.Repeat("y", 1000)})
		}
		if status := f.ask(append(fields, more...), ""); status == "200" {
			t.Error("it is answered")
		}
	})
	if _, body := r.get("shop", "/"); body != "m1 GET / " {
		t.Error(body)
	}
}

// TestRequestDuringIdleStopIsAnswered: a machine with nothing to do is stopped just as requests come; each is answered.
func TestRequestDuringIdleStopIsAnswered(t *testing.T) {
	r := newRig(t, nil)
	r.host.add("shop", "m1", machine.Started, httpService(func(s *machine.Service) {
		stop := machine.Autostop("stop")
		s.Autostop = &stop
	}), says("m1"))
	const times = 100
	var all sync.WaitGroup
	answered := make(chan struct{}, 2*times)
	for range 2 {
		all.Go(func() {
			c := r.connect()
			for range times {
				c.Send("POST / HTTP/1.1\r\nHost: shop.localhost\r\nContent-Length: 1\r\n\r\nx")
				if resp, body := c.Answer("POST"); body != "m1 POST / x" {
					t.Errorf("%s %q", resp.Status, body)
					return
				}
				answered <- struct{}{}
			}
		})
	}
	ended := make(chan struct{})
	go func() { all.Wait(); close(ended) }()
	for done := false; !done; {
		select {
		case <-ended:
			done = true
		case <-answered: // and the next one is on its way
			if err := r.proxy.Rest(t.Context(), "shop", "m1"); err != nil {
				t.Error(err)
			}
		}
	}
	starts, stops := r.host.count()
	if stops == 0 || starts > stops {
		t.Errorf("%d stops, %d starts", stops, starts)
	}
	t.Log(starts, "starts,", stops, "stops")
}

// TestSlowRequestHeadTimesOut: a request head that is not complete in time ends the connection.
func TestSlowRequestHeadTimesOut(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	c := r.connect()
	c.Send("GET / HTTP/1.1\r\nHost: shop.localhost\r\nX: ")
	begin := time.Now()
	for i := 0; ; i++ {
		_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		if _, err := c.In.Peek(1); err == nil || !strings.Contains(err.Error(), "timeout") {
			break
		}
		c.Send("y")
		if time.Since(begin) > waittest.Patience {
			t.Fatal("it lasts")
		}
	}
}
