package wire

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/silence"
	"github.com/soukhq/souk/mesh/pki"
)

// Time limits, unless the caller's context ends earlier.
const (
	dialTime  = 1500 * time.Millisecond // the kernel resends its SYN after a second
	shakeTime = 4 * time.Second         // to connect, including the handshake
	// without a packet from the other host; then all calls on the connection are lost
	silentTime = 4 * time.Second
	readTime   = 5 * time.Second
	changeTime = grantTime + 10*time.Second // longer than the worker's own limit; pings detect a dead worker sooner
	pullTime   = 30 * time.Second
	pingAfter  = 15 * time.Second // of silence on a connection, before a ping
	pingTime   = 5 * time.Second  // to wait for the answer to a ping; then all calls on the connection are lost
	maxAnswer  = 64 << 20         // bytes
)

// Client calls other members on behalf of this one. A process has one Client, because it numbers all asks in one
// sequence.
type Client struct {
	identity *pki.Identity
	now      func() time.Time
	speaks   capability
	asked    atomic.Uint64
	boot     string                    // random, different in each process
	calls    map[string]*atomic.Uint64 // by path; see Calls
	dial     func(ctx context.Context, network, addr string) (net.Conn, error)
	denied   atomic.Pointer[func(Peer) bool] // see Deny
}

// NewClient makes a client. now is nil for time.Now.
func NewClient(identity *pki.Identity, now func() time.Time) *Client {
	if now == nil {
		now = time.Now
	}
	c := &Client{identity: identity, now: now, speaks: capability{Capability, Oldest}, boot: rand.Text(),
		dial:  silence.New(dialTime, silentTime).Dial,
		calls: map[string]*atomic.Uint64{}}
	for path := range allRoutes() {
		c.calls[path] = new(atomic.Uint64)
	}
	// The asks of this process get higher numbers than those of earlier processes. If the clock has gone back, an ask
	// may be taken for a late one, which costs a refusal.
	c.asked.Store(uint64(now().UnixMicro()))
	return c
}

// Deny stops calls to, and answers from, members for which denied returns true: members that were removed. It may be
// called at any time.
func (c *Client) Deny(denied func(Peer) bool) { c.denied.Store(&denied) }

// isDenied reports whether the peer of a connection was removed.
func (c *Client) isDenied(cs *tls.ConnectionState) bool {
	denied := c.denied.Load()
	if denied == nil || cs == nil || len(cs.PeerCertificates) == 0 {
		return false
	}
	n, err := c.identity.NameOf(cs, c.now())
	return err == nil && (*denied)(Peer{n, cs.PeerCertificates[0].NotBefore})
}

// Boot identifies this process among those with its id: each process has another.
func (c *Client) Boot() string { return c.boot }

// Calls counts the requests sent to other members, answered or not, by kind: "grant", "machine" and so on. Each is one
// round trip. Kinds never sent are left out.
func (c *Client) Calls() map[string]uint64 {
	out := map[string]uint64{}
	for path, n := range c.calls {
		if v := n.Load(); v > 0 {
			out[strings.TrimPrefix(path, "/wire/")] = v
		}
	}
	return out
}

// certificateEnds returns when the client's own certificate expires; zero if it has none yet.
func (c *Client) certificateEnds() time.Time {
	if c.identity == nil {
		return time.Time{}
	}
	return c.identity.Ends()
}

// Link is a connection to one other member, by its id. It keeps one connection for calls, and another for streams, so
// that streams do not delay calls. Both are made on first use, and again after they break. It is safe for concurrent
// use.
type Link struct {
	client *Client
	id     string
	role   pki.Role
	addr   func() string
	header http.Header

	mu  sync.Mutex // serializes replacing the wires
	now atomic.Pointer[wires]
}

// wires are a link's connections, made with a certificate that expires at ends.
type wires struct {
	calls, streams *http.Transport
	ends           time.Time
	there          atomic.Pointer[tls.ConnectionState] // state of the newest connection
}

// Link makes a link to the member id ("": any member) in the role ("": any). addr returns the member's address,
// host:port, each time a connection is made; "" if it is unknown.
func (c *Client) Link(id string, role pki.Role, addr func() string) *Link {
	l := &Link{client: c, id: id, role: role, addr: addr}
	l.header = http.Header{capabilityHeader: {c.speaks.String()}, "Content-Type": {"application/json"},
		"User-Agent": {"souk"}, bootHeader: {c.boot}}
	l.now.Store(l.newWires(c.certificateEnds()))
	return l
}

