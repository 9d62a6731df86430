package gateway

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"path"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/strangers"
)

type requestKey struct{}

// request collects what the gateway knows of a request.
type request struct {
	id    string
	route string // the matching pattern, for metrics and the log: paths are unbounded
	who   []api.Token
	to    api.Route // what it asks for
}

func of(r *http.Request) *request {
	q, _ := r.Context().Value(requestKey{}).(*request)
	if q == nil {
		return &request{}
	}
	return q
}

func requestID(r *http.Request) string { return of(r).id }

// recorder records the answer's status and size.
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

// front handles every request before it reaches a noun.
type front struct {
	judge   func(secret string) (api.Token, error)
	users   UnixUsers
	owned   func(to api.Route, do handler) handler // refuses what is a Unix user's to others
	full    func() error                           // why the disk takes no new objects; nil: it does
	doors   func() string                          // the mark of the list of doors; "": only this one
	agree   func(ctx context.Context, worker bool)
	log     *slog.Logger
	metrics *metrics
}

// wrapRoutes wraps the routes with the steps of every request: an id, a limit, authentication, a record in the log and
// the metrics, and an answer even if the handler panics.
func (f *front) wrapRoutes(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begin := time.Now()
		q := &request{id: ulid.Make().String(), route: "unmatched"}
		r = r.WithContext(context.WithValue(r.Context(), requestKey{}, q))
		if r.Body != nil && r.Body != http.NoBody {
			body := &handlersBody{ReadCloser: r.Body}
			r.Body = body // r is this handler's own copy
			defer body.endReads(w)
		}
		rec := &recorder{ResponseWriter: w}
		rec.Header().Set(api.RequestIDHeader, q.id)
		rec.Header().Set("X-Content-Type-Options", "nosniff")
		rec.Header().Set("Cache-Control", "no-store")
		defer func() {
			if p := recover(); p != nil {
				f.answerPanic(rec, r, p)
			}
			f.recordRequest(r, rec, time.Since(begin))
		}()
		if err := f.admitRequest(rec, r); err != nil {
			// Otherwise the server waits for the rest of the body before it answers: a client that sends none would
			// keep it waiting.
			_ = http.NewResponseController(w).SetReadDeadline(time.Now()) // unsupported only without a connection
			rec.Header().Set("Connection", "close")
			f.answerError(rec, r, err)
			return
		}
		next.ServeHTTP(rec, r)
	})
}

// admitRequest returns an error if a request may not go on to the routes.
func (f *front) admitRequest(w http.ResponseWriter, r *http.Request) error {
	switch r.URL.Path {
	case "/livez", "/readyz", "/v1/souk/proof":
		return nil
	}
	var err error
	if of(r).who, err = f.authenticate(r); err != nil {
		return err
	}
	strangers.Known(r.Context())
	if mark := f.doors(); mark != "" {
		w.Header().Set(api.DoorsHeader, mark)
	}
	if err := sameSite(r); err != nil {
		return err
	}
	if r.URL.Path != path.Clean(r.URL.Path) || r.URL.Path[0] != '/' {
		return noSuchPath() // the mux would redirect, and clients change the method then
	}
	return nil
}

func noSuchPath() error {
	return fault.New(fault.NotFound, fault.CodePath,
		"there is nothing at this path; GET /v1/souk/openapi.json lists all paths")
}

func (f *front) answerPanic(w *recorder, r *http.Request, p any) {
	if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(p) // a stream aborted on purpose
	}
	f.log.ErrorContext(r.Context(), "a handler panicked", "request", requestID(r), "panic", p, "stack",
		string(debug.Stack()))
	if w.code == 0 {
		f.answerError(w, r, fault.New(fault.Internal, fault.CodePanic,
			"a fault inside souk ended this request; report it"))
	}
}

// recordRequest writes the access log and the metrics. Neither holds a query, a header or a body: they may be secret.
func (f *front) recordRequest(r *http.Request, w *recorder, took time.Duration) {
	q := of(r)
	code := w.code
	if code == 0 {
		code = 499 // the client was gone before there was an answer
	}
	f.metrics.observeRequest(r.Method, q.route, code, took)
	level := slog.LevelInfo
	if q.route == "/livez" || q.route == "/readyz" || q.route == "/metrics" {
		level = slog.LevelDebug
	}
	f.log.LogAttrs(r.Context(), level, "request", slog.String("request", q.id), slog.String("method", r.Method),
		slog.String("route", q.route), slog.String("app", r.PathValue("app")),
		slog.String("machine", r.PathValue("id")),
		slog.Int("code", code), slog.Int64("bytes", w.bytes), slog.Duration("took", took),
		slog.String("remote", r.RemoteAddr), slog.String("agent", clipText(r.UserAgent(), 80)))
}

func clipText(s string, n int) string {
	if len(s) > n {
		return s[:n]
	}
	return s
}

const maxTokens = 16 // tokens of one Authorization header that are looked at

