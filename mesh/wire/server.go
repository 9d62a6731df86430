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

// Bounds of one message.
const (
	MaxBody    = 4 << 20  // bytes of a question
	MaxPull    = 16 << 20 // bytes of an exchange of records, each way
	maxHeader  = 64 << 10
	headTime   = 5 * time.Second  // for a connection to be made, and for a question's head to arrive
	bodyTime   = 10 * time.Second // for a question to arrive whole
	longAnswer = 64 << 10         // an answer of more bytes has answerTime to be taken
	answerTime = 60 * time.Second
	drainTime  = 5 * time.Second // for calls to end when the server does
)

// Peer is the member that asks, as its certificate says.
type Peer struct {
	pki.Name
	Since time.Time // when its certificate began
}

// Signer signs joins and renewals; *pki.CA is one.
type Signer interface {
	Redeem(now time.Time, secret string, n pki.Name, csr []byte) (pki.Credentials, error)
	Renew(now time.Time, peer pki.Name, csr []byte) (pki.Credentials, error)
	Bundle() (pki.Credentials, error)
}

// Options make a server. Only Identity is needed.
type Options struct {
	Identity *pki.Identity
	Worker   Served // nil: this member serves no worker
	Signer   Signer // nil: this member is no issuer
	// Members gives the addresses that a member which joins is told.
	Members func() []string
	// Known says whether an id is some member's already, besides those this issuer gave a certificate to.
	Known func(id string) bool
	// Denied says whether a member may not talk any more, though its certificate holds: those that were removed.
	Denied func(Peer) bool
	// Pull answers an exchange of records. It must let peer speak of itself only.
	Pull func(ctx context.Context, peer Peer, body []byte) ([]byte, error)
	// Claims decides what must be unique in an app; nil: this member decides nothing.
	Claims   Decider
	Stewards Stewards // nil: this member carries no services
	Learner  Learner  // nil: this member learns from no other one when that asks
	Limits   Limits
	Log      *slog.Logger
	Now      func() time.Time // nil: time.Now
	Boot     string           // of this process; see Client.Boot
	Keys     func() int       // the generation of the keys of gossip that this member has taken; nil: 0
	// NewerKeys is told that the keys of gossip of a generation are to be had from an issuer, and where that is called.
	// It must not wait; nil: this member has none to be renewed.
	NewerKeys func(by Peer, generation int, addr string)
	// LetsIn returns which of some tokens of the API are let in here, all by their digests; nil: none are.
	LetsIn func(digests []string) []string
	// MemberAt reports whether a member is known to be at an address; nil: nobody is.
	MemberAt func(netip.Addr) bool
	// Proxy serves what the proxies of other members send here for machines of this one, over HTTP/1.1; nil: this
	// member has no proxy.
	Proxy Proxied
	Certs Certs // of the proxy; nil: it has none
	// Twin is told where a member calls from that has this one's id and is another process. It must not wait.
	Twin func(addr string)
}

// Server offers a member's part to the others.
type Server struct {
	o      Options
	speaks capability
	header []string
	routes map[string]route
	gates  [classes]*gate
	joins  *gate
	asks   *asks
	odd    *slog.Logger // takes what anybody can cause
	// arriving are the changes that are being read, wait for their turn, or are under way: four times those under way.
	arriving *gate

	headTime, bodyTime time.Duration // shorter in tests
}

// route is one thing that may be asked. serve's error is answered; after the first byte it must not return one.
type route struct {
	role  pki.Role // that the caller must have; "": any member
	open  bool     // for those without a certificate too
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
		gates: [classes]*gate{newGate(l.Reads), newGate(l.Changes), newGate(l.Streams)}}
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
	members.HTTP2.MaxConcurrentStreams = s.o.Limits.Reads + s.o.Limits.Changes + s.o.Limits.Streams
	unknown.Handler, unknown.ConnContext = s.strangersHandler()
	unknown.HTTP2.MaxConcurrentStreams, unknown.IdleTimeout = strangerStreams, s.bodyTime
	g, until := errgroup.WithContext(ctx)
	shut := make(chan struct{})
	g.Go(func() error { defer close(shut); return d.acceptGuests(until) })
	proxies, kept := s.proxyServer(ctx, d.conf)
	parted := make(chan struct{})
	g.Go(func() error { <-shut; kept.endAll(); close(parted); return nil }) // who is at the door yet hears it too
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
		return fault.Wrap(err, fault.Unavailable, fault.CodeListen, "the server of other members cannot go on")
	}
	return nil
}

