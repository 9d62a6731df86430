package attack

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/internal/wait/waittest"
)

const envNobody = "SOUK_ATTACK_NOBODY"

// TestMain lets this test binary be a user of the host without any right.
func TestMain(m *testing.M) {
	if os.Getenv(envNobody) != "" {
		lookAround()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// sought is what nobody looks for, and where. It comes by stdin, or it would be in a list of processes.
type sought struct {
	Needles []string `json:"needles"`
	State   string   `json:"state"` // no file below it may be opened
	Walk    []string `json:"walk"`
	API     string   `json:"api"`
	Bind    []string `json:"bind"` // ports to hold, once they are free
}

// most is how much of a file is looked at.
const most = 4 << 20

// lookAround is nobody: it looks for what it can get until stdin ends, holds the ports that it can, and tells what it
// found, a line each, and when it has looked at everything once more.
func lookAround() {
	in := bufio.NewReader(os.Stdin)
	first, err := in.ReadBytes('\n')
	var s sought
	if err == nil {
		err = json.Unmarshal(first, &s)
	}
	if err != nil {
		fmt.Println("found: nobody was not told what to look for:", err)
		return
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _, _ = io.Copy(io.Discard, in) }()
	for _, addr := range s.Bind {
		go s.hold(addr)
	}
	for {
		select {
		case <-ended:
			return
		default:
		}
		s.state()
		s.processes()
		for _, dir := range s.Walk {
			s.walk(dir)
		}
		s.ask()
		fmt.Println("looked")
	}
}

func (s sought) grep(where string, raw []byte) {
	for i, n := range s.Needles {
		if bytes.Contains(raw, []byte(n)) {
			fmt.Printf("found: secret %d in %s\n", i, where)
		}
	}
}

func (s sought) file(path string) (opened bool) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	raw, _ := io.ReadAll(io.LimitReader(f, most))
	s.grep(path, raw)
	return true
}

// state tries the directory, what is known to be in it, and the socket.
func (s sought) state() {
	for _, name := range []string{"", "token", "secrets.key", "souk.sock", "identity/member.pem", "ca/root-1.pem",
		"worker", "worker/journal", "gossip/objects", "addr", "lock"} {
		if s.file(filepath.Join(s.State, name)) {
			fmt.Println("found: it opens", filepath.Join(s.State, name))
		}
	}
	if c, err := net.Dial("unix", filepath.Join(s.State, "souk.sock")); err == nil {
		_ = c.Close()
		fmt.Println("found: the socket is open")
	}
}

// processes looks at all that the host shows of others' processes.
func (s sought) processes() {
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range all {
		st, err := os.Stat(p)
		if err != nil || st.Sys().(*syscall.Stat_t).Uid == uint32(os.Getuid()) { //nolint:gosec // a user
			continue
		}
		for _, name := range []string{"cmdline", "comm", "status", "cgroup", "mountinfo"} { // which anybody may read
			s.file(filepath.Join(p, name))
		}
		for _, name := range []string{"environ", "mem", "maps", "auxv", "syscall", "stack"} {
			if name == "mem" || name == "maps" || name == "auxv" {
				if f, err := os.Open(filepath.Join(p, name)); err == nil {
					if _, err = f.Read(make([]byte, 1)); err == nil {
						fmt.Println("found: it reads", filepath.Join(p, name))
					}
					_ = f.Close()
				}
				continue
			}
			if raw, err := os.ReadFile(filepath.Join(p, name)); err == nil && len(raw) > 0 {
				fmt.Println("found: it reads", filepath.Join(p, name))
			}
		}
		for _, name := range []string{"cwd", "root", "exe", "fd/0", "fd/1", "fd/3"} {
			if to, err := os.Readlink(filepath.Join(p, name)); err == nil {
				fmt.Println("found: it follows", filepath.Join(p, name), "to", to)
			}
		}
	}
}

func (s sought) walk(dir string) {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return fs.SkipDir // it may not look there
		}
		if info, err := d.Info(); err == nil && info.Mode().IsRegular() && info.Size() < most {
			s.file(path)
		}
		return nil
	})
}

