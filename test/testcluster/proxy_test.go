package testcluster_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/test/testcluster"
)

// asleep makes a machine at a member's worker that is not started yet, and that answers HTTP at a port.
func asleep(t *testing.T, c *testcluster.Cluster, i, port int) *machine.Machine {
	t.Helper()
	l := onto(fmt.Sprint("web-", i), c.Worker(i))
	l.SkipLaunch = true
	l.Config.Services = []machine.Service{{InternalPort: port,
		Ports: []machine.Port{{Port: new(80), Handlers: []string{"http"}}}}}
	m, err := c.Client(0).Launch(t.Context(), app, l, client.LaunchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// freePort is one that nobody listens at now.
func freePort(t *testing.T) int {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).Port
}

// programs is what machines with a fake runtime would run: a server at their port.
func programs(t *testing.T, port int, h http.Handler) {
	t.Helper()
	ln, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", port))
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	go func() { _ = s.Serve(ln) }() // it ends with the test
	t.Cleanup(func() { s.Close() })
}

// ask asks a member for the app.
func ask(
	ctx context.Context,
	c *testcluster.Cluster,
	i int,
	method, path, body string,
) (*http.Response, string, error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://"+c.HTTP(i)+path, strings.NewReader(body))
	if err != nil {
		return nil, "", err
	}
	r.Host = app + ".localhost"
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	return resp, string(raw), err
}

// TestRequestWakesARemoteMachine: whichever member is asked, the machine is woken where it is, and answers.
func TestRequestWakesARemoteMachine(t *testing.T) {
	t.Parallel()
	c := testcluster.New(t, 3, testcluster.Options{})
	if _, err := c.Client(0).CreateApp(t.Context(), app); err != nil {
		t.Fatal(err)
	}
	port := freePort(t)
	m := asleep(t, c, 1, port)
	c.Meet()
	var mu sync.Mutex
	seen := http.Header{}
	programs(t, port, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		mu.Lock()
		seen = r.Header.Clone()
		mu.Unlock()
		if r.Header.Get("Upgrade") == "echo" {
			echo(w)
			return
		}
		w.Header().Set("Souk-Correction", "2") // nobody believes a machine that it is its owner
		fmt.Fprintf(w, "%s %s %s", r.Method, r.URL.RequestURI(), raw)
	}))
	resp := answered(t, c, 0, http.MethodPost, "/a?b=c", "hello", "POST /a?b=c hello")
	if resp.Header.Get("Souk-Wake") == "" {
		t.Error("it is not said how long the wake took")
	}
	if got, err := c.Client(2).Machine(t.Context(), app, m.ID); err != nil || got.State != machine.Started {
		t.Errorf("%v, %v", got, err)
	}
	mu.Lock()
	if seen.Get("Souk-To") != "" || seen.Get("Fly-Client-Ip") != "127.0.0.1" ||
		seen.Get("X-Forwarded-Proto") != "http" {
		t.Errorf("the machine was told %v", seen)
	}
	mu.Unlock()
	for i := range 3 {
		answered(t, c, i, http.MethodGet, fmt.Sprint("/", i), "", fmt.Sprintf("GET /%d ", i))
	}
	upgraded(t, c)
}

// answered asks through a member until the machine answers: where the host is busy, its member may not be heard for a
// moment.
func answered(t *testing.T, c *testcluster.Cluster, i int, method, path, body, want string) (resp *http.Response) {
	t.Helper()
	waittest.Succeed(t, fmt.Sprintf("%s %s through member %d is answered", method, path, i), func() error {
		var got string
		var err error
		resp, got, err = ask(t.Context(), c, i, method, path, body)
		switch {
		case err != nil:
			return err
		case resp.StatusCode == http.StatusServiceUnavailable:
			return fmt.Errorf("%s: %s", resp.Status, got)
		case resp.StatusCode != http.StatusOK || got != want:
			t.Fatalf("through member %d: %v %q, want %q", i, resp, got, want)
		}
		return nil
	})
	return resp
}

