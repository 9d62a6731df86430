package wire

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"runtime/debug"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/strangers"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/mesh/pki"
	"github.com/soukhq/souk/runtime"
)

// Limits of one message.
const (
	MaxBody    = 4 << 20  // bytes of a request
	MaxPull    = 16 << 20 // bytes of an exchange of records, each way
	maxHeader  = 64 << 10
	headTime   = 5 * time.Second  // to make a connection, and to receive a request's head
	bodyTime   = 10 * time.Second // to receive a whole request
	longAnswer = 64 << 10         // bytes; a longer answer must be read within answerTime
	answerTime = 60 * time.Second
	drainTime  = 5 * time.Second // for calls to finish when the server ends
)

// Peer is the calling member, according to its certificate.
type Peer struct {
	pki.Name
	Since time.Time // start of its certificate's validity
}

// Signer signs joins and renewals; *pki.CA implements it.
type Signer interface {
	Redeem(now time.Time, secret string, n pki.Name, csr []byte) (pki.Credentials, error)
	Renew(now time.Time, peer pki.Name, csr []byte) (pki.Credentials, error)
	Bundle() (pki.Credentials, error)
}

// Options configure a server. Only Identity is required.
type Options struct {
	Identity *pki.Identity
	Worker   Served // nil: this member has no worker
	Signer   Signer // nil: this member is not an issuer
	// Members returns the gossip addresses for a joining member.
	Members func() []string
	// Known reports whether a member already has an id, besides those that this issuer gave a certificate to.
	Known func(id string) bool
	// Denied reports whether a member is refused although its certificate is valid: one that was removed.
	Denied func(Peer) bool
	// Pull answers an exchange of records. It must let peer publish only records of itself.
	Pull func(ctx context.Context, peer Peer, body []byte) ([]byte, error)
	// Claims decides claims of values that must be unique in an app; nil: this member decides none.
	Claims   Decider
	Stewards Stewards // nil: this member has no steward
	Tasks    Tasks    // nil: this member runs no tasks
	Jobs     Jobs     // nil: this member keeps no jobs
	Heirs    Heirs    // nil: this member keeps no copies of jobs
	Sent     Sent     // nil: this member keeps nothing of what jobs are sent
	Learner  Learner  // nil: this member does not learn from others on request
	Limits   Limits
	Log      *slog.Logger
	Now      func() time.Time // nil: time.Now
	Boot     string           // of this process; see Client.Boot
	Keys     func() int       // the generation of this member's gossip keys; nil: 0
	// NewerKeys is called when an issuer has gossip keys of a generation; addr is the issuer's address. It must not
	// block; nil: this member has no keys to renew.
	NewerKeys func(by Peer, generation int, addr string)
	// LetsIn returns which of some API tokens this member accepts, as digests; nil: none.
	LetsIn func(digests []string) []string
	// MemberAt reports whether an address is known to be a member's; nil: none is.
	MemberAt func(netip.Addr) bool
	// Proxy serves requests from other members' proxies for machines of this member, over HTTP/1.1; nil: this member
	// has no proxy.
	Proxy Proxied
	Certs Certs // certificates of the proxy; nil: it has none
	// Twin is called with the address of another process that has this member's id. It must not block.
	Twin func(addr string)
}

// Server serves calls from other members.
type Server struct {
	o      Options
	speaks capability
	header []string
	routes map[string]route
	gates  [classes]*gate
	joins  *gate
	asks   *asks
	odd    *slog.Logger // rate-limited log for events that strangers can cause
	// counts changes being read, waiting or in progress: the limit is four times that of changes in progress
	arriving *gate

	headTime, bodyTime time.Duration // shorter in tests
}

// route is one call. An error of serve is sent as the answer; after the first byte of an answer serve must not return
// one.
type route struct {
	role  pki.Role // that the caller must have; "": any member
	open  bool     // also for callers without a certificate
	class class
	serve func(s *Server, w http.ResponseWriter, r *http.Request, by Peer) error
}

