package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/soukhq/souk/fault"
)

const (
	redirects  = 5
	errorBytes = 64 << 10 // bytes read of an error answer
)

// question is one GET.
type question struct {
	endpoint
	repository, path string
	accept           string
	from, to         int64  // byte range to resume a blob; to 0: the whole blob
	what             string // the object in error sentences: "the image x"
}

// answer is a registry's answer. Its body is cut off when nothing arrives for too long.
type answer struct {
	status    int
	header    http.Header
	body      io.ReadCloser
	elsewhere bool       // from a host that the registry redirected to
	by        netip.Addr // the sender's address; invalid behind a proxy
}

var (
	errIdle = errors.New("nothing came")       //nolint:gochecknoglobals // a constant
	errSlow = errors.New("it came too slowly") //nolint:gochecknoglobals // a constant
)

// askRegistry sends a request, and answers an authentication challenge.
func (c *Client) askRegistry(ctx context.Context, q question) (*answer, error) {
	key := q.base + " " + q.repository
	c.mu.Lock()
	authorization := c.tokens[key]
	c.mu.Unlock()
	a, err := c.getRedirected(ctx, q, authorization)
	if err != nil {
		return nil, err
	}
	if a.status == http.StatusUnauthorized && !a.elsewhere { // a redirect's target gets no credentials
		challenges := a.header.Values("WWW-Authenticate")
		_ = a.body.Close()
		if authorization, err = c.answerChallenge(ctx, q, a.by, challenges); err != nil {
			return nil, err
		}
		if a, err = c.getRedirected(ctx, q, authorization); err != nil {
			return nil, err
		}
		if a.status < 300 {
			c.mu.Lock()
			c.tokens[key] = authorization
			c.mu.Unlock()
		}
	}
	if a.status == http.StatusOK || a.status == http.StatusPartialContent {
		return a, nil
	}
	defer a.body.Close()
	defer time.AfterFunc(c.o.Whole, func() { _ = a.body.Close() }).Stop() // the error's text may arrive slowly
	return nil, q.refusedError(a, authorization != "")
}

// getRedirected sends a request and follows redirects. Redirect targets get no credentials.
func (c *Client) getRedirected(ctx context.Context, q question, authorization string) (*answer, error) {
	at, client, elsewhere := q.base+"/"+q.repository+q.path, c.direct, false
	for hops := 0; ; hops++ {
		header := http.Header{"User-Agent": {"souk"}}
		if q.accept != "" {
			header.Set("Accept", q.accept)
		}
		if q.to > 0 {
			// with both ends: some registries refuse a range without an end
			header.Set("Range", fmt.Sprintf("bytes=%d-%d", q.from, q.to-1))
		}
		if authorization != "" && !elsewhere {
			header.Set("Authorization", authorization)
		}
		a, err := c.sendRequest(ctx, client, q, &http.Request{Method: http.MethodGet, Header: header}, at)
		if err != nil {
			return nil, err
		}
		if a.elsewhere = elsewhere; a.status < 300 || a.status >= 400 {
			return a, nil
		}
		_ = a.body.Close()
		to, err := url.Parse(a.header.Get("Location"))
		if err != nil || hops == redirects {
			return nil, fault.New(fault.Unavailable, codeRegistryRedirect,
				"the registry %s redirects endlessly when asked for %s; ask its operator", q.name, q.what)
		}
		from, _ := url.Parse(at)
		to = from.ResolveReference(to)
		if err := q.mayFollow(to); err != nil {
			return nil, err
		}
		// guarded even if it redirects to itself: its name may resolve to another address by now
		if client == c.direct {
			client = c.clientFor(a.by)
		}
		elsewhere = elsewhere || to.Host != q.host || to.Scheme != from.Scheme
		at = to.String()
	}
}

