package remote_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/needs"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime/image/remote"
)

const envApart = "SOUK_TEST_APART"

// The addresses of the attacks. All are this host's in the network namespace of the test, but only own and
// awsIPv6 are addresses that it has; the others stand for other hosts.
const (
	own, private, neighbour  = "10.66.0.1", "10.67.0.1", "10.67.0.2"
	public, elsewhere, local = "203.0.113.7", "198.51.100.7", "127.0.0.1"
	linkLocal, awsIPv6       = "169.254.169.254", "fd00:ec2::254"
	azure, alibaba, mapped   = "168.63.129.16", "100.100.100.200", "::ffff:127.0.0.1"
)

// apart runs a test anew in a network namespace of its own with these addresses, and in a mount namespace where names are
// asked of a server at 127.0.0.1. It says whether this is there.
func apart(t *testing.T) bool {
	t.Helper()
	if os.Getenv(envApart) != "" {
		return true
	}
	if os.Geteuid() != 0 {
		needs.Skip(t, errors.New("this needs root, for hosts of its own"))
	}
	needs.Programs(t, "unshare", "ip")
	resolv := t.TempDir() + "/resolv.conf"
	if err := os.WriteFile(resolv, []byte("nameserver 127.0.0.1\noptions timeout:1 attempts:5\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "unshare", "-n", "-m", "sh", "-e", "-c", `
		mount --bind `+resolv+` /etc/resolv.conf
		ip link set lo up
		ip addr add `+own+`/32 dev lo
		for net in 10.67.0.0/16 203.0.113.0/24 198.51.100.0/24 169.254.0.0/16 168.63.129.16/32 100.100.100.200/32; do
			ip route add local $net dev lo; done
		ip addr add `+awsIPv6+`/128 dev lo nodad
		exec "$@"`, "sh", os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.count=1")
	cmd.Env = append(os.Environ(), envApart+"=1", "HTTP_PROXY=", "HTTPS_PROXY=", "http_proxy=", "https_proxy=")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Fatalf("%v\n%s", err, out)
	}
	return false
}

// serve serves at an address until the test ends, and returns HOST:PORT.
func serve(t *testing.T, at string, h http.HandlerFunc) string {
	t.Helper()
	ln, err := net.Listen("tcp", net.JoinHostPort(at, "0"))
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	go func() { _ = s.Serve(ln) }() // it ends with the test
	t.Cleanup(func() { _ = s.Close() })
	return ln.Addr().String()
}

// victim is what a registry names: it counts who asks, and gives all that could be wanted.
func victim(t *testing.T, at string) (host string, asked *atomic.Int32) {
	asked = new(atomic.Int32)
	return serve(t, at, func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		_, _ = io.WriteString(w, `{"token":"t"}`)
	}), asked
}

var anything = v1.Hash{Algorithm: "sha256", Hex: strings.Repeat("0", 64)} //nolint:gochecknoglobals // a constant

// ways are the ways by which a registry sends souk to a URL: its answer to an unknown, and what of it is asked for.
func ways(url string) map[string]http.HandlerFunc {
	redirects := func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, url+"/stolen", http.StatusFound) }
	realm := func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("WWW-Authenticate", `Bearer realm="`+url+`/token",service="x"`)
		w.WriteHeader(http.StatusUnauthorized)
	}
	return map[string]http.HandlerFunc{
		"the realm of its tokens":     realm,
		"a redirect":                  redirects,
		"the redirect of a blob":      redirects,
		"the realm of a blob's token": realm,
		"a redirect to itself first": func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/again" {
				http.Redirect(w, r, "/again", http.StatusTemporaryRedirect)
				return
			}
			redirects(w, r)
		},
	}
}

// ask asks a registry for a manifest or a blob, and returns why nothing came.
func ask(t *testing.T, c *remote.Client, registry, way string) error {
	t.Helper()
	ref := machine.ImageRef{Registry: registry, Repository: "team/app", Tag: "1"}
	if strings.Contains(way, "blob") {
		return c.Fetch(t.Context(), ref, anything, 100, new(sink))
	}
	_, err := c.Manifest(t.Context(), ref, 1<<20, []string{"x"})
	return err
}

// sink takes a blob and believes it.
type sink struct{ n int64 }

func (s *sink) Write(b []byte) (int, error) { s.n += int64(len(b)); return len(b), nil }
func (s *sink) Offset() int64               { return s.n }
func (*sink) Resumed() bool                 { return false }
func (s *sink) Reset() error                { s.n = 0; return nil }
func (*sink) Commit() error                 { return nil }

// client makes one for registries without TLS, which goes on at once.
func client(t *testing.T, change func(*remote.Options), registries ...string) *remote.Client {
	t.Helper()
	o := remote.Options{Registries: map[string]remote.Registry{},
		Wait: func(ctx context.Context, _ time.Duration) error { return ctx.Err() }}
	for _, r := range registries {
		o.Registries[r] = remote.Registry{PlainHTTP: true}
	}
	if change != nil {
		change(&o)
	}
	c := remote.New(o)
	t.Cleanup(c.Close)
	return c
}

// TestRegistryCannotRedirectToPrivateAddresses: what a registry names is asked only where it is as public as the registry, or where
// the registry itself is; a metadata service never.
func TestRegistryCannotRedirectToPrivateAddresses(t *testing.T) {
	if !apart(t) {
		return
	}
	for _, c := range []struct {
		registry, names string
		may             bool
	}{
		{public, local, false}, {public, mapped, false}, {public, private, false}, {public, own, false},
		{public, linkLocal, false}, {public, awsIPv6, false}, {public, azure, false}, {public, alibaba, false},
		{public, public, true}, {public, elsewhere, true},
		{private, local, false}, {private, own, false}, {private, linkLocal, false}, {private, awsIPv6, false},
		{private, alibaba, false}, {private, azure, false},
		{private, private, true}, {private, neighbour, true}, {private, public, true},
		{own, local, false}, {own, linkLocal, false}, {own, own, true}, {own, neighbour, true},
		{local, linkLocal, false}, {local, awsIPv6, false}, {local, local, true}, {local, own, true},
		{linkLocal, local, false}, {linkLocal, private, false}, {linkLocal, linkLocal, true}, {linkLocal, public, true},
	} {
		at := c.names
		if at == mapped {
			at = local
		}
		host, asked := victim(t, at)
		if c.names == mapped {
			_, port, _ := net.SplitHostPort(host)
			host = net.JoinHostPort(mapped, port)
		}
		for way, handler := range ways("http://" + host) {
			registry := serve(t, c.registry, handler)
			mirrored := func(o *remote.Options) {
				o.Registries["mirrored.test"] = remote.Registry{Mirrors: []string{"http://" + registry}}
			}
			for _, of := range []string{"", " of a mirror"} {
				err := ask(t, client(t, nil, registry), registry, way)
				denied := fault.CodeOf(err) == "registry_reach"
				if of != "" { // the error is that of the registry, which is nowhere, and says the mirror's
					asked.Store(0)
					err = ask(t, client(t, mirrored), "mirrored.test", way)
					denied = strings.Contains(fmt.Sprint(err), "a more private address than its own")
				}
				if n := asked.Swap(0); c.may == (n == 0) || c.may == denied {
					t.Errorf("%s%s at %s names %s: it was asked %d times, and the error is %v", way, of, c.registry,
						c.names, n, err)
				}
			}
		}
	}
}

// zone answers for the names of a test, each with the next of its addresses, the last for ever.
type zone struct {
	mu   sync.Mutex
	told map[string][]string
}

func (z *zone) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	z.mu.Lock()
	defer z.mu.Unlock()
	m := new(dns.Msg)
	m.SetReply(q)
	name := strings.TrimSuffix(q.Question[0].Name, ".")
	if all := z.told[name]; len(all) > 0 && q.Question[0].Qtype == dns.TypeA {
		head := dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET}
		m.Answer = []dns.RR{&dns.A{Hdr: head, A: net.IP(netip.MustParseAddr(all[0]).AsSlice())}}
		if len(all) > 1 {
			z.told[name] = all[1:]
		}
	}
	_ = w.WriteMsg(m) // who does not hear it asks again
}

// TestRedirectedNamesAreCheckedByTheirAddress: what a registry names is judged as it is connected to. So a name that resolves to
// this host is of no use, nor is the registry's own name once that resolves to another address than at first.
func TestRedirectedNamesAreCheckedByTheirAddress(t *testing.T) {
	if !apart(t) {
		return
	}
	z := &zone{told: map[string][]string{"near.test": {local}, "meta.test": {linkLocal}, "far.test": {elsewhere}}}
	pc, err := net.ListenPacket("udp", "127.0.0.1:53")
	if err != nil {
		t.Fatal(err)
	}
	s := &dns.Server{PacketConn: pc, Handler: z}
	go func() { _ = s.ActivateAndServe() }() // it ends with the test
	t.Cleanup(func() { _ = pc.Close() })
	for name, c := range map[string]struct {
		at  string
		may bool
	}{"near.test": {local, false}, "meta.test": {linkLocal, false}, "far.test": {elsewhere, true}} {
		host, asked := victim(t, c.at)
		_, port, _ := net.SplitHostPort(host)
		for way, handler := range ways("http://" + net.JoinHostPort(name, port)) {
			registry := serve(t, public, handler)
			err := ask(t, client(t, nil, registry), registry, way)
			if n := asked.Swap(0); c.may == (n == 0) || c.may == (fault.CodeOf(err) == "registry_reach") {
				t.Errorf("%s to %s: it was asked %d times, and the error is %v", way, name, n, err)
			}
		}
	}
	// The registry's own name is loopback when it is asked for the second time, at its own port.
	for way, handler := range map[string]func(self string) http.HandlerFunc{
		"realm": func(self string) http.HandlerFunc { return ways("http://" + self)["the realm of its tokens"] },
		"redirect": func(string) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/stolen", http.StatusFound) }
		},
	} {
		asked := new(atomic.Int32)
		near := serve(t, local, func(http.ResponseWriter, *http.Request) { asked.Add(1) })
		_, port, _ := net.SplitHostPort(near)
		ln, err := net.Listen("tcp", net.JoinHostPort(public, port))
		if err != nil {
			t.Fatal(err)
		}
		name := way + "-rebinds.test"
		evil := &http.Server{Handler: closing(handler(name + ":" + port)), ReadHeaderTimeout: time.Minute}
		go func() { _ = evil.Serve(ln) }() // it ends with the test
		t.Cleanup(func() { _ = evil.Close() })
		z.mu.Lock()
		z.told[name] = []string{public, local}
		z.mu.Unlock()
		err = ask(t, client(t, nil, name+":"+port), name+":"+port, way)
		if fault.CodeOf(err) != "registry_reach" || asked.Load() != 0 {
			t.Errorf("%s: its name has another address, asked %d times: %v", way, asked.Load(), err)
		}
	}
	// A registry whose name is a metadata service's is none.
	host, asked := victim(t, linkLocal)
	_, port, _ := net.SplitHostPort(host)
	err = ask(t, client(t, nil, "meta.test:"+port), "meta.test:"+port, "")
	if fault.CodeOf(err) != "registry_reach" || asked.Load() != 0 {
		t.Errorf("it was asked %d times: %v", asked.Load(), err)
	}
}

// closing has each request on a connection of its own.
func closing(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		h(w, r)
	}
}