// currentWires returns the connections to use now. It makes new ones if the certificate has been replaced, or if the
// peer has been removed. Calls in progress finish on the old ones. So no call uses a connection whose certificate has
// expired.
func (l *Link) currentWires() *wires {
	ends := l.client.certificateEnds()
	good := func(w *wires) bool { return w.ends.Equal(ends) && !l.client.isDenied(w.there.Load()) }
	w := l.now.Load()
	if good(w) {
		return w
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if w = l.now.Load(); !good(w) {
		l.Close()
		w = l.newWires(ends)
		l.now.Store(w)
	}
	return w
}

// newWires makes wires that are not connected yet.
func (l *Link) newWires(ends time.Time) *wires {
	w := &wires{ends: ends}
	conf := l.client.identity.ClientTLS(l.client.now, l.id, l.role, "h2")
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		addr := l.addr()
		if addr == "" {
			return nil, &unreachable{errors.New("its address is not known")}
		}
		conn, err := dialTLS(ctx, l.client.dial, addr, conf)
		if err != nil {
			return nil, err
		}
		there := conn.ConnectionState()
		if l.client.isDenied(&there) {
			conn.Close()
			return nil, &unreachable{errors.New("who is there was removed from the cluster")}
		}
		w.there.Store(&there)
		return conn, nil
	}
	w.calls, w.streams = newTransport(dial), newTransport(dial)
	return w
}

func newTransport(dial func(ctx context.Context, network, addr string) (net.Conn, error)) *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	return &http.Transport{
		DialTLSContext: dial, Protocols: protocols, ForceAttemptHTTP2: true, DisableCompression: true,
		MaxResponseHeaderBytes: maxHeader,
		HTTP2: &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTime,
			WriteByteTimeout: time.Minute},
	}
}

// unreachable is an error from before the request was sent.
type unreachable struct{ err error }

// Error returns the cause's text.
func (u *unreachable) Error() string { return u.err.Error() }

// Unwrap returns the cause.
func (u *unreachable) Unwrap() error { return u.err }

func dialTLS(ctx context.Context, dial func(context.Context, string, string) (net.Conn, error), addr string,
	conf *tls.Config) (*tls.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, shakeTime)
	defer cancel()
	raw, err := dial(ctx, "tcp", addr)
	if err != nil {
		return nil, &unreachable{err}
	}
	conn := tls.Client(raw, conf)
	if err := conn.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, &unreachable{err}
	}
	return conn, nil
}

// Close closes idle connections.
func (l *Link) Close() {
	w := l.now.Load()
	w.calls.CloseIdleConnections()
	w.streams.CloseIdleConnections()
}

func (l *Link) memberName() string {
	if l.id == "" {
		return "the member at " + l.addr()
	}
	return fmt.Sprintf("%s at %s", l.id, l.addr())
}

// newRequest returns a POST request to the member. The host in the URL is a placeholder: the transport reaches only one
// member.
func (l *Link) newRequest(ctx context.Context, path string, body []byte) *http.Request {
	r := &http.Request{
		Method: http.MethodPost, URL: &url.URL{Scheme: "https", Host: "souk", Path: path}, Host: "souk",
		Header: l.header,
		Proto:  "HTTP/2.0", ProtoMajor: 2,
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
		GetBody: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil },
	}
	return r.WithContext(ctx)
}

// callMember sends one request and decodes its answer into out; nil: the answer is ignored.
func (l *Link) callMember(ctx context.Context, path string, within time.Duration, in, out any) error {
	raw, err := marshal(in)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, within, errSlow(within))
	defer cancel()
	return l.askMember(ctx, l.newRequest(ctx, path, raw), out)
}

func (l *Link) askMember(ctx context.Context, r *http.Request, out any) error {
	raw, err := l.rawAnswer(ctx, l.currentWires().calls, r)
	if err != nil || out == nil {
		return err
	}
	if err := json.Unmarshal(raw, out); err != nil {
		return fault.Wrap(err, fault.Unavailable, fault.CodeLost, "the answer of %s cannot be read as JSON",
			l.memberName())
	}
	return nil
}

// rawAnswer returns the body of a successful answer.
func (l *Link) rawAnswer(ctx context.Context, via *http.Transport, r *http.Request) ([]byte, error) {
	res, err := l.sendRequest(ctx, via, r)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.ContentLength > maxAnswer {
		return nil, fault.New(fault.Unavailable, fault.CodeTooLarge,
			"%s answers with more than %d bytes", l.memberName(), maxAnswer)
	}
	raw, err := readAll(io.LimitReader(res.Body, maxAnswer), res.ContentLength)
	if err != nil {
		return nil, l.lostError(ctx, err)
	}
	return raw, nil
}

