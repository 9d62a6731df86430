// Package conformance_test drives a whole souk with the Machines API's own Go client, behaviour by behaviour. Each
// subtest is one thing that client, or a program written against it, relies on.
package conformance_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers/legacy"
	fly "github.com/superfly/fly-go"
	"github.com/superfly/fly-go/flaps"
	"github.com/superfly/fly-go/tokens"

	"github.com/soukhq/souk/catalog"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/gateway"
	"github.com/soukhq/souk/journal/bolt"
	"github.com/soukhq/souk/journal/mem"
	"github.com/soukhq/souk/runtime/process"
	"github.com/soukhq/souk/worker"
)

const (
	token   = "conformance"
	limit   = time.Minute // for one thing to happen; it matters only when something is wrong
	hostImg = "souk/host"
)

func TestMain(m *testing.M) {
	process.ReaperHook()
	os.Exit(m.Run())
}

// market is a running souk, a client of it, and what the server was sent.
type market struct {
	*flaps.Client
	url string

	mu   sync.Mutex
	sent []sent
}

type sent struct {
	method, path string
	code         int
}

// recorder remembers what was answered.
type recorder struct {
	http.ResponseWriter
	code int
	body bytes.Buffer
}

func (r *recorder) Write(p []byte) (int, error) {
	r.body.Write(p)
	return r.ResponseWriter.Write(p)
}

func (r *recorder) WriteHeader(code int) {
	r.code = code
	r.ResponseWriter.WriteHeader(code)
}

func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// watch remembers every request, and holds every answer against the API's own description.
func (s *market) watch(t *testing.T, next http.Handler) http.Handler {
	spec, err := describedBy(next)
	if err != nil {
		t.Fatal(err)
	}
	router, err := legacy.NewRouter(spec)
	if err != nil {
		t.Fatal(err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := &recorder{ResponseWriter: w, code: http.StatusOK}
		next.ServeHTTP(rec, r)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.sent = append(s.sent, sent{r.Method, r.URL.Path, rec.code})
		route, _, err := router.FindRoute(r)
		if err != nil || r.Context().Err() != nil {
			return // a path that is not described has its own test; a client that is gone gets no answer
		}
		err = openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
			RequestValidationInput: &openapi3filter.RequestValidationInput{Request: r, Route: route},
			Status:                 rec.code, Header: rec.Header(),
			Body: io.NopCloser(bytes.NewReader(rec.body.Bytes())),
			Options: &openapi3filter.Options{IncludeResponseStatus: true,
				ExcludeResponseBody: rec.Header().Get("Content-Type") != "application/json"},
		})
		if err != nil {
			t.Errorf("%s %s: the answer %d is not as described: %v", r.Method, r.URL, rec.code, err)
		}
	})
}

// describedBy asks the API for its description.
func describedBy(h http.Handler) (*openapi3.T, error) {
	req := httptest.NewRequest(http.MethodGet, "/v1/souk/openapi.json", nil)
	req.Header.Set("Authorization", "Bearer "+token)
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, req)
	return openapi3.NewLoader().LoadFromData(rec.Body.Bytes())
}

// times says how often the server was sent a request.
func (s *market) times(method, path string) int { return s.answered(method, path, 0) }

// answered says how often the server answered a request with a code, 0 for any.
func (s *market) answered(method, path string, code int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, q := range s.sent {
		if q.method == method && q.path == path && (code == 0 || q.code == code) {
			n++
		}
	}
	return n
}

// startSouk runs workers with processes and a gateway on a loopback listener, until the test ends.
func startSouk(t *testing.T, each cluster.Resources, names ...string) *market {
	t.Helper()
	dir := t.TempDir()
	rows, err := catalog.Open(mem.New(), filepath.Join(dir, "secrets.key"))
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	known, workers := fleet.New(), map[cluster.WorkerID]gateway.Worker{}
	for _, name := range names {
		w := startWorker(t, filepath.Join(dir, name), name, each, rows, known)
		running.Go(func() {
			if err := w.Run(t.Context()); err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("worker %s ended: %v", name, err)
			}
		})
		workers[w.ID()] = w
	}
	t.Cleanup(running.Wait) // before what the workers stand on is closed
	call := func(id cluster.WorkerID) (gateway.Worker, bool) {
		w, there := workers[id]
		return w, there
	}
	g, err := gateway.New(gateway.Options{Fleet: known, Worker: call, Catalog: rows, Token: token, Region: "local"})
	if err != nil {
		t.Fatal(err)
	}
	s := &market{}
	server := g.Server()
	server.Handler = s.watch(t, server.Handler)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	running.Go(func() { _ = server.Serve(listener) }) // it ends with ErrServerClosed
	t.Cleanup(func() { _ = server.Close() })
	s.url = "http://" + listener.Addr().String()
	t.Setenv("FLY_FLAPS_BASE_URL", s.url)
	if s.Client, err = flaps.NewWithOptions(t.Context(), flaps.NewClientOpts{Tokens: tokens.Parse("FlyV1 " + token),
		UserAgent: "conformance"}); err != nil {
		t.Fatal(err)
	}
	return s
}

