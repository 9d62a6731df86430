package wire

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/mesh/pki"
)

// BenchmarkFloorOfHTTP2OverTLS is what net/http itself takes for a POST of the size of a Quote and an answer of its size, over HTTP/2
// and TLS with certificates at both ends, on loopback: the others below are to be held against it, in the same run.
func BenchmarkFloorOfHTTP2OverTLS(b *testing.B) {
	c := newCast(b, time.Now())
	question, reply := bytes.Repeat([]byte("q"), 200), bytes.Repeat([]byte("a"), 700)
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	srv := &http.Server{Protocols: protocols, TLSConfig: c.all["w1"].ServerTLS(time.Now, false, "h2"),
		ReadHeaderTimeout: time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			_, _ = w.Write(reply)
		})}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(b, err)
	go func() { _ = srv.ServeTLS(ln, "", "") }()
	b.Cleanup(func() { srv.Close() })
	conf := c.all["g1"].ClientTLS(time.Now, "w1", pki.Worker, "h2")
	tr := newTransport(func(ctx context.Context, _, _ string) (net.Conn, error) {
		return dialTLS(ctx, (&net.Dialer{}).DialContext, ln.Addr().String(), conf)
	})
	b.Cleanup(tr.CloseIdleConnections)
	for b.Loop() {
		r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, "https://souk/", bytes.NewReader(question))
		must(b, err)
		res, err := tr.RoundTrip(r)
		must(b, err)
		_, err = io.Copy(io.Discard, res.Body)
		must(b, err)
		res.Body.Close()
	}
}

func benchmarked(b *testing.B) (*Worker, *stub) {
	k := newStub()
	k.give["Record"], k.give["Quote"], k.give["Grant"] = aRecord(),
		market.Quote{Record: aRecord(), Verdict: placement.Verdict{Fits: true}}, aMachine()
	w := far(b, k)
	_, err := w.Hello(b.Context())
	must(b, err)
	return w, k
}

func BenchmarkRecordCall(b *testing.B) {
	w, _ := benchmarked(b)
	for b.Loop() {
		_, err := w.Record(b.Context())
		must(b, err)
	}
}

func BenchmarkQuoteCall(b *testing.B) {
	w, _ := benchmarked(b)
	r := placement.Request{App: "a", Machine: testID}
	for b.Loop() {
		_, err := w.Quote(b.Context(), r)
		must(b, err)
	}
}

// BenchmarkGrantCall sends a grant with the placement of ten candidates, to a worker that answers at once.
func BenchmarkGrantCall(b *testing.B) {
	w, _ := benchmarked(b)
	g := aGrant(testID)
	g.Placement = &machine.Placement{Policy: "spread"}
	for i := range 10 {
		g.Placement.Candidates = append(g.Placement.Candidates, machine.Candidate{Worker: fmt.Sprint("w", i),
			Fits: true, Score: 1, Terms: machine.Terms{{Name: "headroom", Value: 0.5}, {Name: "region", Value: 50}}})
	}
	for b.Loop() {
		_, err := w.Grant(b.Context(), g)
		must(b, err)
	}
}

// BenchmarkGrantsBy16Callers is BenchmarkGrantCall by 16 callers at once, each for its own machines.
func BenchmarkGrantsBy16Callers(b *testing.B) {
	w, _ := benchmarked(b)
	b.SetParallelism(8) // of 2 processors
	b.RunParallel(func(pb *testing.PB) {
		g := aGrant(machine.NewID(rand.Reader))
		for pb.Next() {
			if _, err := w.Grant(b.Context(), g); err != nil {
				b.Error(err)
				return
			}
		}
	})
}