// ask asks the API without a token.
func (s sought) ask() {
	c := http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for _, path := range []string{"/v1/apps", "/v1/souk/tokens", "/metrics", "/v1/souk/machines", "/livez", "/readyz",
		"/v1/souk/proof?token=0&nonce=00000000000000000000"} {
		res, err := c.Get("http://" + s.API + path)
		if err != nil {
			continue
		}
		raw, _ := io.ReadAll(io.LimitReader(res.Body, most))
		_ = res.Body.Close()
		s.grep(path, raw)
		if res.StatusCode == http.StatusOK && string(raw) != held && path != "/livez" && path != "/readyz" {
			fmt.Println("found: without a token it is answered", path)
		}
	}
}

// held is what nobody answers at a port that he holds.
const held = `{"held": "by nobody"}`

// hold takes a port as soon as it is free, answers as a souk without a token might, and looks at what it is sent.
func (s sought) hold(addr string) {
	var ln net.Listener
	for err := error(io.EOF); err != nil; {
		ln, err = net.Listen("tcp", addr)
	}
	fmt.Println("holds", addr)
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(10 * time.Second))
			var got []byte
			buf := make([]byte, 64<<10)
			for {
				n, err := c.Read(buf)
				got = append(got, buf[:n]...)
				s.grep("what was sent to "+addr, got)
				if err != nil || len(got) > most {
					return
				}
				_, _ = fmt.Fprintf(c,
					"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
					len(held), held)
			}
		}()
	}
}

// nobody is a process of that user, and what it has told.
type nobody struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.WriteCloser
	done  chan struct{}

	mu     sync.Mutex
	looked int
	holds  map[string]bool
	found  map[string]bool
}

func (w *town) nobody(s sought) *nobody {
	w.t.Helper()
	exe := filepath.Join(w.dir, "nobody")
	raw, err := os.ReadFile("/proc/self/exe")
	must(w.t, err)
	if _, err := os.Stat(exe); err != nil {
		must(w.t, os.WriteFile(exe, raw, 0o755)) //nolint:gosec // nobody executes it
	}
	n := &nobody{t: w.t, holds: map[string]bool{}, found: map[string]bool{}, done: make(chan struct{})}
	n.cmd = exec.Command(exe)
	n.cmd.Env, n.cmd.Dir = []string{envNobody + "=1"}, "/"
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534},
		Pdeathsig: syscall.SIGKILL}
	n.stdin, err = n.cmd.StdinPipe()
	must(w.t, err)
	out, err := n.cmd.StdoutPipe()
	must(w.t, err)
	must(w.t, n.cmd.Start())
	must(w.t, json.NewEncoder(n.stdin).Encode(s))
	go func() {
		defer close(n.done)
		for in := bufio.NewScanner(out); in.Scan(); {
			n.mu.Lock()
			switch what, rest, _ := strings.Cut(in.Text(), " "); what {
			case "looked":
				n.looked++
			case "holds":
				n.holds[rest] = true
			default:
				n.found[in.Text()] = true
			}
			n.mu.Unlock()
		}
	}()
	w.t.Cleanup(n.end)
	return n
}

func (n *nobody) end() {
	_ = n.cmd.Process.Kill() // it may have ended
	<-n.done
	_ = n.cmd.Wait()
}

// looks waits until nobody has begun and ended a whole look from now on.
func (n *nobody) looks(when string) {
	n.t.Helper()
	count := func() int { n.mu.Lock(); defer n.mu.Unlock(); return n.looked }
	was := count()
	waittest.Until(n.t, "nobody has looked "+when, func() bool { return count() >= was+2 })
}

func (n *nobody) has(part string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for f := range n.found {
		if strings.Contains(f, part) {
			return true
		}
	}
	return false
}

func (n *nobody) holding(addr string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.holds[addr]
}

// nothing fails the test for each thing that was found.
func (n *nobody) nothing(when string) {
	n.t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	for f := range n.found {
		n.t.Errorf("%s: %s", when, f)
	}
}

