package request

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"
)

// Hidden commands of this program: a server, and Go's own reverse proxy, tuned.
const (
	serveWord = "bench-answer"
	proxyWord = "bench-reverse-proxy"
)

// slowVar is the variable that says how long the server waits before it listens.
const slowVar = "SLOW"

// Main runs one of these hidden commands. It reports whether argv is one.
func Main(argv []string) (mine bool, err error) {
	switch {
	case len(argv) == 1 && argv[0] == serveWord:
		if slow, err := time.ParseDuration(os.Getenv(slowVar)); err == nil {
			time.Sleep(slow) // like a program with a slow start
		}
		return true, serveBackend(":"+os.Getenv("PORT"), http.HandlerFunc(answerRequest))
	case len(argv) == 3 && argv[0] == proxyWord:
		return true, serveBackend(argv[1], reverseProxy(argv[2]))
	}
	return false, nil
}

func serveBackend(addr string, h http.Handler) error {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	return http.Serve(ln, h) //nolint:gosec // it has no timeouts, as it serves who measures
}

// body is the answer to each request: a kilobyte.
var body = []byte(strings.Repeat("souk answers. ", 74)[:1024]) //nolint:gochecknoglobals // a constant

func answerRequest(w http.ResponseWriter, _ *http.Request) {
	w.Header()["Content-Length"] = []string{"1024"}
	_, _ = w.Write(body) // the client may be gone
}

// reverseProxy is httputil.ReverseProxy with what makes it fast: a pool of buffers, and as many kept connections as are
// in use.
func reverseProxy(to string) http.Handler {
	target, err := url.Parse("http://" + to)
	if err != nil {
		return http.NotFoundHandler()
	}
	return &httputil.ReverseProxy{
		Rewrite:    func(r *httputil.ProxyRequest) { r.SetURL(target); r.SetXForwarded() },
		BufferPool: &buffers{},
		Transport: &http.Transport{MaxIdleConns: 4096, MaxIdleConnsPerHost: 4096, IdleConnTimeout: time.Minute,
			DisableCompression: true, WriteBufferSize: 4 << 10, ReadBufferSize: 4 << 10},
	}
}

type buffers struct{ sync.Pool }

// Get returns a buffer.
func (b *buffers) Get() []byte {
	if x, ok := b.Pool.Get().(*[]byte); ok {
		return *x
	}
	return make([]byte, 32<<10)
}

// Put returns a buffer to the pool.
func (b *buffers) Put(x []byte) { b.Pool.Put(&x) }

// askOnce sends one request over a new connection, and returns its duration.
func askOnce(ctx context.Context, addr, host string) (time.Duration, http.Header, error) {
	begin := time.Now()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/", nil)
	if err != nil {
		return 0, nil, err
	}
	r.Host, r.Close = host, true
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || n != int64(len(body)) {
		return 0, nil, errors.Join(err, errors.New("it was answered "+resp.Status+", "+resp.Header.Get("Souk-Error")))
	}
	return time.Since(begin), resp.Header, nil
}
