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
// Of an error nobody knows whether the request was carried out.
func RoundTrip(w http.ResponseWriter, r *Request, rt http.RoundTripper) (res Result, err error) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	var late *time.Timer
	if r.Header > 0 {
		late = time.AfterFunc(r.Header, cancel)
	}
	out := r.Request.Clone(ctx)
	out.Trailer = nil // no protocol that needs HTTP/2 has any in its requests
	if target := Target(r.Request); target != out.URL.RequestURI() {
		out.URL.Opaque = "//" + r.Host + target // as it was written
	}
	out.URL.Scheme, out.URL.Host, out.RequestURI, out.Close = "http", r.Host, "", false
	drop := named(r.Request.Header)
	for name := range r.Request.Header {
		if hopByHop(name) || r.Drop != nil && r.Drop(name) || has(drop, name) {
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
		_ = http.NewResponseController(w).EnableFullDuplex() // HTTP/2 is always
	}
	var hints sync.Mutex // one may be written while the answer has come
	over := false
	out = out.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			hints.Lock()
			defer hints.Unlock()
			if code == http.StatusEarlyHints && !over {
				hint(w, r.Request, http.Header(h))
			}
			return nil
		}}))
	resp, err := rt.RoundTrip(out)
	hints.Lock()
	over = true
	hints.Unlock()
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
