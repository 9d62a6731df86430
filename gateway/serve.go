package gateway

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"path"
	"runtime/debug"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/fault"
)

type requestKey struct{}

// request is what is known of a request from its start to its end.
type request struct {
	id    string
	route string // the pattern that matched, for metrics and the log: never the path, which is without bound
}

func of(r *http.Request) *request {
	q, _ := r.Context().Value(requestKey{}).(*request)
	if q == nil {
		return &request{}
	}
	return q
}

func requestID(r *http.Request) string { return of(r).id }

// recorder remembers what was answered.
type recorder struct {
	http.ResponseWriter
	code  int
	bytes int64
}

func (w *recorder) WriteHeader(code int) {
	if w.code == 0 {
		w.code = code
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *recorder) Write(p []byte) (int, error) {
	if w.code == 0 {
		w.code = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(p)
	w.bytes += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController reach the connection.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// serve puts around the routes what every request gets: an id, a limit, a check of who asks, a record in the log and the
// metrics, and an answer also when the handler panics.
func (g *Gateway) serve(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begin := time.Now()
		q := &request{id: ulid.Make().String(), route: "unmatched"}
		r = r.WithContext(context.WithValue(r.Context(), requestKey{}, q))
		rec := &recorder{ResponseWriter: w}
		rec.Header().Set(api.RequestIDHeader, q.id)
		rec.Header().Set("X-Content-Type-Options", "nosniff")
		rec.Header().Set("Cache-Control", "no-store")
		defer func() {
			if p := recover(); p != nil {
				g.panicked(rec, r, p)
			}
			g.record(r, rec, time.Since(begin))
		}()
		if err := g.admit(r); err != nil {
			g.fail(rec, r, err)
			return
		}
		next.ServeHTTP(rec, r)
	})
}

// admit says whether a request may go on to the routes.
func (g *Gateway) admit(r *http.Request) error {
	if r.URL.Path == "/livez" || r.URL.Path == "/readyz" {
		return nil
	}
	if err := g.authenticate(r); err != nil {
		return err
	}
	if err := sameSite(r); err != nil {
		return err
	}
	if r.URL.Path != path.Clean(r.URL.Path) || r.URL.Path[0] != '/' {
		return noSuchPath() // the mux would redirect, which clients follow with another method
	}
	return nil
}

func noSuchPath() error {
	return fault.New(fault.NotFound, "path", "there is nothing at this path; GET /v1/souk/openapi.json lists what there is")
}

func (g *Gateway) panicked(w *recorder, r *http.Request, p any) {
	if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(p) // a stream broken off on purpose
	}
	g.log.ErrorContext(r.Context(), "a handler panicked", "request", requestID(r), "panic", p, "stack", string(debug.Stack()))
	if w.code == 0 {
		g.fail(w, r, fault.New(fault.Internal, "panic", "a fault inside souk ended this request; report it"))
	}
}

// record writes the access log and the metrics. Neither holds a query, a header or a body: they may be secret.
func (g *Gateway) record(r *http.Request, w *recorder, took time.Duration) {
	q := of(r)
	code := w.code
	if code == 0 {
		code = 499 // the client was gone before there was an answer
	}
	g.metrics.request(r.Method, q.route, code, took)
	level := slog.LevelInfo
	if q.route == "/livez" || q.route == "/readyz" || q.route == "/metrics" {
		level = slog.LevelDebug
	}
	g.log.LogAttrs(r.Context(), level, "request", slog.String("request", q.id), slog.String("method", r.Method),
		slog.String("route", q.route), slog.String("app", r.PathValue("app")), slog.String("machine", r.PathValue("id")),
		slog.Int("code", code), slog.Int64("bytes", w.bytes), slog.Duration("took", took),
		slog.String("remote", r.RemoteAddr), slog.String("agent", clip(r.UserAgent(), 80)))
}

func clip(s string, n int) string {
	if len(s) > n {
		return s[:n]
	}
	return s
}