// mayFollow refuses URLs that leave TLS or are not HTTP.
func (q question) mayFollow(to *url.URL) error {
	if to.Scheme == "https" || to.Scheme == "http" && q.isPlainHTTP() {
		return nil
	}
	return fault.New(fault.Denied, codeRegistryReach,
		"the registry %s redirects from TLS to %s://%s for %s, which souk does not follow",
		q.name, to.Scheme, to.Host, q.what)
}

// sendRequest sends one request.
func (c *Client) sendRequest(ctx context.Context, client *http.Client, q question, r *http.Request, at string) (*answer,
	error) {
	to, err := url.Parse(at)
	if err != nil {
		return nil, fault.Wrap(err, fault.Invalid, codeRegistry, "the registry %s is not an address", q.name)
	}
	within, cancel := context.WithCancelCause(ctx)
	idle := time.AfterFunc(c.o.Idle, func() { cancel(errIdle) })
	r.URL, r.Host = to, to.Host
	var by netip.AddrPort
	if p, err := http.ProxyFromEnvironment(r); p == nil && err == nil {
		within = httptrace.WithClientTrace(within, &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
			by, _ = netip.ParseAddrPort(i.Conn.RemoteAddr().String()) // on an error the registry counts as public
		}})
	}
	resp, err := client.Do(r.WithContext(within))
	if err != nil {
		idle.Stop()
		cancel(nil)
		return nil, c.brokenError(ctx, within, q, err)
	}
	return &answer{status: resp.StatusCode, header: resp.Header, by: by.Addr(), body: &body{c: c, q: q, outer: ctx,
		within: within, cancel: cancel, idle: idle, of: resp.Body}}, nil
}

// body reads an answer; each read with data restarts the idle timer.
type body struct {
	c             *Client
	q             question
	outer, within context.Context //nolint:containedctx // of this answer only
	cancel        context.CancelCauseFunc
	idle          *time.Timer
	of            io.ReadCloser
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.of.Read(p)
	if n > 0 {
		b.idle.Reset(b.c.o.Idle)
	}
	if err != nil && err != io.EOF { //nolint:errorlint // io.Reader returns it unwrapped
		err = b.c.brokenError(b.outer, b.within, b.q, err)
	}
	return n, err
}

func (b *body) Close() error {
	b.idle.Stop()
	defer b.cancel(nil)
	return b.of.Close()
}

// brokenError explains why an answer is missing or incomplete.
func (c *Client) brokenError(ctx, within context.Context, q question, err error) error {
	var f *fault.Error
	switch {
	case errors.Is(context.Cause(ctx), errSlow):
		return fault.New(fault.Timeout, fault.CodeRegistrySlow,
			"the registry %s sends %s so slowly that it was given up; try again later, or configure a mirror",
			q.name, q.what)
	case ctx.Err() != nil:
		return fault.Wrap(ctx.Err(), fault.Timeout, fault.CodeImageCanceled, "getting %s was given up", q.what)
	case errors.Is(context.Cause(within), errIdle):
		return fault.New(fault.Timeout, codeRegistryHangs,
			"the registry %s sent nothing for %s while asked for %s; try again, or configure a "+
				"mirror", q.name, c.o.Idle,
			q.what)
	case errors.As(err, &f):
		return f
	case errors.Is(err, http.ErrSchemeMismatch):
		return fault.New(fault.Unavailable, codeRegistryPlain,
			"the registry %s speaks plain HTTP, and was asked for %s by HTTPS; give it a certificate, or start souk "+
				"with --mirror %s=http://%s", q.name, q.what, q.name, q.name)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fault.New(fault.Unavailable, fault.CodeImageCut,
			"the registry %s broke off in the middle of %s; pull again, and the pull continues there", q.name, q.what)
	}
	// The sentence includes the cause, since clients of the API see only the sentence.
	return fault.New(fault.Unavailable, codeRegistryUnreachable,
		"the registry %s cannot be reached for %s (%s); see that its name is right and that it runs, or load the "+
			"image from a file",
		q.name, q.what, fault.Clip(causeOf(err), 200))
}