// echo takes a connection over and sends back what comes.
func echo(w http.ResponseWriter) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	_, _ = io.Copy(conn, rw) // until the other end has enough
}

// upgraded talks another protocol over a request that was made at another member than the machine's.
func upgraded(t *testing.T, c *testcluster.Cluster) {
	t.Helper()
	conn, err := net.Dial("tcp", c.HTTP(2))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s.localhost\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n", app)
	br := bufio.NewReader(conn)
	resp, err := http.ReadResponse(br, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v %v", resp, err)
	}
	for i := range 3 {
		fmt.Fprintf(conn, "line %d\n", i)
		if line, err := br.ReadString('\n'); err != nil || line != fmt.Sprintf("line %d\n", i) {
			t.Errorf("%q, %v", line, err)
		}
	}
}

// TestOwnerDeathMovesHeldRequests: 200 requests wait at one member for a machine that another is waking when it
// dies. Each is answered by a machine elsewhere.
func TestOwnerDeathMovesHeldRequests(t *testing.T) {
	t.Parallel()
	c := testcluster.New(t, 3, testcluster.Options{})
	if _, err := c.Client(0).CreateApp(t.Context(), app); err != nil {
		t.Fatal(err)
	}
	port := freePort(t) // where nobody listens yet: the wake goes on until somebody does
	machines := map[int]*machine.Machine{1: asleep(t, c, 1, port), 2: asleep(t, c, 2, port)}
	c.Meet()
	const n = 200
	answers := make(chan string, n)
	for i := range n {
		go func() {
			resp, body, err := ask(t.Context(), c, 0, http.MethodGet, fmt.Sprint("/", i), "")
			switch {
			case err != nil:
				answers <- err.Error()
			case resp.StatusCode == http.StatusOK:
				answers <- "ok"
			case resp.StatusCode == http.StatusServiceUnavailable && resp.Header.Get("Retry-After") != "":
				answers <- "503 " + resp.Header.Get("Souk-Error")
			default:
				answers <- resp.Status + " " + body
			}
		}()
	}
	woken := 0
	c.Until("one of them is being woken", func() bool {
		for i, m := range machines {
			if got, err := c.Client(i).Machine(t.Context(), app, m.ID); err == nil && got.State == machine.Started {
				woken = i
			}
		}
		return woken != 0
	})
	c.Kill(woken)
	programs(t, port, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "fine") }))
	got := map[string]int{}
	for range n {
		select {
		case a := <-answers:
			got[a]++
		case <-time.After(time.Minute):
			t.Fatalf("after a minute %d of %d are answered: %v", len(got), n, got)
		}
	}
	refused := 0
	for what, times := range got {
		if strings.HasPrefix(what, "503 ") {
			refused += times
		} else if what != "ok" {
			t.Errorf("%d times: %s", times, what)
		}
	}
	if got["ok"] == 0 || refused > 0 {
		t.Errorf("answers: %v", got)
	}
}

