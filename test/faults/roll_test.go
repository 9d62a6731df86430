package faults_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/test/faults"
)

// envServe says that this process is a machine's program, and at which port it answers.
const envServe = "SOUK_FAULTS_SERVE"

// envBad says what is wrong with this process: it ends after a time (crash, "crash:8s"), answers that it is not ready (mute),
// that it is not for a time after its start ("slow:4s"), answers so to its check every other such time ("flap:2s"), or answers
// too late (late).
const envBad = "SOUK_FAULTS_BAD"

// serve answers at a port until a signal ends it, at once. The query may say how long an answer takes. The answer's header
// names the version.
func serve(port string) int {
	bad, after, _ := strings.Cut(os.Getenv(envBad), ":")
	lasts, _ := time.ParseDuration(after)
	began := time.Now()
	if bad == "crash" && lasts == 0 {
		return 3
	}
	if bad == "crash" {
		time.AfterFunc(lasts, func() { os.Exit(3) })
	}
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		since := time.Since(began)
		flaps := bad == "flap" && r.URL.Path == "/ready" && since/lasts%2 == 1
		if bad == "mute" || bad == "slow" && since < lasts || flaps {
			http.Error(w, "bad", http.StatusServiceUnavailable)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body) // what is cut short is answered all the same
		takes, err := time.ParseDuration(r.URL.Query().Get("takes"))
		if bad == "late" {
			takes = time.Minute
		}
		if err == nil || takes > 0 {
			waittest.Pass(takes)
		}
		w.Header().Set("Version", os.Getenv("VERSION"))
		fmt.Fprint(w, "fine")
	})
	fmt.Fprintln(os.Stderr, http.ListenAndServe(":"+port, h)) //nolint:gosec // of a test
	return 1
}

// program returns a copy of this program that machines' users may execute.
func program(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	exe := filepath.Join(dir, "serve")
	raw, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(exe, raw, 0o755) //nolint:gosec // a program
	}
	if err != nil {
		t.Fatal(err)
	}
	return exe
}

// TestRollingRestartFailsNoRequest (26): three machines whose program ends at once at SIGTERM are rolled one after the other in each
// way there is, under load through two members, 50 ms apart. Every request is answered, those that take seconds too.
func TestRollingRestartFailsNoRequest(t *testing.T) {
	apart(t, func() {
		ms, _ := far(t)
		exe := program(t)
		launches, ids := []*machine.Launch{}, []string{}
		for i, m := range ms {
			l := shopOf(m, fmt.Sprint("web-", i), false)
			l.Config.Init.Exec, l.Config.Env = []string{exe}, map[string]string{envServe: fmt.Sprint(shopPort)}
			l.Config.StopConfig = &machine.StopConfig{Timeout: &machine.Duration{Duration: 30 * time.Second}}
			x, err := m.Client().Launch(t.Context(), shop, l, client.LaunchOptions{})
			if err != nil || x.Worker != m.Worker() {
				t.Fatalf("%+v, %v", x, err)
			}
			launches, ids = append(launches, l), append(ids, x.ID)
		}
		var load clients
		load.begin(t, ms[0])
		load.begin(t, ms[1])
		defer load.wait()
		roll := func(what string, one func(c *client.Client, i int) error) {
			for i, id := range ids {
				load.answeredMore(t, 50)
				c := ms[(i+1)%len(ms)].Client()
				if err := one(c, i); err != nil {
					t.Fatalf("%s %d: %v", what, i, err)
				}
				waittest.Until(t, "it is up again", func() bool {
					m, err := c.Machine(t.Context(), shop, id)
					return err == nil && m.State == machine.Started
				})
			}
			t.Logf("%s: %d requests are answered", what, load.answered.Load())
		}
		roll("restart", func(c *client.Client, i int) error {
			_, err := c.Restart(t.Context(), shop, ids[i], "", false, client.StopOptions{})
			return err
		})
		roll("stop and start", func(c *client.Client, i int) error {
			if _, err := c.Stop(t.Context(), shop, ids[i], "", client.StopOptions{}); err != nil {
				return err
			}
			load.answeredMore(t, 50)
			_, err := c.Start(t.Context(), shop, ids[i], "")
			return err
		})
		roll("update", func(c *client.Client, i int) error {
			launches[i].Config.Env["VERSION"] = "2"
			_, err := c.Update(t.Context(), shop, ids[i], launches[i], "")
			return err
		})
		load.wait()
	})
}

// clients ask proxies, each over a connection that it keeps, until they are told to stop.
type clients struct {
	answered atomic.Int64
	all      sync.WaitGroup
	end      []context.CancelFunc
}

// begin has clients ask at a member: eight that ask again and again, and one whose requests take long.
func (c *clients) begin(t *testing.T, m *faults.Member) {
	ctx, end := context.WithCancel(t.Context())
	c.end = append(c.end, end)
	for i := range 9 {
		path := "/"
		if i == 8 {
			path = "/?takes=1500ms"
		}
		c.all.Go(func() {
			for ctx.Err() == nil {
				if err := c.ask(ctx, m, path); err != nil {
					t.Errorf("%s at %s: %v", path, m.Worker(), err)
					return
				}
			}
		})
	}
}

func (c *clients) wait() {
	for _, end := range c.end {
		end()
	}
	c.all.Wait()
}

// answeredMore waits until so many more requests are answered.
func (c *clients) answeredMore(t *testing.T, n int64) {
	t.Helper()
	before := c.answered.Load()
	waittest.Until(t, "requests are answered", func() bool { return c.answered.Load() >= before+n || t.Failed() })
}

// ask asks over one connection until ctx ends. POST is tried again by nobody: each must be answered.
func (c *clients) ask(ctx context.Context, m *faults.Member, path string) error {
	conn, err := m.Dial(ctx, "127.0.0.1:4284")
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	defer conn.Close()
	br := bufio.NewReader(conn)
	for ctx.Err() == nil {
		if err := answeredOnce(conn, br, path); err != nil {
			return err
		}
		c.answered.Add(1)
	}
	return nil
}

func answeredOnce(conn net.Conn, br *bufio.Reader, path string) error {
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: %s.localhost\r\nContent-Length: 4\r\n\r\nbody", path,
		shop); err != nil {
		return err
	}
	return fine(br)
}

// fine reads an answer.
func fine(br *bufio.Reader) error {
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || string(body) != "fine" {
		return fmt.Errorf("%s (%s): %s, %w", resp.Status, resp.Header.Get("Souk-Error"), body, err)
	}
	return nil
}
