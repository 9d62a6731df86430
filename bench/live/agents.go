package live

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/wait"
)

// codeOwn says that the agents that the benchmark starts do not run.
const codeOwn fault.Code = "own"

// Agents is a cluster of souk agents on loopback, each a process of its own with real machines, made by the README's
// commands: init, then token join and join for each further one.
type Agents struct {
	exe  string
	dir  string
	err  io.Writer
	List []*Agent
}

// Agent is one agent of a cluster.
type Agent struct {
	id     string
	Client *client.Client
	args   []string
	cmd    *exec.Cmd
	said   struct {
		Addr   string `json:"addr"`
		Wire   string `json:"wire"`
		Gossip string `json:"gossip"`
		Token  string `json:"token_file"`
	}
	token string
}

// StartAgents makes a cluster of agents with these ids, in dir. flags apply to all agents, each[id] to one.
func StartAgents(ctx context.Context, dir string, stderr io.Writer, ids []string, flags []string,
	each map[string][]string) (*Agents, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, codeOwn, "the path of this program is not known")
	}
	c := &Agents{exe: exe, dir: dir, err: stderr}
	for i, id := range ids {
		if err := c.addAgent(ctx, i, id, append(flags[:len(flags):len(flags)], each[id]...)); err != nil {
			c.Close()
			return nil, err
		}
	}
	return c, nil
}

func (c *Agents) addAgent(ctx context.Context, i int, id string, flags []string) error {
	home := filepath.Join(c.dir, id)
	if i == 0 {
		if _, err := c.runSouk(ctx, "init", "--dir", home, "--id", id); err != nil {
			return err
		}
	} else {
		token, err := c.runSouk(ctx, "token", "join", "--dir", filepath.Join(c.dir, c.List[0].id))
		if err != nil {
			return err
		}
		if _, err := c.runSouk(ctx, "join", c.List[0].said.Wire, "--dir", home, "--id", id, "--token",
			strings.TrimSpace(token)); err != nil {
			return err
		}
	}
	const any = "127.0.0.1:0"
	a := &Agent{id: id, args: append([]string{"agent", "--json", "--dir", home, "--addr", any, "--wire", any,
		"--gossip", any}, flags...)}
	err := c.startAgent(a)
	if a.cmd.Process != nil {
		c.List = append(c.List, a) // so that it is ended even if it does not become ready
	}
	return err
}

// startAgent starts an agent's process, and returns when it serves.
func (c *Agents) startAgent(a *Agent) error {
	a.cmd = exec.Command(c.exe, a.args...)
	a.cmd.Stderr = c.err
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var err error
	if a.token, err = startServing(a.cmd, "souk agent "+a.id, &a.said, &a.said.Token); err != nil {
		return err
	}
	a.Client = client.New(a.said.Addr, a.token)
	return nil
}

// Kill ends an agent's process at once, as kill -9 does. Its machines go on.
func (c *Agents) Kill(a *Agent) {
	_ = a.cmd.Process.Kill() // it may have ended by itself
	_ = a.cmd.Wait()
}

// Restart starts a killed agent again, and returns when it serves.
func (c *Agents) Restart(a *Agent) error { return c.startAgent(a) }

// runSouk runs a command of this program and returns its output.
func (c *Agents) runSouk(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, c.exe, args...)
	cmd.Stderr = c.err
	out, err := cmd.Output()
	if err != nil {
		return "", fault.Wrap(err, fault.Internal, codeOwn, "souk %s failed", args[0])
	}
	return string(out), nil
}

// Meet waits until every agent knows all workers' machines.
func (c *Agents) Meet(ctx context.Context) error {
	for _, a := range c.List {
		if err := Until(ctx, func() bool {
			w, err := a.Client.Workers(ctx)
			return err == nil && len(w.Workers) == len(c.List)
		}); err != nil {
			return fault.Wrap(err, fault.Timeout, codeOwn, "agent %s does not list all workers", a.id)
		}
	}
	return nil
}

// Until polls so every few milliseconds, for 30 s at most.
func Until(ctx context.Context, so func() bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 30*time.Second, ErrSilent)
	defer cancel()
	return wait.Until(ctx, 5*time.Millisecond, so)
}

var ErrSilent = fault.New(fault.Timeout, fault.CodeSilent, "the expected state was not reached in time")

// Close ends machines, agents and reapers. It is a clean-up: errors are ignored.
func (c *Agents) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, a := range c.List {
		if a.Client != nil {
			destroyApps(ctx, a.Client)
		}
	}
	var ended sync.WaitGroup // all at once: none takes over what another one keeps
	for _, a := range c.List {
		ended.Go(func() { _ = endServing(a.cmd, 10*time.Second) })
	}
	ended.Wait()
	EndReapers(filepath.Clean(c.dir))
}

// ID returns the agent's id in its cluster.
func (a *Agent) ID() string { return a.id }

// PID returns the id of the agent's process.
func (a *Agent) PID() int { return a.cmd.Process.Pid }

// Doors returns where the agent listens: its API, and for other members calls and gossip.
func (a *Agent) Doors() (api, wire, gossip string) { return a.said.Addr, a.said.Wire, a.said.Gossip }

// Get asks the agent for a path of its API, and returns the answer's body. A status other than 200 is an error.
func (a *Agent) Get(ctx context.Context, path string) ([]byte, error) {
	r, err := a.newRequest(ctx, path)
	if err != nil {
		return nil, err
	}
	return a.sendRequest(http.DefaultClient, r)
}

// GetAnew is Get over a connection of its own.
func (a *Agent) GetAnew(ctx context.Context, path string) ([]byte, error) {
	via := &http.Transport{DisableKeepAlives: true}
	r, err := a.newRequest(ctx, path)
	if err != nil {
		return nil, err
	}
	return a.sendRequest(&http.Client{Transport: via}, r)
}

func (a *Agent) newRequest(ctx context.Context, path string) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+a.said.Addr+path, nil)
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, codeOwn, "no request for %s of agent %s can be made", path, a.id)
	}
	r.Header.Set("Authorization", "Bearer "+a.token)
	return r, nil
}

func (a *Agent) sendRequest(via *http.Client, r *http.Request) ([]byte, error) {
	path := r.URL.Path
	res, err := via.Do(r)
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, codeOwn, "%s of %s cannot be read", path, a.id)
	}
	raw, err := io.ReadAll(io.LimitReader(res.Body, 1<<30))
	if err = errors.Join(err, res.Body.Close()); err != nil || res.StatusCode != http.StatusOK {
		return nil, fault.Wrap(err, fault.Unavailable, codeOwn, "%s of %s cannot be read: %s", path, a.id, res.Status)
	}
	return raw, nil
}

// Counters returns the lines of the agent's metrics that begin with one of these names, by name with labels.
func (a *Agent) Counters(ctx context.Context, names ...string) (map[string]float64, error) {
	raw, err := a.Get(ctx, "/metrics")
	if err != nil {
		return nil, err
	}
	out := map[string]float64{}
	for line := range strings.Lines(string(raw)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		bare, _, _ := strings.Cut(name, "{")
		if !slices.Contains(names, bare) {
			continue
		}
		if out[name], err = strconv.ParseFloat(value, 64); err != nil {
			return nil, fault.Wrap(err, fault.Internal, codeOwn, "the metric %s of %s is no number", name, a.id)
		}
	}
	return out, nil
}