// TestWakeAtAFullWorkerMovesElsewhere: a machine sleeps at a worker that has become full. The request that would wake it
// has another made like it at another worker, where its service allows that, once for many requests at two members; else
// the refusal names the worker's.
func TestWakeAtAFullWorkerMovesElsewhere(t *testing.T) {
	t.Parallel()
	c := testcluster.New(t, 2, testcluster.Options{})
	if _, err := c.Client(0).CreateApp(t.Context(), app); err != nil {
		t.Fatal(err)
	}
	port := freePort(t)
	l := launch("web")
	l.SkipLaunch = true
	l.Config.Services = []machine.Service{{InternalPort: port, Hosts: []string{"web"},
		Ports: []machine.Port{{Port: new(80), Handlers: []string{"http"}}}}}
	m, err := c.Client(0).Launch(t.Context(), app, l, client.LaunchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	full := 0
	if m.Worker != c.Worker(0) {
		full = 1
	}
	for i := range 16 {
		if _, err := c.Client(full).Launch(t.Context(), app, onto(fmt.Sprint("other-", i), m.Worker),
			client.LaunchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	programs(t, port, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "fine") }))
	c.Meet()
	get := func(i int) (string, error) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+c.HTTP(i), nil)
		if err != nil {
			return "", err
		}
		r.Host = "web.localhost"
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		raw, err := io.ReadAll(resp.Body)
		return resp.Status + " " + string(raw), err
	}
	if got, err := get(1 - full); err != nil || !strings.HasPrefix(got, "503") || !strings.Contains(got, "memory") {
		t.Errorf("%q, %v: not refused for want of memory", got, err)
	}

	l.Config.Services[0].CreateUpTo = new(2)
	if _, err := c.Client(0).Update(t.Context(), app, m.ID, l, ""); err != nil {
		t.Fatal(err)
	}
	c.Meet()
	waittest.Succeed(t, "the members know what the service allows", func() error {
		for i := range 2 {
			if got, err := get(i); err != nil || got != "200 OK fine" {
				return fmt.Errorf("member %d: %q, %w", i, got, err)
			}
		}
		return nil
	})
	list, err := c.Client(0).Machines(t.Context(), app, client.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, x := range list {
		if strings.HasPrefix(x.Name, "web") {
			names = append(names, fmt.Sprintf("%s %s %v", x.Name, x.State, x.Worker == m.Worker))
		}
	}
	slices.Sort(names)
	if got := strings.Join(names, ", "); got != "web created true, web-2 started false" {
		t.Errorf("there are %s", got)
	}
}

// TestNameBelongsToItsFirstApp: every member refuses a name of an app to any other app, by plan, create and update;
// the name is free once its app no longer uses it.
func TestNameBelongsToItsFirstApp(t *testing.T) {
	t.Parallel()
	c := testcluster.New(t, 2, testcluster.Options{})
	for _, name := range []string{"zeta", "alpha"} {
		if _, err := c.Client(0).CreateApp(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	with := func(host string, port int) *machine.Launch {
		l := launch("")
		l.SkipLaunch = true
		web := machine.Port{Port: new(80), Handlers: []string{"http"}}
		l.Config.Services = []machine.Service{
			{InternalPort: 8080, Hosts: []string{host}, Ports: []machine.Port{web}},
			{InternalPort: 5432, Ports: []machine.Port{{Port: &port}}},
		}
		return l
	}
	theirs, err := c.Client(0).Launch(t.Context(), "zeta", with("www.shop.example", 5432), client.LaunchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.Until("the other member knows it", func() bool {
		_, err := c.Client(1).Machine(t.Context(), "zeta", theirs.ID)
		_, appErr := c.Client(1).App(t.Context(), "alpha")
		return err == nil && appErr == nil
	})
	mine, err := c.Client(1).Launch(t.Context(), "alpha", with("alpha.example", 5433), client.LaunchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for code, l := range map[fault.Code]*machine.Launch{"host_taken": with("www.shop.example", 5433),
		"port_taken": with("alpha.example", 5432)} {
		for i := range 2 {
			_, err := c.Client(i).Launch(t.Context(), "alpha", l, client.LaunchOptions{})
			_, planned := c.Client(i).Plan(t.Context(), "alpha", l)
			_, updated := c.Client(i).Update(t.Context(), "alpha", mine.ID, l, "")
			for verb, err := range map[string]error{"create": err, "plan": planned, "update": updated} {
				if fault.CodeOf(err) != code || !fault.Is(err, fault.Conflict) ||
					!strings.Contains(err.Error(), "app zeta") {
					t.Errorf("%s at member %d: %v, want %s", verb, i, err, code)
				}
			}
		}
	}
	if _, err := c.Client(0).Destroy(t.Context(), "zeta", theirs.ID, "", true); err != nil {
		t.Fatal(err)
	}
	waittest.Succeed(t, "the name is free", func() error {
		_, err := c.Client(1).Launch(t.Context(), "alpha", with("www.shop.example", 5432), client.LaunchOptions{})
		return err
	})
}
