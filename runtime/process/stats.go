package process

import (
	"context"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/process/proc"
	"github.com/soukhq/souk/runtime/process/reaper"
)

// pids lists a machine's processes, the main one first.
func (r *Runtime) pids(ctx context.Context, id string) ([]int, *session, error) {
	st, err := r.life(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	s, err := r.link.session(ctx)
	if err != nil {
		return nil, nil, err
	}
	if !st.Running {
		return nil, s, nil
	}
	var pids []int
	if t := s.welcome.Tree; t != nil {
		pids = t.Group(id).PIDs()
	} else {
		pids = proc.Below(st.PID, s.welcome.PID, reaper.RootDir(r.o.Dir, id))
	}
	slices.Sort(pids)
	pids = slices.DeleteFunc(pids, func(p int) bool { return p == st.PID || p == s.welcome.PID })
	return append([]int{st.PID}, pids...), s, nil
}

// Processes lists what runs in the machine; nothing when it does not run.
func (r *Runtime) Processes(ctx context.Context, id string) ([]machine.Process, error) {
	pids, _, err := r.pids(ctx, id)
	if err != nil {
		return nil, err
	}
	up := proc.Uptime()
	sockets := proc.Listening()
	out := make([]machine.Process, 0, len(pids))
	for _, pid := range pids {
		s, err := proc.Read(pid)
		if err != nil || s.State == 'Z' {
			continue // it has ended meanwhile
		}
		p := machine.Process{
			PID: int32(pid), Command: s.Name, Stime: s.STime * 1000 / proc.TicksPerSecond,
			CPU: (s.UTime + s.STime) * 1000 / proc.TicksPerSecond,
			RSS: s.RSS * uint64(os.Getpagesize()), ListenSockets: []machine.ListenSocket{},
		}
		if ran := up - time.Duration(s.Start)*time.Second/proc.TicksPerSecond; ran > 0 {
			p.Rtime = uint64(ran.Milliseconds())
		}
		if c := proc.Command(pid); len(c) > 0 {
			p.Command = strings.Join(c, " ")
		}
		p.Directory = proc.Directory(pid)
		for _, l := range proc.SocketsOf(pid, sockets) {
			p.ListenSockets = append(p.ListenSockets, machine.ListenSocket{Proto: l.Proto, Address: l.Address})
		}
		out = append(out, p)
	}
	return out, nil
}

// Usage counts what the machine uses: by its cgroups, else by adding up its processes (what ended is left out then).
func (r *Runtime) Usage(ctx context.Context, id string) (runtime.Usage, error) {
	pids, s, err := r.pids(ctx, id)
	if err != nil {
		return runtime.Usage{}, err
	}
	if len(pids) == 0 {
		return runtime.Usage{}, fault.New(fault.Precondition, "not_running", "machine %s does not run: start it first", id)
	}
	var u runtime.Usage
	counted := false
	if t := s.welcome.Tree; t != nil {
		g, ok := t.Group(id).Usage()
		u = runtime.Usage{CPU: g.CPU, MemoryMiB: g.Memory >> 20, Processes: g.Processes, OOMKills: g.OOMKills, Throttled: g.Throttled}
		counted = ok
	}
	if counted {
		return u, nil
	}
	var cpu time.Duration
	var rss uint64
	for _, pid := range pids {
		if p, err := proc.Read(pid); err == nil {
			cpu += time.Duration(p.UTime+p.STime) * time.Second / proc.TicksPerSecond
			rss += p.RSS * uint64(os.Getpagesize())
		}
	}
	u.CPU, u.Processes = max(u.CPU, cpu), len(pids)
	if u.MemoryMiB == 0 {
		u.MemoryMiB = int64(rss >> 20)
	}
	return u, nil
}
