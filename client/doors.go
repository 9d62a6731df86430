package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/fault"
)

// Door is one of the addresses of a cluster, whose members answer for each other.
type Door struct {
	Addr  string            // as New takes it
	Token string            // a token valid there
	Conns http.RoundTripper // makes connections to it; nil: Transport(Addr)
}

// Times of a search for a door that answers.
const (
	doorPatience = time.Second      // wait for one door before the next is tried as well
	doorSearch   = 10 * time.Second // until the search is given up
)

// Several returns a client of a cluster with several doors. It uses the first one that answers until that fails, then
// the next. A request that a door may have read is sent to another only if repeating it is harmless: a read, or a
// create with a Key.
func Several(doors []Door) *Client {
	s := &several{}
	var at []string
	for _, d := range doors {
		d.Addr = strings.TrimRight(d.Addr, "/")
		if d.Conns == nil {
			d.Conns = Transport(d.Addr)
		}
		at = append(at, d.Addr)
		s.doors = append(s.doors, newDoor(d))
	}
	return newClient(transport{at: strings.Join(at, ", "), base: "http://souk", http: &http.Client{Transport: s}})
}

// door is a Door with what is needed to send requests to it.
type door struct {
	Door
	scheme, host string
}

func newDoor(d Door) *door {
	base := baseOf(d.Addr)
	scheme, host, _ := strings.Cut(base, "://")
	return &door{d, scheme, host}
}

// sendAt makes a request at this door.
func (d *door) sendAt(ctx context.Context, req *http.Request, body *onceBody) (*http.Response, error) {
	out := req.Clone(ctx)
	if body.body != nil && body.body != http.NoBody {
		out.Body = body
	}
	out.URL.Scheme, out.URL.Host, out.Host = d.scheme, d.host, d.host
	if d.Token != "" {
		out.Header.Set("Authorization", "Bearer "+d.Token)
	}
	resp, err := d.Conns.RoundTrip(out)
	return resp, d.unbelievedError(err)
}

// unbelievedError adds the door's address to the error of an untrusted certificate.
func (d *door) unbelievedError(err error) error {
	if _, wrong := errors.AsType[*tls.CertificateVerificationError](err); wrong {
		return errCertificate(err, d.Addr)
	}
	return err
}

// several sends requests to the first of some doors that answers. It is safe for many goroutines.
type several struct {
	doors []*door
	used  atomic.Pointer[door] // the one that answered last; nil: search for one
	mu    sync.Mutex           // held during the search
}

// RoundTrip sends a request to a door that answers. If that fails before it has read anything, or the request is
// repeatable, it tries another.
func (s *several) RoundTrip(req *http.Request) (*http.Response, error) {
	body := &onceBody{body: req.Body}
	resp, err := s.sendAnywhere(req, body)
	body.leaveReader(err == nil)
	return resp, err
}

func (s *several) sendAnywhere(req *http.Request, body *onceBody) (*http.Response, error) {
	var failed *door
	for {
		d, err := s.findDoor(req.Context(), failed)
		if err != nil {
			return nil, err
		}
		resp, sent, err := s.tryDoor(d, req, body)
		if err == nil {
			return resp, nil
		}
		s.used.CompareAndSwap(d, nil)
		if failed != nil || req.Context().Err() != nil || sent && !mayRepeat(req) || !body.rewindFor(req) {
			return nil, err
		}
		if failed = d; sent {
			req = req.Clone(req.Context())
			req.Header.Del(api.NewKeyHeader) // the first door may have used the key
		}
	}
}

// tryDoor makes a request at a door. sent says that the door may have read something of it.
func (s *several) tryDoor(d *door, req *http.Request, body *onceBody) (resp *http.Response, sent bool, err error) {
	var got atomic.Bool
	ctx := httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { got.Store(true) },
	})
	resp, err = d.sendAt(ctx, req, body)
	return resp, got.Load(), err
}

