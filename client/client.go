// Package client is the Go client of souk's HTTP API: the Machines API and souk's own routes below /v1/souk.
//
// A Client is safe for many goroutines and keeps its connections alive. Every error is a *fault.Error: the server's
// own, with kind and code, or Unavailable if no answer came. A Client retries only what net/http repeats by itself (a
// GET whose kept-alive connection had died): a caller that repeats a create must give it a Key.
package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/unixsock"
)

// MaxAnswer bounds the JSON answer a client reads: 64 MiB, some 20,000 machines.
const MaxAnswer = 64 << 20

// Client talks to one souk.
type Client struct {
	transport
	ClusterCalls
	TokenCalls
	PolicyCalls
	NamespaceCalls
	AppCalls
	ImageCalls
	ServiceCalls
	ReleaseCalls
}

// transport makes the requests of all groups of calls.
type transport struct {
	at    string // for display: http://HOST:PORT, or unix:PATH
	base  string // prefix of each URL: http://HOST:PORT, no trailing slash
	token string
	http  *http.Client
	async bool
	lacks func(workers []string) // called with the workers that an answer may lack; may be nil
	doors func(mark string)      // called with the mark of the list of doors; may be nil
}

// OnDoors returns a client that calls f with the mark that answers carry of the cluster's list of doors (ListDoors): a
// new mark means a new list.
func (c *Client) OnDoors(f func(mark string)) *Client {
	t := c.transport
	t.doors = f
	return newClient(t)
}

// OnMissing returns a client that calls f with the workers that could not be asked, if an answer may be incomplete. The
// answer may contain their last reports.
func (c *Client) OnMissing(f func(workers []string)) *Client {
	t := c.transport
	t.lacks = f
	return newClient(t)
}

// Async returns a client whose Start, Stop, Restart and Suspend return when they have begun, not when they are done.
func (c *Client) Async() *Client {
	t := c.transport
	t.async = true
	return newClient(t)
}

// New returns a client of the souk at addr, which is HOST:PORT, a URL ("https://souk.example"), or the socket of a souk
// of this host ("unix:/var/lib/souk/souk.sock"), whose other end must belong to this user or root.
func New(addr, token string) *Client {
	return WithHTTP(addr, token, &http.Client{Transport: Transport(addr)})
}

// Transport returns the http.Transport that New uses, for callers that extend it.
func Transport(addr string) *http.Transport {
	t := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		MaxIdleConns:        128,
		MaxIdleConnsPerHost: 128,
		IdleConnTimeout:     90 * time.Second,
	}
	if path, socket := socketOf(addr); socket {
		t.Proxy = nil
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			c, err := unixsock.Dial(ctx, path)
			if err != nil {
				return nil, err // not a nil *net.UnixConn in a non-nil interface
			}
			return c, nil
		}
	}
	return t
}

// socketOf returns the path in unix:PATH or unix://PATH.
func socketOf(addr string) (path string, socket bool) {
	path, socket = strings.CutPrefix(addr, "unix:")
	return strings.TrimPrefix(path, "//"), socket
}

// WithHTTP is New with an http.Client of the caller's own.
func WithHTTP(addr, token string, h *http.Client) *Client {
	if _, socket := socketOf(addr); socket {
		return newClient(transport{at: addr, base: "http://souk", token: token, http: h})
	}
	base := baseOf(addr)
	return newClient(transport{at: base, base: base, token: token, http: h})
}

// baseOf returns the URL prefix of an address.
func baseOf(addr string) string {
	if _, socket := socketOf(addr); socket {
		return "http://souk"
	}
	base := strings.TrimRight(addr, "/")
	if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	return base
}

func newClient(t transport) *Client {
	return &Client{transport: t, ClusterCalls: ClusterCalls{t}, PolicyCalls: PolicyCalls{t},
		NamespaceCalls: NamespaceCalls{t},
		AppCalls:       AppCalls{t}, TokenCalls: TokenCalls{t}, ImageCalls: ImageCalls{t},
		ServiceCalls: ServiceCalls{t}, ReleaseCalls: ReleaseCalls{t}}
}