// causeOf returns why a connection failed, without the requested URL.
func causeOf(err error) string {
	if asked, ok := errors.AsType[*url.Error](err); ok {
		err = asked.Err
	}
	return err.Error()
}

// refusedError makes an error of an unsuccessful answer.
func (q question) refusedError(a *answer, credentials bool) error {
	said := saidBy(a)
	switch s := a.status; {
	case s == http.StatusUnauthorized && !credentials:
		return fault.New(fault.Denied, codeRegistryLogin,
			"the registry %s wants credentials for %s, and none are configured for it (or there is no such image)%s",
			q.name, q.what, said)
	case s == http.StatusUnauthorized:
		return fault.New(fault.Denied, codeRegistryLogin,
			"the registry %s rejects the credentials that are configured for %s (or there is no such image)%s",
			q.name, q.what, said)
	case s == http.StatusForbidden:
		return fault.New(fault.Denied, codeRegistryForbidden,
			"the registry %s denies access to %s with the configured credentials%s", q.name, q.what, said)
	case s == http.StatusNotFound:
		return fault.New(fault.NotFound, fault.CodeImageUnknown,
			"the registry %s does not have %s%s", q.name, q.what, said)
	case s == http.StatusTooManyRequests:
		e := fault.New(fault.Unavailable, codeRegistryBusy,
			"the registry %s has had too many requests to give %s now%s; try again later, or configure a mirror",
			q.name, q.what, said)
		e.RetryAfter = retryAfter(a.header, time.Now())
		return e
	case s >= 500:
		e := fault.New(fault.Unavailable, codeRegistryFailed,
			"the registry %s answered %d when asked for %s%s; try again later", q.name, s, q.what, said)
		e.RetryAfter = retryAfter(a.header, time.Now())
		return e
	default:
		return fault.New(fault.Invalid, codeRegistryAnswer,
			"the registry %s answered %d when asked for %s%s; is it a registry of images?", q.name, s, q.what, said)
	}
}

func retryAfter(h http.Header, now time.Time) time.Duration {
	v := h.Get("Retry-After")
	if s, err := strconv.Atoi(v); err == nil && s >= 0 {
		return time.Duration(min(s, 1<<20)) * time.Second
	}
	if at, err := http.ParseTime(v); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}

// saidBy returns the registry's own error message, as the end of a sentence.
func saidBy(a *answer) string {
	raw, _ := io.ReadAll(io.LimitReader(a.body, errorBytes))
	var doc struct {
		Errors []struct{ Code, Message string } `json:"errors"`
	}
	if json.Unmarshal(raw, &doc) != nil || len(doc.Errors) == 0 {
		return ""
	}
	said := doc.Errors[0].Message
	if said == "" {
		said = doc.Errors[0].Code
	}
	said = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) && r != unicode.ReplacementChar {
			return r
		}
		return ' '
	}, fault.Clip(said, 200))
	if said = strings.TrimSpace(said); said == "" {
		return ""
	}
	return fmt.Sprintf(": it says %q", said)
}

// fetchDocument fetches a small document. The time limit covers the whole document, including the token, so that a slow
// trickle of bytes does not extend it.
func (c *Client) fetchDocument(ctx context.Context, q question, most int64) (*Document, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.o.Whole, errSlow)
	defer cancel()
	a, err := c.askRegistry(ctx, q)
	if err != nil {
		return nil, err
	}
	defer a.body.Close()
	raw, err := io.ReadAll(io.LimitReader(a.body, most+1))
	if err != nil {
		return nil, err
	}
	if int64(len(raw)) > most {
		return nil, fault.New(fault.Invalid, fault.CodeImageSize,
			"the registry %s sent more than %d bytes as the manifest of %s; no manifest is that "+
				"long", q.name, most, q.what)
	}
	return &Document{Raw: raw, MediaType: a.header.Get("Content-Type")}, nil
}
