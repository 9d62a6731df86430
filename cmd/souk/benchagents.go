package main

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
	"syscall"
	"time"

	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/fault"
)

// ownAgents is a cluster of souk agents on loopback, each a process of its own with real machines, made by the commands
// of the README: init, then token join and join for each one more.
type ownAgents struct {
	exe    string
	dir    string
	err    io.Writer
	agents []*ownAgent
}

// ownAgent is one of them.
type ownAgent struct {
	id   string
	cl   *client.Client
	cmd  *exec.Cmd
	said struct {
		Addr  string `json:"addr"`
		Wire  string `json:"wire"`
		Token string `json:"token_file"`
	}
	token string
}

// startAgents makes a cluster of agents with these ids below dir. flags are of all, each[id] of one.
func startAgents(ctx context.Context, dir string, stderr io.Writer, ids []string, flags []string, each map[string][]string) (*ownAgents, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, "own", "the path of this program is not known")
	}
	c := &ownAgents{exe: exe, dir: dir, err: stderr}
	for i, id := range ids {
		if err := c.add(ctx, i, id, append(flags[:len(flags):len(flags)], each[id]...)); err != nil {
			c.close()
			return nil, err
		}
	}
	return c, nil
}

func (c *ownAgents) add(ctx context.Context, i int, id string, flags []string) error {
	home := filepath.Join(c.dir, id)
	if i == 0 {
		if _, err := c.souk(ctx, "init", "--dir", home, "--id", id); err != nil {
			return err
		}
	} else {
		token, err := c.souk(ctx, "token", "join", "--dir", filepath.Join(c.dir, c.agents[0].id))
		if err != nil {
			return err
		}
		if _, err := c.souk(ctx, "join", c.agents[0].said.Wire, "--dir", home, "--id", id, "--token", strings.TrimSpace(token)); err != nil {
			return err
		}
	}
	a := &ownAgent{id: id}
	const any = "127.0.0.1:0"
	a.cmd = exec.Command(c.exe, append([]string{"agent", "--json", "--dir", home, "--addr", any, "--wire", any, "--gossip", any}, flags...)...)
	a.cmd.Stderr = c.err
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var err error
	a.token, err = startServing(a.cmd, "souk agent "+id, &a.said, &a.said.Token)
	if a.cmd.Process != nil {
		c.agents = append(c.agents, a) // to be ended, whether or not it became ready
	}
	if err != nil {
		return err
	}
	a.cl = client.New(a.said.Addr, a.token)
	return nil
}

// souk runs a command of this program and gives what it prints.
func (c *ownAgents) souk(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, c.exe, args...)
	cmd.Stderr = c.err
	out, err := cmd.Output()
	if err != nil {
		return "", fault.Wrap(err, fault.Internal, "own", "souk %s failed", args[0])
	}
	return string(out), nil
}

// meet waits until every agent has heard what all workers have.
func (c *ownAgents) meet(ctx context.Context) error {
	for _, a := range c.agents {
		if err := until(ctx, func() bool {
			w, err := a.cl.Workers(ctx)
			return err == nil && len(w.Workers) == len(c.agents)
		}); err != nil {
			return fault.Wrap(err, fault.Timeout, "own", "agent %s does not hear of all the others", a.id)
		}
	}
	return nil
}

// until looks every few milliseconds whether something is so, for 30 s at most.
func until(ctx context.Context, so func() bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 30*time.Second, errSilent)
	defer cancel()
	for !so() {
		if err := rest(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// close ends machines, agents and reapers. It is a clean-up: what fails is passed over.
func (c *ownAgents) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, a := range c.agents {
		if a.cl != nil {
			_ = destroyAll(ctx, a.cl, "")
		}
	}
	for _, a := range c.agents {
		_ = endServing(a.cmd, 10*time.Second)
	}
	endReapers(filepath.Clean(c.dir))
}

// counters gives the lines of the agent's metrics that begin with one of these names, by name with labels.
func (a *ownAgent) counters(ctx context.Context, names ...string) (map[string]float64, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+a.said.Addr+"/metrics", nil)
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, "own", "the metrics of %s cannot be asked for", a.id)
	}
	r.Header.Set("Authorization", "Bearer "+a.token)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, "own", "the metrics of %s cannot be read", a.id)
	}
	raw, err := io.ReadAll(io.LimitReader(res.Body, 4<<20))
	if err = errors.Join(err, res.Body.Close()); err != nil || res.StatusCode != http.StatusOK {
		return nil, fault.Wrap(err, fault.Unavailable, "own", "the metrics of %s cannot be read: %s", a.id, res.Status)
	}
	out := map[string]float64{}
	for line := range strings.Lines(string(raw)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		bare, _, _ := strings.Cut(name, "{")
		if !slices.Contains(names, bare) {
			continue
		}
		if out[name], err = strconv.ParseFloat(value, 64); err != nil {
			return nil, fault.Wrap(err, fault.Internal, "own", "the metric %s of %s is no number", name, a.id)
		}
	}
	return out, nil
}
