package hop

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"sync"
	"time"
)

// RoundTrip sends a request by rt, which speaks another version of HTTP than Exchange does, and passes the answer on.
// After an error the request may have been carried out.
func RoundTrip(w http.ResponseWriter, r *Request, rt http.RoundTripper) (res Result, err error) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	var late *time.Timer
	if r.Header > 0 {
		late = time.AfterFunc(r.Header, cancel)
	}
	out := r.Request.Clone(ctx)
	out.Trailer = nil // gRPC has none in its requests
	if target := Target(r.Request); target != out.URL.RequestURI() {
		out.URL.Opaque = "//" + r.Host + target // the target as the client wrote it
	}
	out.URL.Scheme, out.URL.Host, out.RequestURI, out.Close = "http", r.Host, "", false
	drop := connectionNames(r.Request.Header)
	for name := range r.Request.Header {
		if hopByHop(name) || r.Drop != nil && r.Drop(name) || hasName(drop, name) {
			delete(out.Header, name)
		}
	}
	for _, f := range r.Set {
		if f.Value != "" {
			out.Header[f.Name] = []string{f.Value}
		}
	}
	if acceptsTrailers(r.Request.Header) {
		out.Header["Te"] = []string{"trailers"}
	}
	if !hasBody(r.Request) {
		out.Body = nil
	} else {
		// A request that a draining machine has refused is sent over another connection, whatever its method.
		if again, can := out.Body.(interface{ Again() (io.ReadCloser, error) }); can {
			out.GetBody = again.Again
		}
		_ = http.NewResponseController(w).EnableFullDuplex() // HTTP/2 always is
	}
	resp, err := withHints(w, r.Request, out, rt)
	if late != nil && !late.Stop() && r.Context().Err() == nil {
		if err == nil {
			resp.Body.Close()
		}
		return Result{}, errors.Join(os.ErrDeadlineExceeded, err)
	}
	if err != nil {
		return Result{}, err
	}
	defer resp.Body.Close()
	res.First = time.Now()
	if r.Answer != nil {
		if err := r.Answer(resp); err != nil {
			_, _ = io.CopyN(io.Discard, resp.Body, 64<<10)
			return res, err
		}
	}
	res.Code = resp.StatusCode
	res.Bytes, err = passOn(w, resp, nil, 0)
	return res, err
}

// withHints sends out by rt and passes on the early hints before the answer.
func withHints(w http.ResponseWriter, r, out *http.Request, rt http.RoundTripper) (*http.Response, error) {
	var mu sync.Mutex // one may come while RoundTrip ends
	over := false
	defer func() {
		mu.Lock()
		over = true
		mu.Unlock()
	}()
	return rt.RoundTrip(out.WithContext(httptrace.WithClientTrace(out.Context(), &httptrace.ClientTrace{
		Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			mu.Lock()
			defer mu.Unlock()
			if code == http.StatusEarlyHints && !over {
				passHints(w, r, http.Header(h))
			}
			return nil
		}})))
}