// NewServer makes a server.
func NewServer(o Options) (*Server, error) {
	if o.Identity == nil {
		return nil, fault.New(fault.Invalid, codeIdentity, "a server needs a certificate; join a cluster first")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Keys == nil {
		o.Keys = func() int { return 0 }
	}
	if o.MemberAt == nil {
		o.MemberAt = nobodyAt
	}
	l := o.Limits.orDefaults()
	o.Limits = l
	s := &Server{o: o, odd: strangers.Few(o.Log, 20, time.Second),
		joins: newGate(16), arriving: newGate(4 * l.Changes), asks: newAsks(),
		gates: [classes]*gate{newGate(l.Reads), newGate(l.Changes), newGate(l.Streams),
			newGate(l.Buyers)}}
	s.headTime, s.bodyTime = headTime, bodyTime
	s.setCapability(capability{Capability, Oldest})
	s.routes = allRoutes()
	return s, nil
}

func (s *Server) setCapability(c capability) { s.speaks, s.header = c, []string{c.String()} }

// Serve serves until ctx ends, and closes ln.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	d := newDoor(s, ln)
	members, unknown := s.httpServer(ctx, d.conf), s.httpServer(ctx, d.conf)
	members.Handler = s
	members.HTTP2.MaxConcurrentStreams = s.o.Limits.Reads + s.o.Limits.Changes + s.o.Limits.Streams +
		s.o.Limits.Buyers
	unknown.Handler, unknown.ConnContext = s.strangersHandler()
	unknown.HTTP2.MaxConcurrentStreams, unknown.IdleTimeout = strangerStreams, s.bodyTime
	g, until := errgroup.WithContext(ctx)
	shut := make(chan struct{})
	g.Go(func() error { defer close(shut); return d.acceptGuests(until) })
	proxies, kept := s.proxyServer(ctx, d.conf)
	parted := make(chan struct{})
	// members still in their handshake get the goodbye too
	g.Go(func() error { <-shut; kept.endAll(); close(parted); return nil })
	for _, x := range []struct {
		srv *http.Server
		in  inlet
		end <-chan struct{}
	}{{members, d.members, until.Done()}, {unknown, d.unknown, until.Done()}, {proxies, d.proxies, parted}} {
		g.Go(func() error {
			if err := x.srv.Serve(x.in); !errors.Is(err, http.ErrServerClosed) {
				return err
			}
			return nil
		})
		g.Go(func() error {
			<-x.end
			drain, done := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
			defer done()
			if x.srv.Shutdown(drain) != nil {
				x.srv.Close()
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return fault.Wrap(err, fault.Unavailable, fault.CodeListen, "the server for other members stopped")
	}
	return nil
}

// httpServer returns a server for connections whose handshake is done.
func (s *Server) httpServer(ctx context.Context, conf *tls.Config) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	return &http.Server{
		Protocols: protocols, TLSConfig: conf.Clone(),
		ReadHeaderTimeout: s.headTime, IdleTimeout: 10 * time.Minute, MaxHeaderBytes: maxHeader,
		HTTP2: &http.HTTP2Config{
			// bounds how long a dead caller holds resources
			SendPingTimeout: 30 * time.Second, PingTimeout: 10 * time.Second,
			WriteByteTimeout: time.Minute,
		},
		ErrorLog:    slog.NewLogLogger(s.o.Log.Handler(), slog.LevelDebug),
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header()[capabilityHeader] = s.header
	rt, by, err := s.admitCaller(r)
	if err == nil {
		err = s.runRoute(rt, w, r, by)
	}
	if err != nil {
		s.answerError(w, r, by, err)
	}
}

// runRoute carries out a request. A panic of the worker becomes an Internal error.

func (s *Server) runRoute(rt route, w http.ResponseWriter, r *http.Request, by Peer) (err error) {
	defer func() {
		p := recover()
		if p == any(http.ErrAbortHandler) { //nolint:errorlint // not an error chain
			panic(p) // an answer aborted on purpose
		}
		if p != nil {
			s.o.Log.ErrorContext(r.Context(), "panic", "path", r.URL.Path, "panic", p, "stack", string(debug.Stack()))
			err = fault.Wrap(fmt.Errorf("panic: %v", p), fault.Internal, fault.CodePanic,
				"souk failed on %s with an internal error; its log says where", s.o.Identity.Name().ID)
		}
	}()
	g := s.gates[rt.class]
	// a change enters its own gate after it has been read: how to refuse it depends on its content
	if rt.class == change {
		g = s.arriving
	}
	if !g.enterCaller(by.ID) {
		return busyError(fault.Unavailable, s.o.Identity.Name().ID)
	}
	defer g.leaveCaller(by.ID)
	if rt.class == stream || rt.class == buyers {
		ctx, end := s.whileMember(r, by)
		defer end()
		r = r.WithContext(ctx)
	}
	return rt.serve(s, w, r, by)
}

// whileMember returns the context of a stream, which ends when the caller's certificate expires or the caller is
// removed.
func (s *Server) whileMember(r *http.Request, by Peer) (context.Context, func()) {
	return strangers.While(r.Context(), func(ctx context.Context) bool {
		_, err := s.peerOf(r.TLS)
		if err != nil {
			s.o.Log.WarnContext(ctx, "a member's stream is ended", "peer", by.ID, "path", r.URL.Path, "error", err)
		}
		return err == nil
	})
}

// admitCaller checks whether the caller may make this call. The body has not been read yet.
func (s *Server) admitCaller(r *http.Request) (rt route, by Peer, err error) {
	rt, known := s.routes[r.URL.Path]
	if r.TLS == nil || r.ProtoMajor != 2 {
		return rt, by, fault.New(fault.Invalid, runtime.CodeProtocol, "members talk HTTP/2 over TLS")
	}
	if len(r.TLS.PeerCertificates) > 0 || !rt.open {
		if by, err = s.peerOf(r.TLS); err != nil {
			return rt, by, err
		}
	}
	if addr, another := s.meetsItself(r, by); another && s.o.Twin != nil {
		s.o.Twin(addr)
	}
	switch {
	case !known:
		return rt, by, fault.New(fault.NotFound, codeRoute,
			"this member has no call %q; upgrade its souk",
			clipText(r.URL.Path, 80))
	case r.Method != http.MethodPost:
		return rt, by, fault.New(fault.Invalid, fault.CodeMethod, "members ask by POST, not by %q",
			clipText(r.Method, 16))
	}
	if err := s.speaks.checkPeer(r.Header, "the caller "+by.ID); err != nil {
		return rt, by, err
	}
	if rt.role != "" && !by.Has(rt.role) {
		return rt, by, fault.New(fault.Denied, fault.CodeRole,
			"%s has the roles %v, but this request needs the role %s", by.ID,
			by.Roles, rt.role)
	}
	if rt.role == pki.Gateway && s.o.Worker == nil {
		return rt, by, fault.New(fault.NotFound, fault.CodeWorker, "%s has no worker", s.o.Identity.Name().ID)
	}
	return rt, by, nil
}

func (s *Server) peerOf(cs *tls.ConnectionState) (Peer, error) {
	n, err := s.o.Identity.NameOf(cs, s.o.Now())
	if err != nil {
		return Peer{}, err
	}
	by := Peer{n, cs.PeerCertificates[0].NotBefore}
	if s.o.Denied != nil && s.o.Denied(by) {
		return by, fault.New(fault.Denied, fault.CodeRemoved, "%s was removed from the cluster; let it join anew", n.ID)
	}
	return by, nil
}

// answerError sends an error as the answer. Internal and Denied errors are logged here and nowhere else.
func (s *Server) answerError(w http.ResponseWriter, r *http.Request, by Peer, err error) {
	p := problemOf(err)
	if p.Kind == fault.Internal || p.Kind == fault.Denied {
		log := s.o.Log
		if _, stranger := r.Context().Value(guestKey{}).(*guest); stranger {
			log = s.odd
		}
		log.WarnContext(r.Context(), "a member's question failed", "peer", by.ID, "path", clipText(r.URL.Path, 80),
			"kind", p.Kind, "code", p.Code, "error", err)
	}
	h := w.Header()
	if p.Code == pki.CodeCertificateExpired || p.Code == fault.CodeRemoved {
		h.Set("Connection", "close") // the caller may have a newer certificate, and reconnects with it
	}
	if p.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int((p.RetryAfter+time.Second-1)/time.Second)))
	}
	raw, merr := marshal(p)
	if merr != nil {
		raw = []byte(`{"kind":"internal","text":"an error could not be written as JSON"}`)
	}
	status, _ := statusOf(p.Kind)
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(raw)))
	w.WriteHeader(status)
	_, _ = w.Write(raw) // the caller may be gone
}

