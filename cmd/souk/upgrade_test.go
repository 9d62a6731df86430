package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/soukhq/souk/bench/live"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/machine"
)

// upgraded is a souk dev that is upgraded again and again.
type upgraded struct {
	t    *testing.T
	exe  string // its own copy
	web  string // one for machines, which their users may execute
	http string
	cmd  *exec.Cmd
	errs syncBuffer
	said *bufio.Reader
	api  struct {
		Addr  string `json:"addr"`
		Token string `json:"token_file"`
		PID   int    `json:"pid"`
	}
}

func startUpgraded(t *testing.T) *upgraded {
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} { // machines' users pass through them
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	u := &upgraded{t: t, exe: filepath.Join(dir, "souk"), web: filepath.Join(dir, "web", "souk"), http: freeAddr(t)}
	if err := os.Mkdir(filepath.Dir(u.web), 0o755); err != nil { //nolint:gosec // as above
		t.Fatal(err)
	}
	u.install(u.web)
	u.install(u.exe)
	u.cmd = exec.Command(u.exe, "dev", "--json", "--dir", filepath.Join(dir, "state"), "--addr", "127.0.0.1:0",
		"--http", u.http)
	u.cmd.Stderr = &u.errs
	out, err := u.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	u.said = bufio.NewReader(out)
	if err := u.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = u.cmd.Process.Kill() // it may have ended by itself
		_ = u.cmd.Wait()
		live.EndReapers(dir)
	})
	u.ready()
	return u
}

// install writes the program to a path, in the place of what is there, as an upgrade does.
func (u *upgraded) install(exe string) {
	u.t.Helper()
	raw, err := os.ReadFile(soukExe(u.t))
	if err == nil {
		err = os.WriteFile(exe+".new", raw, 0o755) //nolint:gosec // a program
	}
	if err == nil {
		err = os.Rename(exe+".new", exe)
	}
	if err != nil {
		u.t.Fatal(err)
	}
}

// ready waits until the program says that it is ready.
func (u *upgraded) ready() {
	u.t.Helper()
	line, err := u.said.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &u.api)
	}
	if err != nil {
		u.t.Fatalf("souk did not become ready: %v\n%s", err, u.errs.String())
	}
}

// upgrade asks for the program's successor.
func (u *upgraded) upgrade() {
	u.t.Helper()
	if err := u.cmd.Process.Signal(syscall.SIGUSR2); err != nil {
		u.t.Fatal(err)
	}
}

// again asks for successors without a pause, until one is there: the signal kills no process whose place is being taken.
func (u *upgraded) again() {
	u.t.Helper()
	ready := make(chan error, 1)
	go func() { _, err := u.said.ReadBytes('\n'); ready <- err }()
	for asked := time.NewTicker(2 * time.Millisecond); ; {
		u.upgrade()
		select {
		case err := <-ready:
			if asked.Stop(); err != nil {
				u.t.Fatalf("it ended: %v\n%s", err, u.errs.String())
			}
			return
		case <-asked.C:
		}
	}
}

func (u *upgraded) client() *client.Client {
	token, err := os.ReadFile(u.api.Token)
	if err != nil {
		u.t.Fatal(err)
	}
	return client.New(u.api.Addr, strings.TrimSpace(string(token)))
}

// serve runs a machine that answers at web.localhost.
func (u *upgraded) serve(c *client.Client) *machine.Machine {
	u.t.Helper()
	_, port, err := net.SplitHostPort(freeAddr(u.t))
	if err != nil {
		u.t.Fatal(err)
	}
	l := &machine.Launch{Config: &machine.Config{Image: machine.HostImage,
		Init: machine.Init{Exec: []string{u.web, "bench-answer"}}, Env: map[string]string{"PORT": port}}}
	number := 0
	if _, err := fmt.Sscan(port, &number); err != nil {
		u.t.Fatal(err)
	}
	l.Config.Services = []machine.Service{{Protocol: "tcp", InternalPort: number, Hosts: []string{"web"},
		Ports: []machine.Port{{Port: new(80), Handlers: []string{"http"}}}}}
	if _, err := c.CreateApp(u.t.Context(), live.App); err != nil {
		u.t.Fatal(err)
	}
	m, err := c.Launch(u.t.Context(), live.App, l, client.LaunchOptions{})
	if err != nil || m.State != machine.Started {
		u.t.Fatalf("%+v, %v", m, err)
	}
	return m
}

