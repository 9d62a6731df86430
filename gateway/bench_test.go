package gateway

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/soukhq/souk/catalog"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/journal/mem"
)

// benchGateway is a gateway over one worker in memory: what is measured is the gateway alone.
func benchGateway(b *testing.B, machines int) http.Handler {
	b.Helper()
	catalog, err := catalog.Open(mem.New(), filepath.Join(b.TempDir(), "key"))
	if err != nil {
		b.Fatal(err)
	}
	if _, err := catalog.CreateApp("a", "", "", ""); err != nil {
		b.Fatal(err)
	}
	w := newMemWorker("w1", "local", cluster.Resources{CPU: 1 << 40, Memory: 1 << 40})
	f, handle := fleetOf(directly, w)
	g, err := New(Options{Fleet: f, Worker: handle, Catalog: catalog, Token: testToken,
		Log: slog.New(slog.NewJSONHandler(io.Discard, nil))})
	if err != nil {
		b.Fatal(err)
	}
	for range machines {
		if code := ask(g.Handler(), "POST", "/v1/apps/a/machines", hostLaunch); code != 200 {
			b.Fatal(code)
		}
	}
	return g.Handler()
}

func ask(h http.Handler, method, path, body string) int {
	req := httptest.NewRequest(method, path, strings.NewReader(body))
	req.Header.Set("Authorization", "Bearer "+testToken)
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, req)
	return rec.Code
}

func BenchmarkCreate(b *testing.B) {
	h := benchGateway(b, 0)
	for b.Loop() {
		if code := ask(h, "POST", "/v1/apps/a/machines", hostLaunch); code != 200 {
			b.Fatal(code)
		}
	}
}

func BenchmarkList(b *testing.B) {
	for _, n := range []int{10, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			h := benchGateway(b, n)
			for b.Loop() {
				if code := ask(h, "GET", "/v1/apps/a/machines", ""); code != 200 {
					b.Fatal(code)
				}
			}
		})
	}
}
