// Package conformance_test drives a whole souk with the Machines API's own Go client, behaviour by behaviour. Each
// subtest is one thing that client, or a program written against it, relies on.
package conformance_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
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

	"github.com/soukhq/souk/bench/live"
	"github.com/soukhq/souk/internal/needs"
	"github.com/soukhq/souk/runtime/image/imagetest"
	"github.com/soukhq/souk/runtime/runtimetest"
	"github.com/soukhq/souk/test/soukexe"
)

const limit = time.Minute // for one thing to happen; it matters only when something is wrong

// exe is souk, built with the race detector where this test is.
var exe string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	var err error
	if exe, err = soukexe.Path(runtimetest.RaceEnabled); err != nil {
		fmt.Fprintln(os.Stderr, "souk cannot be built:", err)
		return 1
	}
	return m.Run()
}

// market is a running souk, a client of it, and what the server was sent.
type market struct {
	*flaps.Client
	subject
	url, token string

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
	note func(code int) // before the client has the answer
}

func (r *recorder) Write(p []byte) (int, error) {
	r.body.Write(p)
	return r.ResponseWriter.Write(p)
}

func (r *recorder) WriteHeader(code int) {
	r.code = code
	r.note(code)
	r.ResponseWriter.WriteHeader(code)
}

func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// watch remembers every request, and holds every answer against the API's own description.
func (s *market) watch(t *testing.T, next http.Handler) http.Handler {
	spec, err := describedBy(next, s.token)
	if err != nil {
		t.Fatal(err)
	}
	router, err := legacy.NewRouter(spec)
	if err != nil {
		t.Fatal(err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := &recorder{ResponseWriter: w, note: func(code int) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.sent = append(s.sent, sent{r.Method, r.URL.Path, code})
		}}
		next.ServeHTTP(rec, r)
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
func describedBy(h http.Handler, token string) (*openapi3.T, error) {
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

// syncBuffer is a buffer that is read while it is written.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// subject is what machines are made of.
type subject struct {
	name, image string
	flags       []string // of souk dev
}

var (
	processes  = subject{name: "processes", image: "souk/host", flags: []string{"--containers", "off"}}
	containers = subject{name: "containers", image: "tool:1", flags: []string{"--containers", "runc"}}
)

// lacks says what the subject needs that this host has not; nil is nothing.
func (u subject) lacks() error {
	if u.name == processes.name {
		return nil
	}
	if os.Geteuid() != 0 {
		return errors.New("this needs root")
	}
	return needs.Lacks("runc", "busybox")
}

// each runs a test with every subject.
func each(t *testing.T, test func(t *testing.T, u subject)) {
	for _, u := range []subject{processes, containers} {
		t.Run(u.name, func(t *testing.T) {
			if lacks := u.lacks(); lacks != nil {
				needs.Skip(t, lacks)
			}
			test(t, u)
		})
	}
}

// startSouk runs souk dev until the test ends, with the client between a proxy that holds its answers against the API's
// own description.
func startSouk(t *testing.T, u subject, flags ...string) *market {
	t.Helper()
	dir, err := os.MkdirTemp("", "souk") // short, for the sockets below
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // once souk has ended
	errs := new(syncBuffer)
	own := &live.Souk{Exe: exe, State: dir, Args: append(slices.Clone(u.flags), flags...), Stderr: errs}
	t.Cleanup(func() {
		own.End()
		if strings.Contains(errs.String(), "DATA RACE") || t.Failed() {
			t.Errorf("souk said:\n%s", errs)
		}
	})
	if err := own.Start(); err != nil {
		t.Fatal(err)
	}
	to, err := url.Parse("http://" + own.Ready.Addr)
	if err != nil {
		t.Fatal(err)
	}
	s := &market{subject: u, token: own.Token}
	proxy := httptest.NewServer(s.watch(t, &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to); r.Out.Host = r.In.Host }, FlushInterval: -1,
		ErrorLog: log.New(io.Discard, "", 0), // of clients that are gone
	}))
	t.Cleanup(proxy.Close)
	s.url = proxy.URL
	if u.name == containers.name {
		workers, err := own.Client.Workers(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range workers.Workers {
			s.load(t, string(w.Worker))
		}
	}
	t.Setenv("FLY_FLAPS_BASE_URL", s.url)
	if s.Client, err = flaps.NewWithOptions(t.Context(), flaps.NewClientOpts{Tokens: tokens.Parse("FlyV1 " + s.token),
		UserAgent: "conformance"}); err != nil {
		t.Fatal(err)
	}
	return s
}

// load gives a worker the image of the host's busybox.
func (s *market) load(t *testing.T, worker string) {
	t.Helper()
	archive := imagetest.Busybox(t, imagetest.Dir("data")).DockerArchive(t, containers.image)
	s.call(t, http.StatusOK, http.MethodPost, "/souk/workers/"+worker+"/images/load", string(archive))
}

// TestMachinesAPIConformance runs every behaviour with processes and with containers, against one souk each. The subtests have
// apps of their own and run at the same time.
func TestMachinesAPIConformance(t *testing.T) { each(t, conformance) }

func conformance(t *testing.T, u subject) {
	s := startSouk(t, u, "--workers", "2", "--cpus", "16", "--memory", "32g")
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
func (s *market) sleeper() *fly.MachineConfig {
	return s.script("trap 'exit 0' INT TERM; while :; do /bin/sleep 0.1; done")
}

// script is a machine that runs a shell script, once.
func (s *market) script(text string) *fly.MachineConfig {
	return &fly.MachineConfig{
		Image: s.image, Init: fly.MachineInit{Exec: []string{"/bin/sh", "-c", text}},
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