// Addr returns the base URL, or unix:PATH, that the client talks to.
func (c transport) Addr() string { return c.at }

// call is one request.
type call struct {
	op     api.Op
	path   string
	query  url.Values
	header http.Header
	in     any // nil: no body; an io.Reader is sent as it is
}

// newCall returns the call of an operation; values are those of its path's parameters.
func newCall(op api.Op, values ...string) call { return call{op: op, path: op.Path(values...)} }

func (k call) withQuery(q url.Values) call {
	k.query = q
	return k
}

func (k call) withBody(in any) call {
	k.in = in
	return k
}

// withHeader adds a header, unless the value is empty.
func (k call) withHeader(name, value string) call {
	if value == "" {
		return k
	}
	k.header = k.header.Clone()
	if k.header == nil {
		k.header = http.Header{}
	}
	k.header.Set(name, value)
	return k
}

// doCall makes the request and decodes the answer into out (nil: the answer's body does not matter).
func (c transport) doCall(ctx context.Context, k call, out any) error {
	_, err := c.doPage(ctx, k, out)
	return err
}

// doPage is doCall for a list that is an array: it also returns the cursor of the next page; "": there is none.
func (c transport) doPage(ctx context.Context, k call, out any) (string, error) {
	resp, err := c.sendCall(ctx, k)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	return resp.Header.Get(api.NextCursorHeader), decodeAnswer(ctx, c.at, resp, k, out)
}

// decodeAnswer reads an answer into out.
func decodeAnswer(ctx context.Context, base string, resp *http.Response, k call, out any) error {
	var b bytes.Buffer
	if n := resp.ContentLength; n > 0 && n <= MaxAnswer {
		b.Grow(int(n) + bytes.MinRead) // avoids growing step by step
	}
	if _, err := b.ReadFrom(io.LimitReader(resp.Body, MaxAnswer+1)); err != nil {
		return brokenError(ctx, err)
	}
	if b.Len() > MaxAnswer {
		return fault.New(fault.Internal, codeAnswerSize, "the answer to %s %s is larger than %d MiB; ask for less",
			k.op.Method(), k.path, MaxAnswer>>20)
	}
	if out == nil {
		return nil
	}
	unmarshal := func(b []byte) error { return json.Unmarshal(b, out) }
	if reader, ok := out.(json.Unmarshaler); ok {
		unmarshal = reader.UnmarshalJSON // it validates by itself, so skip json.Unmarshal's extra pass
	}
	if err := unmarshal(b.Bytes()); err != nil {
		return fault.Wrap(err, fault.Internal, codeAnswer,
			"the answer to %s %s is not the JSON that was expected; is %s a souk?", k.op.Method(), k.path, base)
	}
	return nil
}

// sendCall makes the request and returns the answer if it is a 2xx, else its error. The caller closes the body.
func (c transport) sendCall(ctx context.Context, k call) (*http.Response, error) {
	var body io.Reader
	if k.in != nil {
		if r, ok := k.in.(io.Reader); ok {
			body = r
		} else {
			raw, err := encodeJSON(k.in)
			if err != nil {
				return nil, err
			}
			body = bytes.NewReader(raw)
		}
	}
	u := c.base + k.path
	if len(k.query) > 0 {
		u += "?" + k.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, k.op.Method(), u, body)
	if err != nil {
		return nil, fault.Wrap(err, fault.Invalid, codeAddress, "%q is no address of a souk; write HOST:PORT", c.at)
	}
	req.Header.Set("User-Agent", "souk")
	if k.in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	if c.async {
		req.Header.Set(api.PreferHeader, api.RespondAsync)
	}
	for name, values := range k.header {
		req.Header[name] = values
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.unreachableError(ctx, err)
	}
	if resp.StatusCode/100 != 2 {
		defer resp.Body.Close()
		return nil, answerError(resp)
	}
	if mark := resp.Header.Get(api.DoorsHeader); mark != "" && c.doors != nil {
		c.doors(mark)
	}
	if missing := resp.Header.Get(api.MissingHeader); missing != "" && c.lacks != nil {
		c.lacks(strings.Split(missing, ","))
	}
	return resp, nil
}

