// Package remote reads manifests and blobs from registries: from their mirrors first, with configured credentials. It
// resumes an interrupted blob.
//
// Registries are not trusted. Everything is verified by its digest; a registry may not hang, trickle, send more than it
// announced, or make souk connect elsewhere inside the network. A URL that it names (a token's realm, a redirect) is
// requested only if guard.go allows it, never unencrypted after TLS, and a redirect's target gets no credentials.
package remote

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/backoff"
	"github.com/soukhq/souk/internal/wait"
	"github.com/soukhq/souk/machine"
)

const (
	idleDefault  = 30 * time.Second
	wholeDefault = time.Minute      // for one document, including its token and redirects
	slowest      = 16 << 10         // least acceptable bytes a second of a blob
	attempts     = 4                // for one request, without a byte of progress
	reconnects   = 1000             // for one blob, with progress
	longestWait  = 60 * time.Second // longest Retry-After that is waited for; the caller handles a longer one
	dialTimeout  = 10 * time.Second
)

// Options configure a client. The zero value asks registries directly, over TLS, without credentials.
type Options struct {
	Registries  map[string]Registry                        // by the registry's name in references
	Credentials func(registry string) (Credentials, error) // nil: none
	Idle        time.Duration                              // how long a registry may send nothing; 0: 30 s
	// for a whole document, and for a blob in addition to its bytes; 0: 1 min
	Whole time.Duration
	Roots *x509.CertPool                             // nil: the host's
	Wait  func(context.Context, time.Duration) error // waits between attempts; nil: by the clock
}

// Registry is the configuration of one registry.
type Registry struct {
	Mirrors   []string // HOST[:PORT] or URL, asked before the registry, in this order; HTTP only for an http URL
	PlainHTTP bool     // without TLS; loopback addresses need no configuration
}

// Client sends requests to registries. Its methods may be called from many goroutines.
type Client struct {
	o      Options
	direct *http.Client // for the registries themselves

	mu      sync.Mutex
	tokens  map[string]string      // by endpoint and repository
	guarded map[limit]*http.Client // for URLs that registries name; at most maxLimits
}

// New makes a client.
func New(o Options) *Client {
	if o.Idle == 0 {
		o.Idle = idleDefault
	}
	if o.Wait == nil {
		o.Wait = wait.For
	}
	if o.Credentials == nil {
		o.Credentials = func(string) (Credentials, error) { return Credentials{}, nil }
	}
	if o.Whole == 0 {
		o.Whole = wholeDefault
	}
	c := &Client{o: o, tokens: map[string]string{}, guarded: map[limit]*http.Client{}}
	c.direct = c.httpClient(nil)
	return c
}

// Close closes idle connections.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.direct.CloseIdleConnections()
	for _, g := range c.guarded {
		g.CloseIdleConnections()
	}
}

var pause = backoff.Doubling{Base: 200 * time.Millisecond, Most: 10 * time.Second} //nolint:gochecknoglobals // a constant