// sendRequest returns the answer to a request, if it is successful; the caller closes its body.
func (l *Link) sendRequest(ctx context.Context, via *http.Transport, r *http.Request) (*http.Response, error) {
	if n := l.client.calls[r.URL.Path]; n != nil {
		n.Add(1)
	}
	res, err := via.RoundTrip(r)
	if err != nil {
		return nil, l.lostError(ctx, err)
	}
	if l.client.isDenied(res.TLS) {
		res.Body.Close()
		return nil, fault.New(fault.Unavailable, fault.CodeLost,
			"%s was removed from the cluster while it was asked", l.memberName())
	}
	if err := l.client.speaks.checkPeer(res.Header, l.memberName()); err != nil {
		res.Body.Close()
		return nil, fault.Wrap(err, fault.Unavailable, codeCapability, "this member and %s speak different protocol "+
			"versions", l.memberName())
	}
	if res.StatusCode == http.StatusOK {
		return res, nil
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(res.Body, maxLine))
	if err != nil {
		return nil, l.lostError(ctx, err)
	}
	var p problem
	if err := json.Unmarshal(raw, &p); err != nil || p.Kind == "" {
		return nil, fault.New(fault.Unavailable, fault.CodeLost,
			"%s answers with the status %d and no reason", l.memberName(),
			res.StatusCode)
	}
	return nil, p.asError()
}

// openStream sends a request and returns its answer as a stream.
func (l *Link) openStream(ctx context.Context, path string, in any) (io.ReadCloser, error) {
	raw, err := marshal(in)
	if err != nil {
		return nil, err
	}
	res, err := l.sendRequest(ctx, l.currentWires().streams, l.newRequest(ctx, path, raw))
	if err != nil {
		return nil, err
	}
	return res.Body, nil
}

// lostError explains why no answer came.
func (l *Link) lostError(ctx context.Context, err error) error {
	// our own time limit was reached, not the caller's
	if slow, ok := errors.AsType[*fault.Error](context.Cause(ctx)); ok {
		return fault.Wrap(slow, fault.Unavailable, fault.CodeLost, "%s does not answer", l.memberName())
	}
	if ctx.Err() != nil {
		return callerGone(ctx)
	}
	if no, ok := errors.AsType[*unreachable](err); ok {
		return fault.Wrap(no.err, fault.Unavailable, fault.CodeUnreachable,
			"%s cannot be reached, and was not asked", l.memberName())
	}
	if no, ok := errors.AsType[*net.OpError](err); ok && no.Op == "remote error" {
		// a TLS alert: the peer has not read the request
		return fault.Wrap(err, fault.Unavailable, fault.CodeUnreachable,
			"%s rejects this member's certificate, which ends on %s, so it was not asked",
			l.memberName(), l.client.certificateEnds().UTC().Format(time.RFC3339))
	}
	return fault.Wrap(err, fault.Unavailable, fault.CodeLost, "the connection to %s broke before the answer",
		l.memberName())
}

func errSlow(d time.Duration) error {
	return fault.New(fault.Timeout, fault.CodeDeadline, "there was no answer within %v", d)
}

// callerGone is the error for a caller that no longer waits.
func callerGone(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fault.Wrap(ctx.Err(), fault.Timeout, fault.CodeDeadline,
			"there was no answer in the time given")
	}
	return fault.Wrap(ctx.Err(), fault.Unavailable, fault.CodeCancelled, "the caller went away before the answer")
}

// Hello asks the member for its greeting. It also opens the connection for calls, so that the next call is quick.
func (l *Link) Hello(ctx context.Context) (g Greeting, err error) {
	err = l.callMember(ctx, pathHello, readTime, none{}, &g)
	return g, err
}

// Pull exchanges records: it sends body, and returns the answer of the member's Options.Pull.
func (l *Link) Pull(ctx context.Context, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, pullTime, errSlow(pullTime))
	defer cancel()
	return l.rawAnswer(ctx, l.currentWires().streams, l.newRequest(ctx, pathPull, body))
}

// numberedHeader returns the link's header with the number of an ask.
func (l *Link) numberedHeader(n uint64) http.Header {
	h := l.header.Clone()
	h[askHeader] = []string{strconv.FormatUint(n, 10)}
	return h
}
