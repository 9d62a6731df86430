package acme_test

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"path"
	"strings"
	"sync"
	"testing"

	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/member"
	"github.com/soukhq/souk/node"
	"github.com/soukhq/souk/proxy/certs"
	"github.com/soukhq/souk/test/testcluster"
)

const shop = "shop.example.com"

// town is a cluster whose members' proxies have certificates of one authority, for an app that is asleep.
type town struct {
	*testcluster.Cluster
	t       *testing.T
	a       *authority
	machine *machine.Machine
	mu      sync.Mutex
	https   map[int]string // addresses, by member
	// challenged is called when the authority looks; it returns the member that answers
	challenged func(path string) (i int)
}

func newTown(t *testing.T, n int) *town {
	t.Helper()
	door := listen(t)
	x := &town{t: t, https: map[int]string{}, a: newAuthority(t, door, listen(t), 0)}
	serve(t, door, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := x.look(x.challenged(r.URL.Path), r.URL.Path)
		_, _ = io.WriteString(w, body) // the authority asks again
	}))
	x.Cluster = testcluster.New(t, n, testcluster.Options{Proxy: func(i int, p *node.Proxy) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Error(err)
			return
		}
		x.mu.Lock()
		x.https[i] = ln.Addr().String()
		x.mu.Unlock()
		p.HTTPS, p.Certs = ln, &node.Certs{ACME: x.a.options(certs.ACME{HTTP: true, TLS: true})}
	}})
	if _, err := x.Client(0).CreateApp(t.Context(), "shop"); err != nil {
		t.Fatal(err)
	}
	l := &machine.Launch{SkipLaunch: true, Config: &machine.Config{Image: "souk/host",
		Init:  machine.Init{Exec: []string{"sleep", "1000000"}},
		Guest: &machine.Guest{CPUKind: "shared", CPUs: 1, MemoryMB: 256},
		Services: []machine.Service{{InternalPort: 8080, Hosts: []string{shop},
			Ports: []machine.Port{{Port: new(443), Handlers: []string{"tls", "http"}}}}}}}
	m, err := x.Client(0).Launch(t.Context(), "shop", l, client.LaunchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	x.machine = m
	x.Meet()
	x.Until("all know the app", func() bool {
		for i := range n {
			if _, err := x.Client(i).Machine(t.Context(), "shop", m.ID); err != nil {
				return false
			}
		}
		return true
	})
	return x
}

// look asks a member for a path of the name's.
func (x *town) look(i int, path string) string {
	r, err := http.NewRequest(http.MethodGet, "http://"+x.HTTP(i)+path, nil)
	if err != nil {
		x.t.Error(err)
		return ""
	}
	r.Host = shop
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil && x.t.Context().Err() == nil {
		x.t.Error(err)
	}
	if err != nil { // such as that the test has ended, and its members, while the authority still asks
		return ""
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK { // such as of a member that was killed
		return resp.Status
	}
	return string(body)
}

// shown returns the serial number of what a member shows for the name.
func (x *town) shown(i int) (string, error) {
	x.mu.Lock()
	addr := x.https[i]
	x.mu.Unlock()
	c, err := tls.Dial("tcp", addr, &tls.Config{ServerName: shop, RootCAs: x.a.roots})
	if err != nil {
		return "", err
	}
	defer c.Close()
	return c.ConnectionState().PeerCertificates[0].SerialNumber.String(), nil
}

// first returns the member that orders for the name.
func (x *town) first(n int) int {
	for i := range n {
		if before, after := member.ProxiesOf(x.Member(i)).Ranked(shop); len(before) == 0 && len(after) == n-1 {
			return i
		}
	}
	x.t.Fatal("no member goes first")
	return 0
}

// allShow returns the one certificate that some members show.
func (x *town) allShow(members ...int) string {
	serials := map[string]bool{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, i := range members {
		all.Go(func() {
			var serial string
			waittest.Succeed(x.t, "it is shown", func() (err error) { serial, err = x.shown(i); return err })
			mu.Lock()
			defer mu.Unlock()
			serials[serial] = true
		})
	}
	all.Wait()
	if len(serials) != 1 {
		x.t.Errorf("members %v show %d certificates", members, len(serials))
	}
	for s := range serials {
		return s
	}
	return ""
}

// TestMembersShareOneOrder: three members that are asked at once show one certificate, of one order. Each answers the
// authority, which wakes no machine; and one that is new, or has lost its memory, is given the certificate.
func TestMembersShareOneOrder(t *testing.T) {
	t.Parallel()
	x := newTown(t, 3)
	x.challenged = func(at string) int {
		proof := x.look(0, at)
		if !strings.HasPrefix(proof, path.Base(at)+".") {
			t.Errorf("member 0 answers %q", proof)
		}
		for i := 1; i < 3; i++ {
			if other := x.look(i, at); other != proof {
				t.Errorf("member %d answers %q, not %q", i, other, proof)
			}
		}
		return 0
	}
	serial := x.allShow(0, 1, 2)
	if n := x.a.orders.Load(); n != 1 {
		t.Errorf("%d orders", n)
	}
	if m, err := x.Client(0).Machine(t.Context(), "shop", x.machine.ID); err != nil || m.State == machine.Started {
		t.Errorf("the app was woken: %v, %v", m, err)
	}
	first := x.first(3)
	for i := range 3 {
		x.Kill(i)
		x.Restart(i)
		x.Meet()
		if again := x.allShow(i); again != serial {
			t.Errorf("member %d, the first is %d, has another certificate after a restart", i, first)
		}
	}
	if n := x.a.orders.Load(); n != 1 {
		t.Errorf("%d orders", n)
	}
}

// TestKilledOrderIsFinishedOnce: an order whose member is killed is finished once, by another.
func TestKilledOrderIsFinishedOnce(t *testing.T) {
	t.Parallel()
	x := newTown(t, 3)
	first := x.first(3)
	rest := []int{(first + 1) % 3, (first + 2) % 3}
	reached, killed := make(chan struct{}), make(chan struct{})
	var once sync.Once
	x.challenged = func(string) int {
		once.Do(func() { close(reached) })
		<-killed
		return rest[0]
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		x.allShow(rest...)
	}()
	<-reached
	x.Kill(first)
	close(killed)
	<-done
	if n := x.a.orders.Load(); n != 2 {
		t.Errorf("%d orders, of the one that was killed and of another", n)
	}
	x.Restart(first)
	x.Meet()
	x.allShow(0, 1, 2)
	if n := x.a.orders.Load(); n != 2 {
		t.Errorf("%d orders once it is back", n)
	}
}