func startWorker(t *testing.T, dir, name string, capacity cluster.Resources, rows *catalog.Catalog,
	known *fleet.Fleet) *worker.Worker {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	j, err := bolt.Open(filepath.Join(dir, "journal"), bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	rt, err := process.Open(process.Options{Dir: filepath.Join(dir, "run"), ReaperCommand: []string{os.Args[0]}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		lives, err := rt.List(ctx)
		if err != nil {
			t.Error(err)
		}
		for _, l := range lives {
			if err := rt.Remove(ctx, l.Machine); err != nil {
				t.Error(err)
			}
		}
		if err := rt.StopReaper(ctx); err != nil {
			t.Error(err)
		}
		_ = rt.Close()
	})
	own := known.Own(cluster.WorkerID(name))
	w, err := worker.New(t.Context(), worker.Options{ID: cluster.WorkerID(name), Observer: own, Region: "local",
		Dir: dir, Journal: j, Runtime: rt,
		Capacity: capacity, Secrets: rows.OpenSecrets})
	if err == nil {
		err = own.Begin(t.Context(), w)
	}
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// TestConformance runs every behaviour against one souk. The subtests have apps of their own and run at the same time.
func TestConformance(t *testing.T) {
	s := startSouk(t, cluster.Resources{CPU: 8000, Memory: 16 << 10, Disk: 200 << 10, Ports: 1000}, "w1", "w2")
	for _, group := range []struct {
		name  string
		tests map[string]func(*testing.T, *market, string)
	}{
		{"app", appTests()}, {"platform", platformTests()}, {"machine", machineTests()}, {"stop", stopTests()},
		{"lease", leaseTests()},
		{"update", updateTests()}, {"variant", variantTests()}, {"refuse", refuseTests()}, {"volume", volumeTests()},
		{"secret", secretTests()},
	} {
		t.Run(group.name, func(t *testing.T) {
			for name, test := range group.tests {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					app := strings.ToLower(group.name + "-" + strings.NewReplacer(" ", "-", "_", "-", ",", "", "'", "",
						":", "", "(", "", ")", "").Replace(name))
					app = strings.Trim(app[:min(len(app), 60)], "-")
					if _, err := s.CreateApp(t.Context(),
						flaps.CreateAppRequest{Name: app, Org: "personal"}); err != nil {
						t.Fatal(err)
					}
					test(t, s, app)
					if err := s.DeleteApp(context.WithoutCancel(t.Context()), app); err != nil &&
						!errors.Is(err, flaps.ErrFlapsNotFound) {
						t.Errorf("the app cannot be deleted: %v", err)
					}
				})
			}
		})
	}
}

// sleeper is a machine that waits for a signal.
func sleeper() *fly.MachineConfig {
	return script("trap 'exit 0' INT TERM; while :; do /bin/sleep 0.1; done")
}

// script is a machine that runs a shell script, once.
func script(text string) *fly.MachineConfig {
	return &fly.MachineConfig{
		Image: hostImg, Init: fly.MachineInit{Exec: []string{"/bin/sh", "-c", text}},
		Guest:   &fly.MachineGuest{CPUKind: "shared", CPUs: 1, MemoryMB: 256},
		Restart: &fly.MachineRestart{Policy: fly.MachineRestartPolicyNo},
	}
}

// launch makes a machine and waits until it is started.
func (s *market) launch(t *testing.T, app string, in fly.LaunchMachineInput) *fly.Machine {
	t.Helper()
	m, err := s.Launch(t.Context(), app, in)
	if err != nil {
		t.Fatal(err)
	}
	if !in.SkipLaunch {
		s.await(t, app, m.ID, "started")
	}
	return m
}

// await waits for one of the states.
func (s *market) await(t *testing.T, app, id string, states ...string) {
	t.Helper()
	if err := s.Wait(t.Context(), app, id, flaps.WithWaitStates(states...), flaps.WithWaitTimeout(limit)); err != nil {
		m, getErr := s.Get(t.Context(), app, id)
		t.Fatalf("%v; it is %+v (%v)", err, m, getErr)
	}
}

func (s *market) get(t *testing.T, app, id string) *fly.Machine {
	t.Helper()
	m, err := s.Get(t.Context(), app, id)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// refused wants an error of the client with one of the codes, and gives its text.
func refused(t *testing.T, err error, codes ...int) string {
	t.Helper()
	var f *flaps.FlapsError
	if !errors.As(err, &f) {
		t.Fatalf("an error of the API was wanted, not %v", err)
	}
	for _, c := range codes {
		if f.ResponseStatusCode == c {
			if f.FlyRequestId == "" || !strings.HasPrefix(f.ResponseBodyString(), `{"error":"`) {
				t.Errorf("an error has an id and a JSON body: %q %s", f.FlyRequestId, f.ResponseBodyString())
			}
			return f.ResponseBodyString()
		}
	}
	t.Fatalf("got %d %s, want one of %v", f.ResponseStatusCode, f.ResponseBodyString(), codes)
	return ""
}

func events(m *fly.Machine) []string {
	var out []string
	for _, e := range m.Events {
		out = append(out, e.Type)
	}
	return out
}
