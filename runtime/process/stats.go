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
	"github.com/soukhq/souk/runtime/reaper"
	"github.com/soukhq/souk/runtime/reaper/cgroup"
	"github.com/soukhq/souk/runtime/reaper/engine"
	"github.com/soukhq/souk/runtime/reaper/frame"
	"github.com/soukhq/souk/runtime/reaper/proc"
	"github.com/soukhq/souk/runtime/reaper/space"
)

// inside is the running part of a machine.
type inside struct {
	pids  []int         // the main process first
	group *cgroup.Group // nil without cgroups
	base  frame.Group

	sandbox *frame.Sandbox // the sandbox that hides the processes; nil: there is none
	paused  bool
}

func (r *Runtime) findInside(ctx context.Context, id string) (inside, error) {
	a, err := r.latestLife(ctx, id)
	if err != nil || !a.Status.Running {
		return inside{}, err
	}
	if a.Status.OnDisk {
		return inside{sandbox: a.Sandbox, paused: true}, nil
	}
	st, g := a.Status, a.Group
	s, err := r.link.liveSession(ctx)
	if err != nil {
		return inside{}, err
	}
	in := inside{sandbox: a.Sandbox, paused: st.Paused}
	if t := s.welcome.Tree; t != nil && g != nil {
		group := t.Group(g.Name)
		in.group, in.base, in.pids = &group, *g, group.PIDs()
	} else {
		in.pids = proc.Below(st.PID, s.welcome.PID, reaper.RootDir(r.o.Dir, id), space.Root(id))
	}
	slices.Sort(in.pids)
	in.pids = slices.DeleteFunc(in.pids, func(p int) bool { return p == st.PID || p == s.welcome.PID })
	in.pids = append([]int{st.PID}, in.pids...)
	return in, nil
}

// Processes lists the processes of the machine, none if it does not run.
func (r *Runtime) Processes(ctx context.Context, id string) ([]machine.Process, error) {
	in, err := r.findInside(ctx, id)
	if err != nil {
		return nil, err
	}
	if in.sandbox != nil {
		if in.paused {
			return nil, fault.New(fault.Precondition, fault.CodePaused,
				"machine %s is suspended with its sandbox, and only the sandbox knows what runs inside: resume the "+
					"machine first", id)
		}
		out, err := inSandbox(ctx, in)
		if err != nil {
			if a, wrong := r.latestLife(ctx, id); wrong == nil && !a.Status.Running {
				return nil, nil // the machine has ended meanwhile
			}
		}
		return out, err
	}
	up := proc.Uptime()
	sockets := proc.Listening()
	out := make([]machine.Process, 0, len(in.pids))
	for _, pid := range in.pids {
		s, err := proc.Read(pid)
		if err != nil || s.State == 'Z' {
			continue // the process has ended meanwhile
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

// inSandbox lists the processes in a sandbox, by their pids inside it; the sandbox does not report their resource use.
func inSandbox(ctx context.Context, in inside) ([]machine.Process, error) {
	s := in.sandbox
	all, err := engine.Engine{Path: s.Engine, State: s.State}.Processes(ctx, s.ID)
	out := make([]machine.Process, 0, len(all))
	for _, p := range all {
		out = append(out, machine.Process{PID: int32(p.PID), Command: p.Name,
			ListenSockets: []machine.ListenSocket{}})
	}
	return out, err
}

// Usage returns what the machine uses: by its cgroups, else by adding up its processes (without those that have ended).
func (r *Runtime) Usage(ctx context.Context, id string) (runtime.Usage, error) {
	in, err := r.findInside(ctx, id)
	if err != nil {
		return runtime.Usage{}, err
	}
	if len(in.pids) == 0 {
		return runtime.Usage{}, fault.New(fault.Precondition, fault.CodeNotRunning,
			"machine %s does not run: start it first",
			id)
	}
	var u runtime.Usage
	counted := false
	if in.group != nil {
		g, ok := in.group.Usage()
		u = runtime.Usage{
			CPU: max(0, g.CPU-in.base.CPU), MemoryMiB: g.Memory >> 20, Processes: g.Processes,
			OOMKills: g.OOMKills, Throttled: max(0, g.Throttled-in.base.Throttled),
		}
		counted = ok
	}
	if counted {
		return u, nil
	}
	var cpu time.Duration
	var rss uint64
	for _, pid := range in.pids {
		if p, err := proc.Read(pid); err == nil {
			cpu += time.Duration(p.UTime+p.STime) * time.Second / proc.TicksPerSecond
			rss += p.RSS * uint64(os.Getpagesize())
		}
	}
	u.CPU, u.Processes = max(u.CPU, cpu), len(in.pids)
	if u.MemoryMiB == 0 {
		u.MemoryMiB = int64(rss >> 20)
	}
	return u, nil
}
