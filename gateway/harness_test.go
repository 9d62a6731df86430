package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"go.uber.org/goleak"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/broker/known"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/fleet/find"
	"github.com/soukhq/souk/store/catalog"
	"github.com/soukhq/souk/store/journal"
	"github.com/soukhq/souk/store/journal/mem"
)

const testToken = "open-sesame"

// shop is a gateway over workers in memory. Every answer it gives is held against openapi.json.
type shop struct {
	t       *testing.T
	options Options
	gateway *Gateway
	catalog *catalog.Catalog
	workers []*memWorker
	log     *lockedBuffer
	mux     *http.ServeMux
	spec    *openapi3.T
}

// lockedBuffer is a log that may be read while it is written.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

var room = cluster.Resources{CPU: 4000, Memory: 4096, Disk: 100 << 10, Ports: 100}

// newShop makes a gateway over one worker in the region "local", or over those given.
func newShop(t *testing.T, workers ...*memWorker) *shop {
	t.Helper()
	if len(workers) == 0 {
		workers = []*memWorker{newMemWorker("w1", "local", room)}
	}
	return openShop(t, mem.New(), filepath.Join(t.TempDir(), "key"), workers...)
}

func openShop(t *testing.T, j journal.Journal, keyFile string, workers ...*memWorker) *shop {
	t.Helper()
	rows, err := catalog.Open(j, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	s := &shop{t: t, catalog: rows, workers: workers, log: &lockedBuffer{}}
	f, handle := fleetOf(func(w *memWorker) Worker { return reached(t, w) }, workers...)
	s.options = Options{Directory: &find.Directory{Fleet: f, Worker: handle, Apps: rows.Apps}, Catalog: rows,
		Token: testToken, Region: "local",
		Log: slog.New(slog.NewJSONHandler(s.log, nil)), Build: cluster.Build{Version: "test"}}
	if s.spec, err = parsed(); err != nil {
		t.Fatal(err)
	}
	s.with(func(*Options) {})
	return s
}

// fleetOf makes a fleet of workers, and returns how they are called: as reach says.
func fleetOf(reach func(*memWorker) Worker, workers ...*memWorker) (*fleet.Fleet,
	func(cluster.WorkerID) (Worker, bool)) {
	f, all := fleet.New(), map[cluster.WorkerID]Worker{}
	for _, w := range workers {
		all[w.id] = reach(w)
		w.join(f)
	}
	return f, func(id cluster.WorkerID) (Worker, bool) {
		w, known := all[id]
		return w, known
	}
}

// directly reaches a worker in this process.
func directly(w *memWorker) Worker { return w }

// with makes the gateway anew, with other options.
func (s *shop) with(change func(*Options)) {
	s.t.Helper()
	d := s.options.Directory
	s.options.Directory = &find.Directory{Fleet: d.Fleet, Worker: d.Worker, Apps: d.Apps}
	change(&s.options)
	var err error
	if s.gateway, err = New(withBroker(s.t, s.options)); err != nil {
		s.t.Fatal(err)
	}
	s.mux = s.gateway.mux
}

// withBroker returns the options with a broker, which the end of the test closes.
func withBroker(t testing.TB, o Options) Options {
	b, claims := known.New(known.Options{Directory: o.Directory, Catalog: o.Catalog, Self: o.Self, Region: o.Region,
		Log: o.Decisions, Rand: o.Rand, Agree: o.Agree})
	o.Broker, o.Claims = b, claims
	t.Cleanup(b.Close)
	return o
}

// parsed is the description, read once: it is large, and fuzzing opens many shops.
var parsed = sync.OnceValues(func() (*openapi3.T, error) { return openapi3.NewLoader().LoadFromData(description) })

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// reply is an answer, read.
type reply struct {
	code   int
	header http.Header
	raw    string
}

// into decodes the answer.
func (r reply) into(t *testing.T, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(r.raw), v); err != nil {
		t.Fatalf("%v in %s", err, r.raw)
	}
}

// failure decodes an error answer.
func (r reply) failure(t *testing.T) api.ErrorBody {
	t.Helper()
	var b api.ErrorBody
	r.into(t, &b)
	return b
}

