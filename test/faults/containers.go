package faults

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime/reaper"
	"github.com/soukhq/souk/runtime/reaper/proc"
)

// containers polls /proc for programs of containers during a run. It detects two live processes of one machine, or of
// one attempt, unless they overlap for less than lookEach.
type containers struct {
	mu    sync.Mutex
	seen  map[string]bool   // ids of machines with a container
	began map[string]string // process by machine and fencing token
	said  map[string]bool   // violations found, as sentences
	err   error
}

// lookEach is the polling interval.
const lookEach = 50 * time.Millisecond

// inside is the program of a container.
type inside struct {
	pid                    int
	ticks                  uint64 // when it began
	machine, token, worker string
}

// watch looks until ctx ends.
func (c *containers) watch(ctx context.Context) {
	for wait(ctx, lookEach) == nil {
		_ = c.look() // errors are kept in c
	}
}

// look returns the machines whose programs run now.
func (c *containers) look() map[string]bool {
	all, err := programs()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.err = err
	}
	lives := map[string]inside{}
	for _, p := range all {
		c.seen[p.machine] = true
		if q, both := lives[p.machine]; both && proc.Running(p.pid, p.ticks) && proc.Running(q.pid, q.ticks) {
			c.said[fmt.Sprintf("two containers of machine %s lived at once, at %s with the token %s and at %s with %s",
				p.machine, q.worker, q.token, p.worker, p.token)] = true
		}
		lives[p.machine] = p
		attempt, process := p.machine+" "+p.token, fmt.Sprintf("%d %d", p.pid, p.ticks)
		if was, again := c.began[attempt]; again && was != process {
			c.said[fmt.Sprintf("an attempt of machine %s was begun twice: token %s", p.machine, p.token)] = true
		}
		c.began[attempt] = process
	}
	out := map[string]bool{}
	for id := range lives {
		out[id] = true
	}
	return out
}

// count returns of how many machines a container was seen.
func (c *containers) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.seen)
}

// programs finds the containers' programs. A container that has not executed its program yet has another command line.
func programs() (out []inside, err error) {
	all, err := proc.All()
	if err != nil {
		return nil, err
	}
	for _, st := range all {
		if !slices.Equal(proc.Command(st.PID), containerCommand()) {
			continue
		}
		env, err := proc.Environ(st.PID)
		if err != nil || len(env) == 0 {
			continue // it has ended
		}
		p := inside{pid: st.PID, ticks: st.Start}
		for _, kv := range env {
			switch name, value, _ := strings.Cut(kv, "="); name {
			case "SOUK_MACHINE":
				p.machine = value
			case "SOUK_FENCE":
				p.token = value
			case "SOUK_WORKER":
				p.worker = value
			}
		}
		out = append(out, p)
	}
	return out, nil
}

// sentences returns the violations. With attempts, an attempt that was started twice counts as one; leave that out if a
// worker's disk went back in time.
func (c *containers) sentences(attempts bool) ([]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := slices.Sorted(maps.Keys(c.said))
	if !attempts {
		all = slices.DeleteFunc(all, func(s string) bool { return strings.HasPrefix(s, "an attempt") })
	}
	return all, c.err
}

// nothingLeft destroys all machines without a lease, and waits until no host has remains of their containers.
func (r *run) nothingLeft(ctx context.Context) error {
	if r.o.Images == 0 {
		return nil
	}
	until, cancel := context.WithTimeout(ctx, agreeIn)
	defer cancel()
	for {
		held, err := destroyAll(until, r.ms[r.rng.IntN(len(r.ms))].cl)
		left := ""
		if err != nil {
			left = err.Error()
		}
		for _, m := range r.ms {
			left += m.leftOfContainers(held)
		}
		if left == "" {
			return nil
		}
		if wait(until, askPause) != nil {
			r.rep.Violations = append(r.rep.Violations, "of machines that were destroyed there is left: "+left)
			return ctx.Err()
		}
	}
}

// destroyAll destroys all machines, and returns those with a lease, which it cannot destroy.
func destroyAll(ctx context.Context, cl *client.Client) (held []*machine.Machine, err error) {
	ms, err := cl.AllMachines(ctx, client.ListOptions{})
	if err != nil {
		return nil, err
	}
	var g errgroup.Group
	g.SetLimit(16)
	var mu sync.Mutex
	for _, m := range ms {
		g.Go(func() error {
			switch _, err := cl.Destroy(ctx, m.App, m.ID, "", true); {
			case fault.CodeOf(err) == lifecycle.CodeLeaseHeld:
				mu.Lock()
				defer mu.Unlock()
				held = append(held, m)
			case !fault.Is(err, fault.NotFound):
				return err
			}
			return nil
		})
	}
	return held, g.Wait()
}

// leftOfContainers lists remains of containers on the host (devices, mounts, the runtime's state), except those of held
// machines.
func (m *member) leftOfContainers(held []*machine.Machine) string {
	var left, devices []string
	may := 0
	for _, h := range held {
		if string(h.Worker) == m.id && h.Config.Image == imageName {
			may++
		}
	}
	note := func(what string) {
		if !slices.ContainsFunc(held, func(h *machine.Machine) bool { return strings.Contains(what, h.ID) }) {
			left = append(left, what)
		}
	}
	err := m.host.Do(func() error {
		out, err := exec.Command("ip", "-o", "link").CombinedOutput()
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, ": sk") {
				devices = append(devices, line)
			}
		}
		return err
	})
	if len(devices) > may {
		left = append(left, devices...)
	}
	dir, errDir := filepath.EvalSymlinks(filepath.Join(m.dir, "worker", "run"))
	if err = errors.Join(err, errDir); err != nil {
		note(err.Error())
	}
	for _, of := range []string{"bundles/*", "engines/*/*", "console-*"} {
		kept, err := filepath.Glob(filepath.Join(reaper.ContainersDir, reaper.TreeName(dir), of))
		if err != nil {
			note(err.Error())
		}
		for _, k := range kept {
			note(k)
		}
	}
	for _, pid := range m.processes("reaper") {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
		if err != nil {
			continue // it has ended
		}
		for line := range strings.Lines(string(raw)) {
			if strings.Contains(line, " overlay ") && strings.Contains(line, "/rootfs ") {
				note(line)
			}
		}
	}
	if len(left) == 0 {
		return ""
	}
	return fmt.Sprintf("at %s %s; ", m.id, strings.Join(left, ", "))
}
