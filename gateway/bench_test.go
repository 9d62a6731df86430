package gateway

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fleet/find"
	"github.com/soukhq/souk/store/catalog"
	"github.com/soukhq/souk/store/journal/mem"
)

// benchGateway is a gateway over one worker in memory: what is measured is the gateway alone.
func benchGateway(b *testing.B, machines int) http.Handler {
	b.Helper()
	catalog, err := catalog.Open(mem.New(), filepath.Join(b.TempDir(), "key"))
	if err != nil {
		b.Fatal(err)
	}
	if _, err := catalog.Apps.CreateApp("a", "", "", ""); err != nil {
		b.Fatal(err)
	}
	w := newMemWorker("w1", "local", cluster.Resources{CPU: 1 << 40, Memory: 1 << 40})
	f, handle := fleetOf(directly, w)
	g, err := New(withBroker(b, Options{Directory: &find.Directory{Fleet: f, Worker: handle, Apps: catalog.Apps},
		Catalog: catalog, Token: testToken,
		Log: slog.New(slog.NewJSONHandler(io.Discard, nil))}))
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

func BenchmarkCreateMachine(b *testing.B) {
	h := benchGateway(b, 0)
	for b.Loop() {
		if code := ask(h, "POST", "/v1/apps/a/machines", hostLaunch); code != 200 {
			b.Fatal(code)
		}
	}
}

// BenchmarkListMachines asks for lists as a client does, of a worker that keeps no JSON: each machine is encoded each time, as
// in the first list after a change (worker.BenchmarkList20000Machines has the others). cpu_ms/op counts the collector's work, too.
func BenchmarkListMachines(b *testing.B) {
	for _, n := range []int{10, 1000, 20_000} {
		h := benchGateway(b, n)
		for name, path := range map[string]string{"machines": "/v1/apps/a/machines", "lines": "/v1/souk/machines"} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				before := cpu(b)
				for b.Loop() {
					if code := ask(h, "GET", path, ""); code != 200 {
						b.Fatal(code)
					}
				}
				b.ReportMetric((cpu(b)-before).Seconds()*1000/float64(b.N), "cpu_ms/op")
			})
		}
	}
}

// cpu returns what this process has used.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
