package attack

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/soukhq/souk/bench/live"
	"github.com/soukhq/souk/internal/wait"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/test/soukexe"
)

var (
	update = flag.Bool("update", false, "rewrite the table of docs/security.md")
	only   = flag.String("only", "", "try only attacks whose names have this in them")
)

func within(t *testing.T, d time.Duration, so func() bool) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	return wait.Until(ctx, 10*time.Millisecond, so) == nil
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// town is a cluster of agents below one directory.
type town struct {
	t    *testing.T
	exe  string
	dir  string
	home string
	all  []*agent
}

// newTown makes a directory with souk in it. Users of the host may pass through it: souk itself keeps its own closed.
func newTown(t *testing.T) *town {
	t.Helper()
	dir := t.TempDir()
	for d := dir; strings.Contains(d, "Test"); d = filepath.Dir(d) {
		must(t, os.Chmod(d, 0o755))
	}
	w := &town{t: t, exe: filepath.Join(dir, "souk"), dir: dir, home: filepath.Join(dir, "home")}
	must(t, os.Mkdir(w.home, 0o700))
	built, err := soukexe.Path(false)
	must(t, err)
	if out, err := exec.Command("cp", built, w.exe).CombinedOutput(); err != nil {
		t.Fatalf("cp %s: %v\n%s", built, err, out)
	}
	t.Cleanup(w.end)
	return w
}

// end ends machines, agents and reapers. It is a clean-up: what fails is passed over.
func (w *town) end() {
	var all sync.WaitGroup
	for _, a := range w.all {
		if a.gone() {
			continue
		}
		for _, m := range a.machines() {
			if m.Worker == a.name {
				all.Go(func() {
					a.ask(a.token, http.MethodDelete, "/v1/apps/"+m.App+"/machines/"+m.ID+"?force=true&kill=true", nil)
				})
			}
		}
	}
	all.Wait()
	for _, a := range w.all {
		if !a.gone() {
			a.kill()
		}
	}
	live.EndReapers(w.dir)
}

// command is souk, with a home of the test's and no settings of who runs the test.
func (w *town) command(ctx context.Context, env []string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, w.exe, args...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + w.home, "TMPDIR=" + os.Getenv("TMPDIR")}, env...)
	return cmd
}

// try runs a command of souk, and returns what it said.
func (w *town) try(env []string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*waittest.Patience)
	defer cancel()
	out, err := w.command(ctx, env, args...).CombinedOutput()
	return string(out), err
}