// oneToken accepts exactly one token. It compares digests, so that the timing reveals neither content nor length.
func oneToken(want string) func(string) (api.Token, error) {
	sum := sha256.Sum256([]byte(want))
	return func(got string) (api.Token, error) {
		have := sha256.Sum256([]byte(got))
		if subtle.ConstantTimeCompare(sum[:], have[:]) == 1 {
			return api.Token{Name: "own", Role: api.RoleAdmin, Own: true, State: api.TokenGood}, nil
		}
		return api.Token{}, errNotValid()
	}
}

// errNotValid is the error of an unknown token.
func errNotValid() error {
	return fault.New(fault.Denied, fault.CodeUnauthenticated,
		"the token is not valid here; look for the current one where this souk was started")
}

// authenticate returns the valid tokens of a request; at least one is needed. The Machines API's client sends several,
// separated by commas, after "Bearer" or "FlyV1".
func (f *front) authenticate(r *http.Request) (good []api.Token, failed error) {
	values := r.Header.Values("Authorization")
	failed = fault.New(fault.Denied, fault.CodeUnauthenticated,
		"a token is needed: send the header \"Authorization: Bearer TOKEN\"")
	refused := false
	tokens := strings.SplitN(strings.Join(values, ","), ",", maxTokens+1)
	for _, t := range tokens[:min(len(tokens), maxTokens)] {
		if t = bareToken(t); t == "" {
			continue
		}
		x, err := f.judge(t)
		if err == nil {
			good = append(good, x)
			continue
		}
		refused = true
		if fault.CodeOf(failed) == fault.CodeUnauthenticated { // one that ended says more than an unknown one
			failed = err
		}
	}
	return f.addPeer(r, good, failed, refused)
}

// forWhoMay refuses requests without a token whose role may use the route.
func (f *front) forWhoMay(to api.Route, do handler) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		who, app := of(r).who, appOf(r)
		of(r).to = to
		may := func(who []api.Token) bool {
			return to.Open || slices.ContainsFunc(who, func(t api.Token) bool { return t.May(to, app) })
		}
		if may(who) && (to.Verb == api.VerbWatch || to.Verb == api.VerbExec) {
			ctx, end := f.whileLetIn(r, may)
			defer end()
			return do(w, r.WithContext(ctx))
		}
		if may(who) {
			return do(w, r)
		}
		t := api.Token{}
		if len(who) > 0 {
			t = who[0]
		}
		if t.Role.May(to) && api.IsUserApp(app) && (t.App == "" || t.App == app) {
			return errUsersApp(to, app)
		}
		if t.Role.May(to) {
			return errOtherApp(&t, to)
		}
		return errRole(&t, to)
	}
}

// errOtherApp is the error of a token that is valid for another app.
func errOtherApp(t *api.Token, to api.Route) error {
	if isPeer(t) {
		return fault.New(fault.Denied, codeTokenApp,
			"without a token the Unix user %s may do this in the app %s only, and it takes a token for all apps to "+
				"%s %s here", t.Name, t.App, to.Verb, to.Kind)
	}
	return fault.New(fault.Denied, codeTokenApp,
		"the token %s is valid for the app %s only, and it takes a token for all apps to %s %s here",
		t.Name, t.App, to.Verb, to.Kind)
}

// errRole is the error of a token whose role may not use a route.
func errRole(t *api.Token, to api.Route) error {
	if isPeer(t) {
		return fault.New(fault.Denied, fault.CodeRole,
			"without a token the Unix user %s may not %s %s; it takes one with the role %s", t.Name, to.Verb, to.Kind,
			api.Least(to))
	}
	return fault.New(fault.Denied, fault.CodeRole,
		"the token %s has the role %s, which may not %s %s; use one with the role %s",
		t.Name, t.Role, to.Verb, to.Kind, api.Least(to))
}

// appOf returns the app of a request, from its path or its query; "": none, or several.
func appOf(r *http.Request) string {
	if app := r.PathValue("app"); app != "" {
		return app
	}
	if named := r.URL.Query()["app"]; len(named) == 1 {
		return named[0]
	}
	return ""
}

// mayDo reports whether a request has a token that may use a route for the request's app.
func mayDo(r *http.Request, to api.Route) bool {
	app := appOf(r)
	return slices.ContainsFunc(of(r).who, func(t api.Token) bool { return t.May(to, app) })
}

// whileLetIn returns a context for long requests, which ends when the request's tokens become invalid.
func (f *front) whileLetIn(r *http.Request, may func([]api.Token) bool) (context.Context, func()) {
	return strangers.While(r.Context(), func(ctx context.Context) bool {
		who, err := f.authenticate(r)
		still := err == nil && may(who)
		if !still {
			f.log.WarnContext(ctx, "what was begun with a token is ended with it", "request", requestID(r),
				"route", of(r).route, "err", err)
		}
		return still
	})
}

func bareToken(s string) string {
	scheme, rest, _ := strings.Cut(strings.TrimSpace(s), " ")
	if strings.EqualFold(scheme, "Bearer") || strings.EqualFold(scheme, "FlyV1") {
		return strings.TrimSpace(rest) // "": a client without a token
	}
	return strings.TrimSpace(s)
}