// mayRepeat reports whether a request may be sent twice.
func mayRepeat(req *http.Request) bool {
	return req.Method == http.MethodGet || req.Method == http.MethodHead || req.Header.Get(api.IdempotencyHeader) != ""
}

// onceBody is the body of a request that may be sent to two doors, one after another. It is closed once: when the
// answering door has finished with it, or all doors have failed.
type onceBody struct {
	body  io.ReadCloser // nil: the request has none
	begun atomic.Bool   // something was read

	mu    sync.Mutex
	last  bool // no further door will read it
	ended bool // its reader has closed it
}

func (b *onceBody) Read(p []byte) (int, error) {
	b.begun.Store(true)
	return b.body.Read(p)
}

// Close is called by the present reader.
func (b *onceBody) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended = true; b.last {
		return b.body.Close()
	}
	return nil
}

// rewindFor prepares the body to be sent again; false: it is a stream that was read already.
func (b *onceBody) rewindFor(req *http.Request) bool {
	if b.body == nil || !b.begun.Load() {
		return true
	}
	if req.GetBody == nil {
		return false
	}
	fresh, err := req.GetBody()
	if err != nil {
		return false
	}
	b.body = fresh
	return true
}

// leaveReader lets the present reader, if any, close the body for good.
func (b *onceBody) leaveReader(answered bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last = true
	if b.body != nil && (b.ended || !answered) {
		_ = b.body.Close() // the answer says what was done with the body
	}
}

// findDoor returns the door to use: the one that was used last, else the first that answers a request that needs no
// token. Each door has doorPatience before the next is tried as well. failed is tried last.
func (s *several) findDoor(ctx context.Context, failed *door) (*door, error) {
	if d := s.used.Load(); d != nil {
		return d, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.used.Load(); d != nil {
		return d, nil
	}
	order := slices.Clone(s.doors)
	slices.SortStableFunc(order, func(a, b *door) int { return cmp.Compare(rankOf(a == failed), rankOf(b == failed)) })
	d, err := firstAlive(ctx, order)
	if err == nil {
		s.used.Store(d)
	}
	return d, err
}

func rankOf(last bool) int {
	if last {
		return 1
	}
	return 0
}

// firstAlive returns the first door that answers.
func firstAlive(ctx context.Context, order []*door) (*door, error) {
	ctx, cancel := context.WithTimeout(ctx, doorSearch)
	defer cancel()
	type answer struct {
		of  *door
		err error
	}
	answers := make(chan answer, len(order))
	var errs []error
	next := time.NewTimer(0)
	defer next.Stop()
	for asked := 0; ; {
		select {
		case <-next.C:
			if asked < len(order) {
				d := order[asked]
				asked++
				go func() { answers <- answer{d, d.isAlive(ctx)} }()
				next.Reset(doorPatience)
			}
		case a := <-answers:
			if a.err == nil {
				return a.of, nil
			}
			if errs = append(errs, a.err); len(errs) == len(order) {
				return nil, worstError(errs)
			}
			next.Reset(0)
		}
	}
}

// isAlive checks that a door's process answers.
func (d *door) isAlive(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, api.Livez.Method(), "http://souk"+api.Livez.Path(), nil)
	if err != nil {
		return err
	}
	resp, err := d.sendAt(ctx, req, &onceBody{})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection can be reused
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fault.New(fault.Unavailable, codeDoor, "souk at %s answers the liveness check with %s",
			d.Addr, resp.Status)
	}
	return err
}

// worstError returns one error for all doors: a failed authentication says more than unreachable doors.
func worstError(errs []error) error {
	if i := slices.IndexFunc(errs, func(err error) bool { return fault.Is(err, fault.Denied) }); i >= 0 {
		return errs[i]
	}
	texts := make([]string, len(errs))
	for i, err := range errs {
		texts[i] = err.Error()
	}
	return errors.New(strings.Join(slices.Compact(texts), "; "))
}
