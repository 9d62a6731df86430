package proxy_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/machine"
)

// up notes that a machine has come up again.
func (h *host) up(id, event string) {
	h.mu.Lock()
	g := h.machines[id]
	g.Events = append([]machine.Event{{ID: event, Type: "start"}}, g.Events...)
	h.mu.Unlock()
	h.set(id, machine.Started)
}

// TestDrainFinishesRequestsAndAdmitsNone (26): a machine that is to be stopped gets no more requests, though everybody thinks that it runs; those that
// it has are answered before the drain ends; an upgraded connection is not waited for. Its next start gets requests.
func TestDrainFinishesRequestsAndAdmitsNone(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	answer := make(chan struct{})
	slow := handles(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/slow" {
			<-answer
		}
		fmt.Fprint(w, "m1")
	})
	r.host.add("shop", "m1", machine.Started, httpService(nil), slow)
	r.host.up("m1", "e1")
	r.host.add("ws", "m3", machine.Started, httpService(nil), echoes)
	ws := r.connect()
	ws.Send("GET / HTTP/1.1\r\nHost: ws.localhost\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	if resp, err := http.ReadResponse(ws.In, nil); err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(resp, err)
	}
	r.proxy.Drain(t.Context(), "ws", "m3", time.Hour)
	r.host.add("old", "m4", machine.Started, httpService(nil), says("m4"))
	r.proxy.Drain(t.Context(), "old", "m4", time.Hour)
	if resp, _ := r.get("old", "/"); resp.StatusCode != http.StatusOK { // nothing tells its start from the next one
		t.Errorf("a machine whose start is not known gets no requests after a drain: %s", resp.Status)
	}

	under := make(chan string, 1)
	go func() { resp, body := r.get("shop", "/slow"); under <- resp.Status + " " + body }()
	waittest.Until(t, "the request is under way", func() bool { return r.proxy.Load("m1") == 1 })
	began := time.Now()
	r.proxy.Drain(t.Context(), "shop", "m1", 50*time.Millisecond)
	if took := time.Since(began); took < 50*time.Millisecond {
		t.Errorf("it was not waited for a request: %v", took)
	}
	drained := make(chan struct{})
	go func() { r.proxy.Drain(context.Background(), "shop", "m1", time.Hour); close(drained) }()
	r.host.add("shop", "m2", machine.Started, httpService(nil), says("m2"))
	for range 20 {
		if resp, body := r.get("shop", "/"); resp.StatusCode != http.StatusOK || !strings.HasPrefix(body, "m2") {
			t.Fatal(resp.Status, body)
		}
	}
	select {
	case <-drained:
		t.Error("the drain has ended before the request")
	default:
	}
	close(answer)
	<-drained
	if got := <-under; got != "200 OK m1" {
		t.Error(got)
	}
	r.host.set("m1", machine.Stopped)
	r.host.up("m1", "e2")
	waittest.Until(t, "its next start gets requests", func() bool {
		_, body := r.get("shop", "/")
		return body == "m1"
	})
}