// do sends a request with the token. Headers are given as "Name: value". A body that is not a string is sent as JSON.
func (s *shop) do(method, path string, body any, headers ...string) reply {
	s.t.Helper()
	return s.send(method, path, body, append([]string{"Authorization: Bearer " + testToken}, headers...)...)
}

func (s *shop) send(method, path string, body any, headers ...string) reply {
	s.t.Helper()
	var r io.Reader = http.NoBody
	switch b := body.(type) {
	case nil:
	case string:
		r = strings.NewReader(b)
	default:
		raw, err := json.Marshal(b)
		if err != nil {
			s.t.Fatal(err)
		}
		r = bytes.NewReader(raw)
	}
	req := httptest.NewRequestWithContext(s.t.Context(), method, path, r)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Add(name, value)
	}
	rec := httptest.NewRecorder()
	s.gateway.Handler().ServeHTTP(rec, req)
	out := reply{rec.Code, rec.Header(), rec.Body.String()}
	s.check(req, out)
	return out
}

// want sends a request and wants this code.
func (s *shop) want(code int, method, path string, body any, headers ...string) reply {
	s.t.Helper()
	r := s.do(method, path, body, headers...)
	if r.code != code {
		s.t.Fatalf("%s %s: got %d %s, want %d", method, path, r.code, r.raw, code)
	}
	return r
}

// check holds an answer against the description.
func (s *shop) check(req *http.Request, r reply) {
	s.t.Helper()
	if r.header.Get(api.RequestIDHeader) == "" {
		s.t.Errorf("%s %s: the answer has no %s", req.Method, req.URL, api.RequestIDHeader)
	}
	if req.Method == http.MethodHead {
		return
	}
	_, pattern := s.mux.Handler(req)
	method, path, _ := strings.Cut(pattern, " ")
	item := s.spec.Paths.Value(strings.ReplaceAll(path, "...}", "}"))
	if item == nil || item.GetOperation(method) == nil {
		s.checkError(req, r)
		return
	}
	input := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{
			Request: req, Route: &routers.Route{Spec: s.spec, Path: path, PathItem: item, Method: method,
				Operation: item.GetOperation(method)},
		},
		Status: r.code, Header: r.header, Body: io.NopCloser(strings.NewReader(r.raw)),
		Options: &openapi3filter.Options{IncludeResponseStatus: true},
	}
	if kind := r.header.Get("Content-Type"); kind != "application/json" {
		input.Options.ExcludeResponseBody = true // nothing but its type is described
		kind, _, _ = strings.Cut(kind, ";")
		described := item.GetOperation(method).Responses.Status(r.code)
		if described == nil || r.code != http.StatusNoContent && described.Value.Content.Get(kind) == nil {
			s.t.Errorf("%s %s: the answer %d of type %q is not described", req.Method, req.URL, r.code, kind)
		}
	}
	if err := openapi3filter.ValidateResponse(context.Background(), input); err != nil {
		s.t.Errorf("%s %s: the answer %d is not as described: %v", req.Method, req.URL, r.code, err)
	}
}

// checkError wants the shape of an error, where no route was reached.
func (s *shop) checkError(req *http.Request, r reply) {
	s.t.Helper()
	var v any
	r.into(s.t, &v)
	if err := s.spec.Components.Schemas["ErrorBody"].Value.VisitJSON(v); err != nil || r.code < 400 {
		s.t.Errorf("%s %s: %d %s is not an error as described: %v", req.Method, req.URL, r.code, r.raw, err)
	}
}

const hostLaunch = `{"config":{"image":"souk/host","init":{"exec":["/bin/sleep","60"]}}}`

// open makes the app "a".
func (s *shop) open() *shop {
	s.t.Helper()
	s.want(201, "POST", "/v1/apps", map[string]string{"app_name": "a", "org_slug": "personal"})
	return s
}

// launch makes a machine in "a".
func (s *shop) launch(body string, headers ...string) *struct {
	ID, Name, State, Nonce string
	InstanceID             string `json:"instance_id"`
	Worker                 string
} {
	s.t.Helper()
	m := &struct {
		ID, Name, State, Nonce string
		InstanceID             string `json:"instance_id"`
		Worker                 string
	}{}
	s.want(200, "POST", "/v1/apps/a/machines", body, headers...).into(s.t, m)
	return m
}

func unavailable() error {
	return fault.New(fault.Unavailable, "unreachable", "the worker does not answer; try again")
}
