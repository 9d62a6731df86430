package process

import (
	"context"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/reaper/proc"
)

var (
	_ runtime.Listener = (*Runtime)(nil)
	_ runtime.Halter   = (*Runtime)(nil)
)

// Listening lists the host network's sockets that listen on a port, and marks those of a machine.
func (r *Runtime) Listening(ctx context.Context, id string, port int) ([]runtime.Listening, error) {
	sockets := proc.ListenersOn(port)
	if len(sockets) == 0 {
		return nil, nil
	}
	in, err := r.findInside(ctx, id)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return nil, err
	}
	if in.sandbox != nil {
		return nil, fault.New(fault.Unimplemented, codeSandbox,
			"the sockets of a sandbox are known inside of it alone; ask its worker what the machine listens on")
	}
	links := make([]string, len(sockets))
	out := make([]runtime.Listening, len(sockets))
	for i, s := range sockets {
		links[i], out[i].At = s.Link, s.At
	}
	pids := in.pids
	if len(pids) > 0 && in.group != nil { // the machine may have made cgroups below its own, which hold its children
		pids = append(pids, proc.Tree(pids[0])...)
	}
	for _, pid := range pids {
		paths, err := proc.Holds(pid, links)
		if err != nil {
			return nil, err
		}
		for i, link := range links {
			if path := paths[link]; path != "" {
				out[i].Own, out[i].Link = path, link
			}
		}
	}
	return out, nil
}

// Halted reports whether all processes with a listening socket of the machine on a port are stopped by a signal
// (SIGSTOP, a debugger): the kernel still accepts connections, but no process answers them.
func (r *Runtime) Halted(ctx context.Context, id string, port int) bool {
	in, err := r.findInside(ctx, id)
	if err != nil || len(in.pids) == 0 || in.sandbox != nil || in.paused {
		return false
	}
	sockets := proc.ListenersAt(in.pids[0], port)
	links := make([]string, len(sockets))
	for i, s := range sockets {
		links[i] = s.Link
	}
	halted := false
	for _, pid := range in.pids {
		if has, err := proc.Holds(pid, links); err != nil || len(has) == 0 {
			continue
		}
		s, err := proc.Read(pid)
		if err != nil || s.State != 'T' && s.State != 't' {
			return false
		}
		halted = true
	}
	return halted
}