// souk runs a command that must succeed.
func (w *town) souk(env []string, args ...string) string {
	w.t.Helper()
	out, err := w.try(env, args...)
	if err != nil {
		w.t.Fatalf("souk %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(out)
}

// agent is one member's process.
type agent struct {
	t    *testing.T
	w    *town
	name string
	dir  string
	args []string
	cmd  *exec.Cmd
	done chan struct{}
	base string // of its API's URLs
	said struct {
		Addr   string `json:"addr"`
		Wire   string `json:"wire"`
		Gossip string `json:"gossip"`
		Token  string `json:"token_file"`
	}
	token string
	http  *http.Client
}

const anyPort = "127.0.0.1:0"

// first makes the member that holds the CA.
func (w *town) first(name string, args ...string) *agent {
	w.t.Helper()
	w.souk(nil, "init", "--dir", filepath.Join(w.dir, name), "--id", name)
	return w.agent(name, filepath.Join(w.dir, name), args...)
}

// join makes another member by a token, which is returned.
func (w *town) join(name string, args ...string) (a *agent, joinToken string) {
	w.t.Helper()
	one := w.all[0]
	joinToken = w.souk(nil, "token", "join", "--dir", one.dir)
	w.souk(nil, "join", one.said.Wire, "--dir", filepath.Join(w.dir, name), "--id", name, "--token", joinToken)
	return w.agent(name, filepath.Join(w.dir, name), args...), joinToken
}

// agent starts an agent in a directory; args come last, and win.
func (w *town) agent(name, dir string, args ...string) *agent {
	w.t.Helper()
	a := &agent{t: w.t, w: w, name: name, dir: dir, args: append([]string{"agent", "--json", "--dir", dir, "--addr",
		anyPort, "--wire", anyPort, "--gossip", anyPort, "--cpus", "4", "--memory", "4096"}, args...)}
	w.all = append(w.all, a)
	if err := a.start(); err != nil {
		w.t.Fatalf("agent %s: %v\n%s", name, err, a.log())
	}
	return a
}

func (a *agent) start() error {
	a.cmd = a.w.command(context.Background(), nil, a.args...)
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	log, err := os.OpenFile(a.dir+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	a.cmd.Stderr = log
	out, err := a.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := a.cmd.Start(); err != nil {
		return err
	}
	line, failed := bufio.NewReader(out).ReadBytes('\n')
	done := make(chan struct{})
	a.done = done
	go func() {
		defer close(done)
		_ = a.cmd.Wait() // how it ends is the test's business
	}()
	if failed != nil {
		<-done
		return fmt.Errorf("it did not become ready: %w", failed)
	}
	if err := json.Unmarshal(line, &a.said); err != nil {
		return err
	}
	return a.reach()
}

// reach reads the agent's token, and makes a client that believes its certificate.
func (a *agent) reach() error {
	raw, err := os.ReadFile(a.said.Token)
	if err != nil {
		return err
	}
	a.token = strings.TrimSpace(string(raw))
	conf := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool()}
	a.base = "http://" + strings.TrimPrefix(a.said.Addr, "http://")
	if strings.HasPrefix(a.said.Addr, "https://") {
		a.base = a.said.Addr
		root, err := os.ReadFile(filepath.Join(a.dir, "api-root.pem"))
		if err != nil || !conf.RootCAs.AppendCertsFromPEM(root) {
			return fmt.Errorf("the root of %s cannot be read: %w", a.name, err)
		}
	}
	a.http = &http.Client{Timeout: waittest.Patience,
		Transport: &http.Transport{TLSClientConfig: conf, DisableKeepAlives: true}}
	return nil
}

func (a *agent) log() string {
	raw, _ := os.ReadFile(a.dir + ".log")
	return string(raw)
}

func (a *agent) gone() bool {
	select {
	case <-a.done:
		return true
	default:
		return a.done == nil
	}
}

// kill ends the agent as kill -9 does. Its machines go on.
func (a *agent) kill() {
	_ = a.cmd.Process.Kill() // it may have ended by itself
	<-a.done
}

// again starts an agent that was killed, at the addresses that it had.
func (a *agent) again() error {
	a.args = append(a.args, "--addr", strings.TrimPrefix(a.said.Addr, "https://"), "--wire", a.said.Wire, "--gossip",
		a.said.Gossip)
	return a.start()
}

// env is what the commands of an operator of this member are given.
func (a *agent) env() []string { return a.envWith(a.token) }

func (a *agent) envWith(token string) []string {
	return []string{"SOUK_ADDR=" + a.said.Addr, "SOUK_TOKEN=" + token}
}

// ask asks the agent's API; code 0 says that there was no answer.
func (a *agent) ask(token, method, path string, in any) (code int, answer []byte) {
	var body io.Reader
	if in != nil {
		raw, err := json.Marshal(in)
		if err != nil {
			a.t.Fatal(err)
		}
		body = bytes.NewReader(raw)
	}
	r, err := http.NewRequestWithContext(context.Background(), method, a.base+path, body)
	if err != nil {
		a.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	res, err := a.http.Do(r)
	if err != nil {
		return 0, []byte(err.Error())
	}
	defer res.Body.Close()
	answer, _ = io.ReadAll(res.Body) // half an answer shows by itself
	return res.StatusCode, answer
}

// get asks for a path with the agent's own token, into out, and reports whether it was answered.
func (a *agent) get(path string, out any) bool {
	code, raw := a.ask(a.token, http.MethodGet, path, nil)
	return code == http.StatusOK && json.Unmarshal(raw, out) == nil
}

// do asks with the agent's own token for what must succeed.
func (a *agent) do(method, path string, in any) []byte {
	a.t.Helper()
	code, raw := a.ask(a.token, method, path, in)
	if code < 200 || code > 299 {
		a.t.Fatalf("%s %s at %s: %d %s", method, path, a.name, code, raw)
	}
	return raw
}

// line is one machine as lists show it.
type line struct {
	ID     string `json:"id"`
	App    string `json:"app"`
	Name   string `json:"name"`
	State  string `json:"state"`
	Worker string `json:"worker"`
}

func (a *agent) machines() (all []line) {
	var out struct {
		Machines []line `json:"machines"`
	}
	a.get("/v1/souk/machines", &out)
	return out.Machines
}

// names returns what a list of the API names, by the fields that may name it.
func (a *agent) text(path string) string {
	code, raw := a.ask(a.token, http.MethodGet, path, nil)
	if code != http.StatusOK {
		return ""
	}
	return string(raw)
}

// refused is how much of what came over gossip the agent has not believed.
func (a *agent) refused() (n int) {
	for l := range strings.Lines(a.text("/metrics")) {
		if name, value, _ := strings.Cut(strings.TrimSpace(l), " "); strings.HasPrefix(name,
			"souk_gossip_refused_total") {
			f, _ := strconv.ParseFloat(value, 64)
			n += int(f)
		}
	}
	return n
}
