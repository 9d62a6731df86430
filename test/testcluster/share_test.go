package testcluster_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/test/testcluster"
)

// served is a machine at a member's worker that is started, and the name of the program that is to listen at its port.
func served(t *testing.T, c *testcluster.Cluster, i int) (port int, says http.Handler) {
	t.Helper()
	port = freePort(t)
	l := onto(fmt.Sprint("web-", i), c.Worker(i))
	l.Config.Services = []machine.Service{{InternalPort: port,
		Ports: []machine.Port{{Port: new(80), Handlers: []string{"http"}}}}}
	if _, err := c.Client(0).Launch(t.Context(), app, l, client.LaunchOptions{}); err != nil {
		t.Fatal(err)
	}
	return port, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, i) })
}

// TestNewMachineGetsItsLoadShare: machines come beside one that serves, under load at each of three members, and are
// asked before their ports accept. No request fails meanwhile, and once all listen each has its share at each member.
func TestNewMachineGetsItsLoadShare(t *testing.T) {
	t.Parallel()
	c := testcluster.New(t, 3, testcluster.Options{})
	if _, err := c.Client(0).CreateApp(t.Context(), app); err != nil {
		t.Fatal(err)
	}
	port, says := served(t, c, 0)
	programs(t, port, says)
	met(t, c, 1)
	for i := range 3 {
		answered(t, c, i, http.MethodGet, "/", "", "0")
	}
	stop := underLoad(t, c)
	for i := 1; i < 3; i++ {
		port, says := served(t, c, i)
		met(t, c, 1+i)
		waittest.Pass(200 * time.Millisecond) // some requests are sent there and come back
		programs(t, port, says)
	}
	waittest.Pass(time.Second)
	for i := range 3 {
		got := map[string]int{}
		for range 300 {
			_, body, err := ask(t.Context(), c, i, http.MethodGet, "/", "")
			if err != nil {
				t.Fatal(err)
			}
			got[body]++
		}
		for k := range 3 {
			if n := got[fmt.Sprint(k)]; n < 75 || n > 126 {
				t.Errorf("through member %d machine %d gets %d of 300 requests: %v", i, k, n, got)
			}
		}
	}
	for _, failed := range stop() {
		t.Error(failed)
	}
}

// met waits until each member knows of so many machines, also of one that is not ready yet.
func met(t *testing.T, c *testcluster.Cluster, machines int) {
	t.Helper()
	c.Until(fmt.Sprintf("each member has met %d machines", machines), func() bool {
		for i := range 3 {
			list, err := c.Client(i).Services(t.Context(), app)
			if err != nil || len(list.Services) != machines { // each has a port of its own
				return false
			}
		}
		return true
	})
}

// underLoad asks each member 100 times a second, until the function is called that it returns, which lists what failed.
func underLoad(t *testing.T, c *testcluster.Cluster) (stop func() []string) {
	t.Helper()
	end, all := make(chan struct{}), sync.WaitGroup{}
	var mu sync.Mutex
	var failed []string
	for i := range 3 {
		url := "http://" + c.HTTP(i) + "/"
		all.Go(func() {
			for every := time.Tick(10 * time.Millisecond); ; {
				select {
				case <-end:
					return
				case <-every:
				}
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
				if err != nil {
					panic(err)
				}
				r.Host = app + ".localhost"
				resp, err := http.DefaultClient.Do(r)
				if err == nil {
					raw, _ := io.ReadAll(resp.Body)
					resp.Body.Close()
					if resp.StatusCode == http.StatusOK {
						continue
					}
					err = fmt.Errorf("%s %s", resp.Status, strings.TrimSpace(string(raw)))
				}
				mu.Lock()
				failed = append(failed, fmt.Sprintf("through member %d: %v", i, err))
				mu.Unlock()
			}
		})
	}
	return func() []string { close(end); all.Wait(); return failed }
}
