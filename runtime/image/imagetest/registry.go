package imagetest

import (
	"bytes"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
)

// Registry is a registry in this process. Its faults act before or instead of the right answer.
type Registry struct {
	Host string // as in a reference
	URL  string

	handler http.Handler
	mu      sync.Mutex
	faults  []*Fault
	asked   []struct{ path, bytes string }
	done    chan struct{}
}

// Fault is one way to misbehave.
type Fault struct {
	Path  string // substring of the requests' path; "" matches all
	Times int    // 0: always

	Status    int               // answer with this status,
	Header    map[string]string // these headers, and
	Body      string            // this body
	Hang      bool              // send nothing
	HangAfter int64             // stop sending after so many bytes
	CutAfter  int64             // break the connection after so many bytes
	Short     int64             // end the body after so many bytes
	Wrong     bool              // change a byte in the middle
	NoRange   bool              // send everything, whatever range was requested
	Range     string            // answer with this Content-Range
	User      string            // require this "name:password" by basic authentication
	Token     string            // require this bearer token
}

// NewRegistry starts an empty registry. It ends with the test.
func NewRegistry(t testing.TB) *Registry {
	t.Helper()
	r := &Registry{handler: registry.New(registry.Logger(log.New(io.Discard, "", 0))), done: make(chan struct{})}
	srv := httptest.NewServer(r)
	t.Cleanup(func() {
		close(r.done)
		srv.Close()
	})
	r.URL, r.Host = srv.URL, strings.TrimPrefix(srv.URL, "http://")
	return r
}

// Push stores an image as "repository:tag", and returns its full name.
func (r *Registry) Push(t testing.TB, name string, i *Image) string {
	t.Helper()
	repository, tag, _ := strings.Cut(name, ":")
	for _, m := range i.index {
		r.Push(t, repository+":"+hash(m.Manifest).Hex, m)
	}
	for digest, raw := range i.Blobs {
		r.put(t, http.MethodPost, "/v2/"+repository+"/blobs/uploads/?digest="+digest, raw, "application/octet-stream")
	}
	kind := "application/vnd.oci.image.manifest.v1+json"
	if i.index != nil {
		kind = "application/vnd.oci.image.index.v1+json"
	}
	r.put(t, http.MethodPut, "/v2/"+repository+"/manifests/"+tag, i.Manifest, kind)
	return r.Host + "/" + name
}

func (r *Registry) put(t testing.TB, method, path string, raw []byte, kind string) {
	t.Helper()
	q := httptest.NewRequest(method, path, bytes.NewReader(raw))
	q.Header.Set("Content-Type", kind)
	w := httptest.NewRecorder()
	r.handler.ServeHTTP(w, q)
	if w.Code != http.StatusCreated {
		t.Fatalf("%s %s: %d %s", method, path, w.Code, w.Body)
	}
}

// Misbehave adds a fault. Each request gets the first matching fault that is not used up.
func (r *Registry) Misbehave(f Fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f.Times == 0 {
		f.Times = -1
	}
	r.faults = append(r.faults, &f)
}

// Behave removes all faults.
func (r *Registry) Behave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = nil
}

// Asked returns the number of requests with part in their path, and forgets all requests.
func (r *Registry) Asked(part string) int { return len(r.Ranges(part)) }

// Ranges returns the Range headers of the requests with part in their path, and forgets all requests.
func (r *Registry) Ranges(part string) (all []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.asked {
		if strings.Contains(p.path, part) {
			all = append(all, p.bytes)
		}
	}
	r.asked = nil
	return all
}

func (r *Registry) fault(q *http.Request) *Fault {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, struct{ path, bytes string }{q.URL.Path, q.Header.Get("Range")})
	for _, f := range r.faults {
		if f.Times != 0 && strings.Contains(q.URL.Path, f.Path) && !f.satisfied(q) {
			f.Times--
			return f
		}
	}
	return nil
}

// satisfied reports whether a request has the required credentials.
func (f *Fault) satisfied(q *http.Request) bool {
	name, password, _ := q.BasicAuth()
	return f.User != "" && f.User == name+":"+password ||
		f.Token != "" && q.Header.Get("Authorization") == "Bearer "+f.Token
}

// ServeHTTP answers a request, with a fault if one matches.
func (r *Registry) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	f := r.fault(q)
	if f == nil {
		r.handler.ServeHTTP(w, q)
		return
	}
	if f.Hang {
		r.hang(q)
		return
	}
	if f.Status != 0 {
		for k, v := range f.Header {
			w.Header().Set(k, v)
		}
		w.WriteHeader(f.Status)
		_, _ = io.WriteString(w, f.Body)
		return
	}
	if f.NoRange {
		q.Header.Del("Range")
	}
	rec := httptest.NewRecorder()
	r.handler.ServeHTTP(rec, q)
	for k, v := range rec.Header() {
		w.Header()[k] = v
	}
	raw, status := rec.Body.Bytes(), rec.Code
	if f.Range != "" {
		w.Header().Set("Content-Range", f.Range)
		status = http.StatusPartialContent
	}
	if f.Wrong && len(raw) > 0 {
		raw[len(raw)/2] ^= 1
	}
	if f.Short > 0 {
		raw = raw[:min(f.Short, int64(len(raw)))]
		w.Header().Del("Content-Length")
	}
	w.WriteHeader(status)
	stop := max(f.HangAfter, f.CutAfter)
	if stop == 0 || stop >= int64(len(raw)) {
		_, _ = w.Write(raw)
		return
	}
	_, _ = w.Write(raw[:stop])
	_ = http.NewResponseController(w).Flush()
	if f.HangAfter > 0 {
		r.hang(q)
		return
	}
	panic(http.ErrAbortHandler) // breaks the connection
}

func (r *Registry) hang(q *http.Request) {
	select {
	case <-q.Context().Done():
	case <-r.done:
	}
}