// unreachableError returns the error of a failed request, which distinguishes a connection that was never made from an
// answer that did not come in time.
func (c transport) unreachableError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return endedError(ctx)
	}
	cause := err
	if u, ok := errors.AsType[*url.Error](err); ok {
		cause = u.Err
	}
	if fault.Is(cause, fault.Denied) { // the other end failed authentication
		return cause
	}
	if errors.Is(cause, fs.ErrPermission) {
		return fault.Wrap(cause, fault.Denied, codeSocket,
			"the souk at %s is another user's: ask it as that user or as "+
				"root, or by its address and with a token", c.at)
	}
	if _, wrong := errors.AsType[*tls.CertificateVerificationError](cause); wrong {
		return errCertificate(cause, c.at)
	}
	return fault.Wrap(cause, fault.Unavailable, fault.CodeUnreachable, "souk cannot be reached at %s", c.at)
}

func errCertificate(cause error, at string) error {
	return fault.Wrap(cause, fault.Denied, fault.CodeCertificate,
		"the certificate of %s is not trusted; name its root: souk context add NAME %s --root FILE, where FILE is "+
			"api-root.pem of that souk's directory, or the root of your own certificate", at, at)
}

// brokenError is the error of an answer that stopped in the middle.
func brokenError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return endedError(ctx)
	}
	return fault.Wrap(err, fault.Unavailable, CodeBrokenOff, "the answer broke off")
}

func endedError(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fault.Wrap(ctx.Err(), fault.Timeout, fault.CodeDeadline, "no answer came in the time given")
	}
	return fault.Wrap(ctx.Err(), fault.Timeout, codeCanceled, "the request was cancelled before its answer came")
}

// ErrorAnswer is an answer that is an error. If the server is not souk, Souk is empty.
type ErrorAnswer struct {
	api.ErrorBody
	HTTP      int    `json:"-"` // the status code
	RequestID string `json:"-"` // appears in the server's log
}

// answerError reads the error in an answer that is no 2xx. Its Detail is an ErrorAnswer.
func answerError(resp *http.Response) *fault.Error {
	raw, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20)) // on a read error the status code still counts
	a := ErrorAnswer{HTTP: resp.StatusCode, RequestID: resp.Header.Get(api.RequestIDHeader)}
	_ = json.Unmarshal(raw, &a) // ignore errors: the server need not be souk
	if a.Error == "" {
		a.Error = fmt.Sprintf("the server answered %s without saying why", resp.Status)
	}
	return a.asFault()
}

func (a ErrorAnswer) asFault() *fault.Error {
	d := a.Souk
	if d.Kind != "" {
		a.Error = api.Sentence(a.Error)
	} else {
		d.Kind = kindOfStatus(a.HTTP)
	}
	return &fault.Error{Kind: d.Kind, Code: d.Code, Text: a.Error, Scope: d.Scope, Resource: d.Resource,
		RetryAfter: time.Duration(d.RetryAfter * float64(time.Second)), Detail: a}
}

func kindOfStatus(code int) fault.Kind {
	switch code {
	case http.StatusUnauthorized, http.StatusForbidden:
		return fault.Denied
	case http.StatusNotFound, http.StatusGone:
		return fault.NotFound
	case http.StatusRequestTimeout, http.StatusGatewayTimeout:
		return fault.Timeout
	case http.StatusConflict:
		return fault.Conflict
	case http.StatusPreconditionFailed:
		return fault.Precondition
	case http.StatusTooManyRequests:
		return fault.Exhausted
	case http.StatusNotImplemented:
		return fault.Unimplemented
	case http.StatusBadGateway, http.StatusServiceUnavailable:
		return fault.Unavailable
	}
	if code/100 == 4 {
		return fault.Invalid
	}
	return fault.Internal
}