// httpClient makes a client that connects only as a limit allows; nil: it is for a registry itself. It does not follow
// redirects.
func (c *Client) httpClient(of *limit) *http.Client {
	g := &guard{limit: of, dialer: net.Dialer{Timeout: dialTimeout}}
	t := &http.Transport{Proxy: g.proxyFor, DialContext: g.dialGuarded, ForceAttemptHTTP2: true,
		MaxIdleConnsPerHost: 8, IdleConnTimeout: 30 * time.Second, TLSHandshakeTimeout: dialTimeout,
		DisableCompression: true, TLSClientConfig: &tls.Config{RootCAs: c.o.Roots, MinVersion: tls.VersionTLS12}}
	return &http.Client{Transport: t,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// clientFor returns the client for URLs named by a registry at an address.
func (c *Client) clientFor(by netip.Addr) *http.Client {
	of := limitOf(by)
	c.mu.Lock()
	defer c.mu.Unlock()
	client := c.guarded[of]
	if client == nil {
		if len(c.guarded) == maxLimits {
			for _, g := range c.guarded {
				g.CloseIdleConnections()
			}
			clear(c.guarded)
		}
		client = c.httpClient(&of)
		c.guarded[of] = client
	}
	return client
}

// endpoint is one address that serves a registry's content.
type endpoint struct {
	name   string // as users write it
	base   string // URL up to /v2
	host   string
	mirror bool
}

func (e endpoint) isPlainHTTP() bool { return strings.HasPrefix(e.base, "http:") }

// endpointsOf returns the endpoints of a registry: its mirrors, then the registry itself.
func (c *Client) endpointsOf(registry string) []endpoint {
	conf := c.o.Registries[registry]
	var all []endpoint
	for _, m := range conf.Mirrors {
		e := endpointOf(strings.TrimSuffix(m, "/"), false)
		e.mirror = true
		all = append(all, e)
	}
	host := registry
	if registry == "docker.io" {
		host = "registry-1.docker.io"
	}
	e := endpointOf(host, conf.PlainHTTP)
	e.name = registry
	return append(all, e)
}

func endpointOf(address string, plain bool) endpoint {
	scheme, rest, named := strings.Cut(address, "://")
	if !named {
		scheme, rest = "https", address
		if plain || isLoopback(address) {
			scheme = "http"
		}
	}
	host, _, _ := strings.Cut(rest, "/")
	return endpoint{name: address, base: scheme + "://" + rest + "/v2", host: host}
}

func isLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if a, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return a.IsLoopback()
	}
	return host == "localhost"
}

// Document is a manifest or an index as the registry sent it.
type Document struct {
	Raw       []byte
	MediaType string
}

// Manifest fetches the manifest or index of a reference, by its digest if it has one, else by its tag.
func (c *Client) Manifest(ctx context.Context, ref machine.ImageRef, most int64, types []string) (*Document, error) {
	name := ref.Digest
	if name == "" {
		name = ref.Tag
	}
	var doc *Document
	err := c.eachEndpoint(ctx, ref, func(e endpoint) error {
		return c.retryWhile(ctx, func() (bool, error) {
			q := question{endpoint: e, repository: ref.Repository, path: "/manifests/" + name,
				accept: strings.Join(types, ", "), what: fmt.Sprintf("the image %s", ref)}
			var err error
			doc, err = c.fetchDocument(ctx, q, most)
			return false, err
		})
	})
	return doc, err
}

// eachEndpoint tries the mirrors, then the registry, whose error it returns.
func (c *Client) eachEndpoint(ctx context.Context, ref machine.ImageRef, try func(endpoint) error) error {
	var mirrors []string
	for _, e := range c.endpointsOf(ref.Registry) {
		err := try(e)
		switch f := fault.As(err); {
		case err == nil:
			return nil
		case ctx.Err() != nil, f.Code == fault.CodeImageDisk:
			return err
		case e.mirror:
			mirrors = append(mirrors, fmt.Sprintf("%s (%v)", e.name, err))
		case len(mirrors) > 0:
			with := *f
			with.Text = fmt.Sprintf("%s; its mirrors did not help either: %s", f.Text, strings.Join(mirrors, "; "))
			return &with
		default:
			return err
		}
	}
	return nil
}

// retryWhile retries after a temporary failure: without limit of tries while there is progress (up to reconnects), else
// up to attempts times.
func (c *Client) retryWhile(ctx context.Context, do func() (progress bool, err error)) error {
	for tries, all := 0, 0; ; all++ {
		progress, err := do()
		if err == nil {
			return nil
		}
		if progress {
			tries = 0
		}
		f := fault.As(err)
		passes := f.Kind == fault.Unavailable && f.Code != fault.CodeImageDisk ||
			f.Kind == fault.Timeout && f.Code != fault.CodeRegistrySlow // a retry would trickle too
		if tries++; ctx.Err() != nil || !passes || tries >= attempts || all >= reconnects ||
			f.RetryAfter > longestWait {
			return err
		}
		if waited := c.o.Wait(ctx, max(f.RetryAfter, pause.After(tries-1))); waited != nil {
			return err
		}
	}
}