// readBody reads a whole request, within limit and bodyTime.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	if r.ContentLength > limit {
		return nil, tooLarge(limit)
	}
	if err := http.NewResponseController(w).SetReadDeadline(time.Now().Add(s.bodyTime)); err != nil {
		return nil, fault.Wrap(err, fault.Internal, fault.CodeDeadline, "this connection cannot be given a deadline")
	}
	raw, err := readAll(http.MaxBytesReader(w, r.Body, limit), r.ContentLength)
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return nil, tooLarge(limit)
	}
	if err != nil {
		return nil, fault.Wrap(err, fault.Timeout, machine.CodeBody,
			"the request did not arrive whole within %v", s.bodyTime)
	}
	return raw, nil
}

// readAll is io.ReadAll for a known size (-1: unknown); the caller has checked size.
func readAll(r io.Reader, size int64) ([]byte, error) {
	if size < 0 {
		return io.ReadAll(r)
	}
	raw := make([]byte, size)
	_, err := io.ReadFull(r, raw)
	return raw, err
}

func tooLarge(limit int64) error {
	return fault.New(fault.Invalid, fault.CodeTooLarge,
		"the request is larger than %d bytes, the most that is read", limit)
}

// readArgs reads a request's arguments. It ignores unknown fields: the caller may be newer.
func (s *Server) readArgs(w http.ResponseWriter, r *http.Request, v any) error {
	raw, err := s.readBody(w, r, MaxBody)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return fault.Wrap(err, fault.Invalid, machine.CodeJSON, "the request cannot be read as JSON")
	}
	if c, ok := v.(checked); ok {
		return c.check()
	}
	return nil
}

func (s *Server) answerJSON(w http.ResponseWriter, v any) error {
	raw, err := marshal(v)
	if err != nil {
		return err
	}
	s.sendBody(w, raw, "application/json")
	return nil
}

func (s *Server) sendBody(w http.ResponseWriter, raw []byte, kind string) {
	h := w.Header()
	h["Content-Type"] = []string{kind}
	h["Content-Length"] = []string{strconv.Itoa(len(raw))}
	if len(raw) > longAnswer { // shorter answers fit the peer's flow-control window
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerTime)) // HTTP/2 supports deadlines
	}
	_, _ = w.Write(raw) // fails if the caller is gone
}