const post = "POST / HTTP/1.1\r\nHost: web.localhost\r\nContent-Length: 4\r\n\r\nbody"

// ask asks over one connection until ctx ends or the server says that it ends, and counts what was answered. POST is
// never tried again by anybody: each must be answered.
func (u *upgraded) ask(ctx context.Context, answered *atomic.Int64) error {
	c, err := net.Dial("tcp", u.http)
	if err != nil {
		return err
	}
	defer c.Close()
	br := bufio.NewReader(c)
	for ctx.Err() == nil {
		_ = c.SetDeadline(time.Now().Add(30 * time.Second))
		if _, err := io.WriteString(c, post); err != nil {
			return err
		}
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			return err
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s, %w", resp.Status, bytes.TrimSpace(body), err)
		}
		answered.Add(1)
		if resp.Close {
			return nil
		}
	}
	return nil
}

// TestInPlaceUpgradeFailsNoRequest: souk is upgraded three times in place while connections are opened and used, and once
// while a machine is being woken: the process stays, and every request is answered. A program that does not run takes no
// place.
func TestInPlaceUpgradeFailsNoRequest(t *testing.T) {
	t.Parallel()
	u := startUpgraded(t)
	c := u.client()
	m := u.serve(c)
	ctx, end := context.WithCancel(t.Context())
	defer end()
	var clients sync.WaitGroup
	var answered, opened atomic.Int64
	for range 8 {
		clients.Go(func() {
			for ctx.Err() == nil {
				opened.Add(1)
				if err := u.ask(ctx, &answered); err != nil {
					t.Error(err)
					end()
				}
			}
		})
	}
	for range 3 {
		before := answered.Load()
		if err := live.Until(ctx, func() bool { return answered.Load() > before+100 }); err != nil {
			t.Fatal(err)
		}
		u.install(u.exe)
		u.upgrade()
		u.ready()
	}
	if err := live.Until(ctx, func() bool { return opened.Load() >= 4*8 }); err != nil {
		t.Fatal(err)
	}
	end()
	clients.Wait()
	t.Logf("%d requests over %d connections", answered.Load(), opened.Load())
	if u.api.PID != u.cmd.Process.Pid {
		t.Errorf("process %d became %d", u.cmd.Process.Pid, u.api.PID)
	}

	c = u.client()
	if _, err := c.Stop(t.Context(), live.App, m.ID, "", client.StopOptions{}); err != nil {
		t.Fatal(err)
	}
	woken := make(chan error, 1)
	once, done := context.WithCancel(t.Context())
	go func() { woken <- u.ask(once, &answered) }()
	u.upgrade()
	u.ready()
	done()
	if err := <-woken; err != nil {
		t.Errorf("a request that wakes a machine meanwhile: %v", err)
	}

	if err := os.WriteFile(u.exe+".new", []byte("no program"), 0o755); err != nil { //nolint:gosec // for the test
		t.Fatal(err)
	}
	if err := os.Rename(u.exe+".new", u.exe); err != nil {
		t.Fatal(err)
	}
	u.upgrade()
	said := func() bool { return strings.Contains(u.errs.String(), "which goes on") }
	if err := live.Until(t.Context(), said); err != nil {
		t.Fatalf("it does not say that there is no program: %s", u.errs.String())
	}
	if _, err := u.client().Machine(t.Context(), live.App, m.ID); err != nil {
		t.Errorf("it does not go on: %v", err)
	}
	u.install(u.exe)
	u.again()
}