// sameSite refuses changes that a browser marks as sent by a foreign page. The main protection is the token: it is
// never ambient (no cookie, no basic auth), so a page that tricks a browser, or rebinds a name to loopback, has no
// access. This is a second line of defence. Clients other than browsers do not send the checked headers.
func sameSite(r *http.Request) error {
	if err := http.NewCrossOriginProtection().Check(r); err != nil {
		return fault.Wrap(err, fault.Denied, codeCrossSite,
			"a page of another site may not change anything here; call the API from a program")
	}
	return nil
}

// handler serves a route. It returns its error instead of answering it.
type handler func(http.ResponseWriter, *http.Request) error

// handlers are the handlers of one noun, by operation.
type handlers map[api.Op]handler

// noun is a kind of thing that the API serves.
type noun interface {
	opHandlers() handlers
}

// servedBy merges the handlers of all nouns.
func servedBy(nouns []noun) handlers {
	all := handlers{}
	for _, n := range nouns {
		maps.Copy(all, n.opHandlers())
	}
	return all
}

// newMux registers the routes, and behind each path an answer for methods it does not know. Each route has a handler,
// and each handler a route.
func (f *front) newMux(nouns []noun) (*http.ServeMux, error) {
	mux, served := http.NewServeMux(), servedBy(nouns)
	allow := map[string][]string{}
	for _, rt := range api.Routes() {
		do, path := served[rt.Op], rt.Op.Pattern()
		if do == nil {
			return nil, fault.New(fault.Internal, codeRoutes, "the route %s has no handler", rt.Op)
		}
		delete(served, rt.Op)
		if rt.KeptHere() {
			do = f.unlessFull(do)
		}
		if rt.Shared() {
			do = f.awaitAgreement(rt, do)
		}
		do = f.forWhoMay(rt, f.owned(rt, do))
		mux.Handle(string(rt.Op), f.asHTTP(path, do))
		allow[path] = append(allow[path], rt.Op.Method())
		if rt.Op.Method() == http.MethodGet {
			allow[path] = append(allow[path], http.MethodHead)
		}
	}
	for unlisted := range served {
		return nil, fault.New(fault.Internal, codeRoutes, "%s has a handler and is not in the list of routes", unlisted)
	}
	f.refuseUnimplemented(mux, allow)
	for path, methods := range allow {
		mux.Handle(path, f.asHTTP(path, func(w http.ResponseWriter, r *http.Request) error {
			slices.Sort(methods)
			w.Header().Set("Allow", strings.Join(methods, ", "))
			return fault.New(fault.Invalid, fault.CodeMethod,
				"%s is not possible here; use %s", clipText(r.Method, 20), strings.Join(methods, " or "))
		}))
	}
	mux.Handle("/", f.asHTTP("unmatched", func(http.ResponseWriter, *http.Request) error { return noSuchPath() }))
	return mux, nil
}

// unlessFull refuses requests that must store something while the disk is full.
func (f *front) unlessFull(do handler) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if err := f.full(); err != nil {
			return err
		}
		return do(w, r)
	}
}

// awaitAgreement answers a change once all reachable members know of it: the client may ask any of them next.
func (f *front) awaitAgreement(rt api.Route, do handler) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		return do(&agreeing{ResponseWriter: w, agree: func() { f.agree(r.Context(), rt.AtWorker()) }}, r)
	}
}

// agreeing calls agree before it writes a success status.
type agreeing struct {
	http.ResponseWriter
	agree func() // nil: already called
}

func (w *agreeing) WriteHeader(code int) {
	if w.agree != nil && code < http.StatusMultipleChoices {
		w.agree()
	}
	w.agree = nil
	w.ResponseWriter.WriteHeader(code)
}

func (w *agreeing) Write(p []byte) (int, error) {
	if w.agree != nil {
		w.WriteHeader(http.StatusOK)
	}
	return w.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *agreeing) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// refuseUnimplemented registers the parts of the Machines API that souk does not serve.
func (f *front) refuseUnimplemented(mux *http.ServeMux, allow map[string][]string) {
	for path, sentence := range api.Unimplemented() {
		bare := strings.TrimSuffix(path, "/{rest...}")
		do := func(http.ResponseWriter, *http.Request) error {
			return fault.New(fault.Unimplemented, codeUnimplemented, "%s", sentence)
		}
		mux.Handle(path, f.asHTTP(path, do))
		if allow[bare] == nil {
			mux.Handle(bare, f.asHTTP(bare, do))
		} else {
			mux.Handle("POST "+bare, f.asHTTP(bare, do))
			allow[bare] = append(allow[bare], http.MethodPost)
		}
	}
}

// asHTTP converts a route's handler to an HTTP handler.
func (f *front) asHTTP(path string, do handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		of(r).route = path
		if err := do(w, r); err != nil {
			f.answerError(w, r, err)
		}
	})
}

func (a *appsAPI) listIPs(w http.ResponseWriter, r *http.Request) error {
	if _, err := a.catalog.App(r.PathValue("app")); err != nil {
		return err
	}
	answerJSON(w, http.StatusOK, api.AddressList{IPs: []string{}})
	return nil
}