// TestNobodyOnTheHostGetsSecrets: a user of the host without any right gets no token, no machine's secret and no file of the state, with
// souk up, down and while it starts; nor from who asks at its ports while that user has them.
func TestNobodyOnTheHostGetsSecrets(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("this needs root, to be another user")
		}
		t.Skip("this needs root, to be another user")
	}
	w := newTown(t)
	tmp := filepath.Join(w.dir, "tmp")
	must(t, os.Mkdir(tmp, 0o777))
	must(t, os.Chmod(tmp, 0o777|fs.ModeSticky)) //nolint:gosec // as /tmp is
	t.Setenv("TMPDIR", tmp)
	a := w.first("a")
	needles := []string{"canary-of-a-secret", "canary-of-a-file", "canary-of-an-environment", a.token}
	a.do(http.MethodPost, "/v1/apps", api.NewApp{AppName: app})
	a.do(http.MethodPost, "/v1/apps/"+app+"/secrets/WORD", map[string]string{"value": needles[0]})
	a.do(http.MethodPost, "/v1/apps/"+app+"/secrets/FILE", map[string]string{
		"value": base64.StdEncoding.EncodeToString([]byte(needles[1]))})
	a.do(http.MethodPost, "/v1/apps/"+app+"/machines", map[string]any{"name": "web", "config": map[string]any{
		"image": "souk/host", "init": map[string]any{"exec": []string{"/bin/sleep", "1000"}},
		"env": map[string]string{"WORD2": needles[2]}, "guest": map[string]any{"cpu_kind": "shared", "cpus": 1,
			"memory_mb": 256},
		"files": []map[string]string{{"guest_path": "/etc/souk-canary", "secret_name": "FILE"}}}})
	for _, name := range []string{"token", "secrets.key"} {
		raw, err := os.ReadFile(filepath.Join(a.dir, name))
		must(t, err)
		needles = append(needles, strings.TrimSpace(string(raw)))
	}
	s := sought{Needles: needles, State: a.dir, API: a.said.Addr,
		Walk: []string{w.dir, "/dev/shm", "/run/souk", "/var/lib/souk-users", "/var/tmp"}}
	control := filepath.Join(tmp, "control")
	must(t, os.WriteFile(control, []byte(needles[0]), 0o644)) //nolint:gosec // nobody is to find this
	n := w.nobody(s)
	waittest.Until(t, "nobody finds what lies open", func() bool { return n.has("control") })
	n.end()
	must(t, os.Remove(control))

	n = w.nobody(s)
	n.looks("while souk is up")
	a.kill()
	n.looks("while it is down")
	thief := w.held(a, s)
	must(t, a.again())
	n.looks("once it is up again")
	for range 2 { // what is there only while it starts
		a.kill()
		must(t, a.again())
	}
	n.nothing("with souk up, down and starting")
	thief.nothing("at the ports of a souk that is down")
}

// held has nobody hold all ports of a souk that is down, while commands of root ask there and souk is started.
func (w *town) held(a *agent, s sought) *nobody {
	w.t.Helper()
	const spare = "127.0.0.1:0"
	ln, err := net.Listen("tcp", spare)
	must(w.t, err)
	control := ln.Addr().String()
	must(w.t, ln.Close())
	s.Bind = []string{a.said.Addr, a.said.Wire, a.said.Gossip, control}
	n := w.nobody(s)
	for _, addr := range s.Bind {
		waittest.Until(w.t, "nobody holds "+addr, func() bool { return n.holding(addr) })
	}
	r, err := http.NewRequest(http.MethodGet, "http://"+control, nil)
	must(w.t, err)
	r.Header.Set("Authorization", "Bearer "+a.token)
	if res, err := http.DefaultClient.Do(r); err == nil {
		_ = res.Body.Close()
	}
	waittest.Until(w.t, "a token that is sent to it is found", func() bool {
		return n.has("what was sent to " + control)
	})
	socket := "SOUK_ADDR=unix:" + filepath.Join(a.dir, "souk.sock")
	ask := func() {
		for _, env := range [][]string{a.env(), {"SOUK_ADDR=http://" + a.said.Addr, "SOUK_TOKEN=" + a.token},
			{socket, "SOUK_TOKEN=" + a.token}} {
			if out, err := w.try(env, "ps"); err == nil {
				w.t.Errorf("souk ps, while its port is another's: %s", out)
			}
		}
	}
	ask()
	started := make(chan error, 1)
	go func() { started <- a.again() }()
	ask()
	if err := <-started; err == nil {
		w.t.Error("souk was started while its ports are another's")
	}
	n.end()
	n.mu.Lock()
	defer n.mu.Unlock()
	for f := range n.found {
		if strings.Contains(f, control) {
			delete(n.found, f)
		}
	}
	return n
}
