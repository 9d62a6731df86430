package faults

import (
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/soukhq/souk/cli/check/history"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/internal/wait/waittest"
)

type round func(*http.Request) (*http.Response, error)

// RoundTrip is http.RoundTripper's.
func (f round) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestClientsEndDespiteLostAnswers: clients that have as many launches without an answer as they may come to an end all the same. They
// did not when there was one more than their channel held.
func TestClientsEndDespiteLostAnswers(t *testing.T) {
	asked, done := make(chan bool), make(chan struct{})
	nobody := round(func(r *http.Request) (*http.Response, error) { // no server: this host may have no loopback
		select {
		case asked <- true:
		case <-done:
		}
		return &http.Response{StatusCode: http.StatusServiceUnavailable, Body: http.NoBody, Request: r}, nil
	})
	o := &Options{Fault: Kill, Clients: 3}
	if err := o.settle(); err != nil {
		t.Fatal(err)
	}
	rec := history.NewRecorder(io.Discard)
	l := &load{
		ms:   []*member{{id: "m1", cl: client.WithHTTP("nowhere:1", "", &http.Client{Transport: nobody})}},
		o:    o,
		rec:  rec,
		soon: time.Microsecond,
		stop: make(chan struct{}),
	}
	l.work(t.Context())
	for range 2 * o.Clients * maxGoing { // all they may ask, and tries more
		<-asked
	}
	l.until = time.Now()
	close(l.stop)
	close(done)
	ended := make(chan struct{})
	go func() { l.wg.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(waittest.Patience):
		t.Fatal("the clients do not end")
	}
	ops, err := rec.Ops()
	if err != nil || len(ops) == 0 {
		t.Fatal(len(ops), err)
	}
	for _, op := range ops {
		if op.Outcome != history.Unsure {
			t.Fatalf("nobody answered, and a client took it for one: %+v", op)
		}
	}
}