// httpServer returns a server of connections whose handshakes are done.
func (s *Server) httpServer(ctx context.Context, conf *tls.Config) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	return &http.Server{
		Protocols: protocols, TLSConfig: conf.Clone(),
		ReadHeaderTimeout: s.headTime, IdleTimeout: 10 * time.Minute, MaxHeaderBytes: maxHeader,
		HTTP2: &http.HTTP2Config{
			// a caller that went silently holds nothing for longer
			SendPingTimeout: 30 * time.Second, PingTimeout: 10 * time.Second,
			WriteByteTimeout: time.Minute,
		},
		ErrorLog:    slog.NewLogLogger(s.o.Log.Handler(), slog.LevelDebug),
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
}

// ServeHTTP answers one question.
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

// run carries a question out. A panic of the worker's is a fault of souk's own, told like any other.

func (s *Server) runRoute(rt route, w http.ResponseWriter, r *http.Request, by Peer) (err error) {
	defer func() {
		p := recover()
		if p == any(http.ErrAbortHandler) { //nolint:errorlint // recovered values are no chains
			panic(p) // an answer that is broken off on purpose
		}
		if p != nil {
			s.o.Log.ErrorContext(r.Context(), "panic", "path", r.URL.Path, "panic", p, "stack", string(debug.Stack()))
			err = fault.Wrap(fmt.Errorf("panic: %v", p), fault.Internal, fault.CodePanic,
				"souk failed on %s; its log tells where", s.o.Identity.Name().ID)
		}
	}()
	g := s.gates[rt.class]
	if rt.class == change { // enters its own gate once it has been read: how it is refused depends on what it is
		g = s.arriving
	}
	if !g.enterCaller(by.ID) {
		return busyError(fault.Unavailable, s.o.Identity.Name().ID)
	}
	defer g.leaveCaller(by.ID)
	if rt.class == stream {
		ctx, end := s.whileMember(r, by)
		defer end()
		r = r.WithContext(ctx)
	}
	return rt.serve(s, w, r, by)
}

// whileMember returns the context of a stream, which ends when the caller's certificate does, or it is removed.
func (s *Server) whileMember(r *http.Request, by Peer) (context.Context, func()) {
	return strangers.While(r.Context(), func(ctx context.Context) bool {
		_, err := s.peerOf(r.TLS)
		if err != nil {
			s.o.Log.WarnContext(ctx, "a member's stream is ended", "peer", by.ID, "path", r.URL.Path, "error", err)
		}
		return err == nil
	})
}

// admitCaller says whether the caller may ask this at all. Nothing of the body has been read.
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
			"there is no %q here; upgrade the souk that has to answer it",
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
			"%s has the roles %v, and this is for the role %s", by.ID,
			by.Roles, rt.role)
	}
	if rt.role == pki.Gateway && s.o.Worker == nil {
		return rt, by, fault.New(fault.NotFound, fault.CodeWorker, "%s serves no worker", s.o.Identity.Name().ID)
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

// answerError answers an error. Faults of souk's own are logged here and nowhere else; the sentence crosses.
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
		h.Set("Connection", "close") // it may have another certificate by now, and then connects anew
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
	_, _ = w.Write(raw) // who asked may be gone
}

// readBody reads a question whole, within limit and bodyTime.
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
			"the question did not arrive whole within %v", s.bodyTime)
	}
	return raw, nil
}

// readAll is io.ReadAll that knows how much will come; size is checked by who calls.
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
		"the question is larger than %d bytes, the most that is read", limit)
}

// readArgs reads a question's arguments. Fields that are not known here are passed over: the caller may be newer.
func (s *Server) readArgs(w http.ResponseWriter, r *http.Request, v any) error {
	raw, err := s.readBody(w, r, MaxBody)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return fault.Wrap(err, fault.Invalid, machine.CodeJSON, "the question cannot be understood")
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
	if len(raw) > longAnswer { // shorter ones fit what the other end takes without reading
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerTime)) // HTTP/2 has them
	}
	_, _ = w.Write(raw) // an error is that who asked is gone
}
