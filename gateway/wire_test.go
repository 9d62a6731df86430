package gateway

import (
	"context"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fleet/find"
	"github.com/soukhq/souk/mesh/pki"
	"github.com/soukhq/souk/mesh/wire"
	"github.com/soukhq/souk/store/catalog"
	"github.com/soukhq/souk/store/journal/mem"
	"github.com/soukhq/souk/worker"
)

var (
	_ Worker      = (*wire.Worker)(nil)
	_ wire.Served = (*worker.Worker)(nil)
)

// overWireEnv makes every shop of this package's tests ask its workers over TLS sockets.
const overWireEnv = "SOUK_TEST_OVER_WIRE"

// TestAPITestsPassOverTheWire runs this package's tests once more, each worker behind a server and a link of package wire.
// Nothing that a client of the API sees may be different.
func TestAPITestsPassOverTheWire(t *testing.T) {
	if os.Getenv(overWireEnv) != "" {
		return // this is that run
	}
	var args []string
	if deadline, ok := t.Deadline(); ok { // a little earlier, so that it says where it stood
		args = append(args, "-test.timeout="+(time.Until(deadline)*9/10).String())
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), overWireEnv+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// identities are two members of one cluster: a gateway, and one that has all roles.
var identities = sync.OnceValues(func() (map[string]*pki.Identity, error) {
	dir, err := os.MkdirTemp("", "souk-wire-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	ca, err := pki.Init(filepath.Join(dir, "ca"), time.Now())
	if err != nil {
		return nil, err
	}
	all := map[string]*pki.Identity{}
	for id, roles := range map[string][]pki.Role{"g1": {pki.Gateway}, "w1": {pki.Worker}, "w2": {pki.Worker},
		"w3": {pki.Worker}} {
		member := filepath.Join(dir, id)
		if err := ca.IssueTo(member, pki.Name{ID: id, Roles: roles}, time.Now()); err != nil {
			return nil, err
		}
		if all[id], err = pki.Load(member); err != nil {
			return nil, err
		}
	}
	return all, nil
})

// reached gives the worker as the gateway is to reach it: as it is, or over the wire.
func reached(t *testing.T, w *memWorker) Worker {
	t.Helper()
	bubble := time.Now().Year() == 2000 // of testing/synctest, where there are no sockets
	if os.Getenv(overWireEnv) == "" || bubble {
		return w
	}
	return wired(t, w)
}

func wired(t testing.TB, w *memWorker) *wire.Worker {
	t.Helper()
	ids, err := identities()
	if err != nil {
		t.Fatal(err)
	}
	if ids[string(w.id)] == nil {
		t.Fatalf("worker %s has no certificate; give it one above", w.id)
	}
	server, err := wire.NewServer(wire.Options{Identity: ids[string(w.id)], Worker: w})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := server.Serve(ctx, ln); err != nil {
			t.Error(err)
		}
	})
	far := wire.NewClient(ids["g1"], nil).Worker(w.id, func() string { return ln.Addr().String() })
	t.Cleanup(func() {
		far.Close()
		cancel()
		wg.Wait()
	})
	return far
}

// BenchmarkCreateOverASocket creates machines through the API with the worker in this process, and with it at the other end of
// a socket: what is between the two is the price of a gateway that is not the worker's. Each create asks the worker
// twice.
func BenchmarkCreateOverASocket(b *testing.B) {
	for _, far := range []bool{false, true} {
		b.Run(map[bool]string{false: "local", true: "far"}[far], func(b *testing.B) {
			w := newMemWorker("w1", "local", cluster.Resources{CPU: 1 << 40, Memory: 1 << 40})
			reached := Worker(w)
			if far {
				reached = wired(b, w)
			}
			catalog, err := catalog.Open(mem.New(), filepath.Join(b.TempDir(), "key"))
			if err != nil {
				b.Fatal(err)
			}
			if _, err := catalog.Apps.CreateApp("a", "", "", ""); err != nil {
				b.Fatal(err)
			}
			f, handle := fleetOf(func(*memWorker) Worker { return reached }, w)
			g, err := New(withBroker(b, Options{Directory: &find.Directory{Fleet: f, Worker: handle,
				Apps: catalog.Apps},
				Catalog: catalog, Token: testToken,
				Log: slog.New(slog.DiscardHandler)}))
			if err != nil {
				b.Fatal(err)
			}
			var took []time.Duration
			for b.Loop() {
				begin := time.Now()
				if code := ask(g.Handler(), "POST", "/v1/apps/a/machines", hostLaunch); code != 200 {
					b.Fatal(code)
				}
				took = append(took, time.Since(begin))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-us")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-us")
		})
	}
}
