// Package oci runs machines as containers of OCI images, by any OCI runtime: runc, crun or runsc (gVisor).
//
// It is package process with another way to start: the reaper has the OCI runtime make the container, and from there on
// it is a life like any other, with the same cgroup, output, exit and end (docs/decisions/0047-containers.md). Images
// of the host's own programs (souk/host) are run as processes, by the same reaper.
//
// # What a container gets
//
//   - the image's files as its root, and a layer of its own above, which is empty again at each start
//   - a user namespace: its root is nobody on the host, and another nobody in each container
//   - what package spec says: a filter of system calls, few capabilities, no way to more
//   - the machine's cgroup, with its limits
//   - the machine's files from memory only; its volumes
//   - a network of its own (package hostnet), where the runtime is told of one; else loopback only
package oci

import (
	"context"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/process"
	"github.com/soukhq/souk/runtime/reaper/engine"
	"github.com/soukhq/souk/runtime/reaper/frame"
)

// Image is what a container is made of. Its layers stay as they are while it is used.
type Image struct {
	Layers     []string // directories, topmost first
	Entrypoint []string
	Cmd        []string
	Env        []string
	User       string // "": root
	Dir        string
	StopSignal string   // "": it says none
	Volumes    []string // directories that it keeps data in: absolute and clean, sorted, each once
}

// Images are those of the host. A NotFound says that one is not here.
type Images interface {
	// Bring brings an image to the host unless it is here, and keeps it for a machine beside what that holds.
	Bring(ctx context.Context, machine, ref string) (runtime.Pulled, error)
	// Hold makes an image ready for a machine, and keeps it, and no other, until it is released.
	Hold(ctx context.Context, machine, ref string) (Image, error)
	// Look is Hold for one that is kept already, and lets go of nothing.
	Look(ctx context.Context, ref string) (Image, error)
	// Release lets go of what a machine holds. nil when that is nothing.
	Release(ctx context.Context, machine string) error
}

// Options of a runtime.
type Options struct {
	Process process.Options
	Engines []string // names or paths of OCI runtimes; the first is that of machines that ask for none; nil: runc
	Init    string   // name or path of a static init, as tini is; "": the first of those that is on the host, if any
	Images  Images
	Network *Network // nil: containers have none but loopback
	// Awake is why no machine is suspended to disk; nil: those that can be are, when they are asked to.
	Awake error
	Ready int // how many machines at rest may have a container that waits for its start; 0: none has
}

// Runtime runs containers, and processes.
type Runtime struct {
	*process.Runtime
	images  Images
	network *Network
	engines []program // the first is that of machines that name none
	init    string    // path; "": none
	ahead   *ahead
	awake   error // why no machine is suspended to disk; nil: some are
}

var (
	_ runtime.Runtime = (*Runtime)(nil)
	_ runtime.Puller  = (*Runtime)(nil)
	_ runtime.Readier = (*Runtime)(nil)
	_ runtime.Checker = (*Runtime)(nil)

	_ runtime.Hibernator = (*Runtime)(nil)
)

// program is an OCI runtime.
type program struct {
	name string
	path string

	unconnected error // why its containers can have no network; nil: they can
	unshared    error // why they cannot share the host's
}

// Open is process.Open, and finds the OCI runtimes.
func Open(o Options) (*Runtime, error) {
	var engines []program
	if len(o.Engines) == 0 {
		o.Engines = []string{DefaultEngine}
	}
	for _, name := range o.Engines {
		path, err := findEngine(name)
		if err != nil {
			return nil, err
		}
		p := program{name: filepath.Base(path), path: path, unconnected: Connectable(context.Background(), path)}
		if (engine.Engine{Path: path}).Sandboxes() {
			p.unshared = fault.New(fault.Precondition, fault.CodeNetwork,
				"a machine by %s has a kernel of its own, which "+
					"cannot share the host's network: run it by another runtime, or with a network of its own", p.name)
		}
		engines = append(engines, p)
	}
	p, err := process.Open(o.Process)
	if err != nil {
		return nil, err
	}
	r := &Runtime{Runtime: p, images: o.Images, network: o.Network, engines: engines, init: findInit(o.Init),
		awake: o.Awake}
	r.ahead = newAhead(r.makeReady, o.Ready)
	return r, nil
}

// engineNamed is the one that a machine asks for; "" is that of those who do not.
func (r *Runtime) engineNamed(name string) (program, error) {
	if name == "" {
		return r.engines[0], nil
	}
	names := make([]string, len(r.engines))
	for i, e := range r.engines {
		if names[i] = e.name; e.name == name {
			return e, nil
		}
	}
	return program{}, fault.New(fault.Precondition, runtime.CodeEngine,
		"this worker has no OCI runtime %s: it has %s", name,
		strings.Join(names, " and "))
}

// findInit finds a program that is made to be a container's first process: it passes signals on and waits for orphans.
// A program that is the first process itself gets only those signals that it handles, and must wait for orphans.
func findInit(name string) string {
	for _, n := range []string{name, "tini-static", "docker-init", "catatonit", "/usr/libexec/podman/catatonit"} {
		if n == "" {
			continue
		}
		if path, err := exec.LookPath(n); err == nil {
			if path, err = filepath.Abs(path); err == nil {
				return path
			}
		}
	}
	return ""
}

// Name is "oci".
func (*Runtime) Name() string { return "oci" }

// CanRun accepts the host's programs, and whatever is the name of an image, by a runtime that there is.
func (r *Runtime) CanRun(image, by string) error {
	if machine.IsHostImage(image) {
		return nil
	}
	if _, err := r.engineNamed(by); err != nil {
		return err
	}
	return machine.CheckImage(image)
}

// Pull brings an image to the host and unpacks it.
func (r *Runtime) Pull(ctx context.Context, id, image string) (runtime.Pulled, error) {
	if machine.IsHostImage(image) {
		return runtime.Pulled{}, nil
	}
	return r.images.Bring(ctx, id, image)
}

// Remove removes the machine, and lets go of its image.
func (r *Runtime) Remove(ctx context.Context, id string) error {
	r.ahead.forgetMachine(id)
	if err := r.Runtime.Remove(ctx, id); err != nil {
		return err
	}
	return r.images.Release(ctx, id)
}

// Start starts a container, or a process where the image is that of the host.
func (r *Runtime) Start(ctx context.Context, s runtime.Spec) (runtime.Status, error) {
	if machine.IsHostImage(s.Image) {
		return r.Runtime.Start(ctx, s)
	}
	r.ahead.forgetMachine(s.Machine)
	img, err := r.images.Hold(ctx, s.Machine, s.Image)
	if fault.Is(err, fault.NotFound) { // somebody removed it: it is pinned, so not by a command
		if _, err = r.images.Bring(ctx, s.Machine, s.Image); err == nil {
			img, err = r.images.Hold(ctx, s.Machine, s.Image)
		}
	}
	if err != nil {
		return runtime.Status{}, err
	}
	in, err := r.completeSpec(&s, img)
	if err != nil {
		return runtime.Status{}, err
	}
	return r.StartIn(ctx, s, in)
}

// Check looks for a machine's program and user in its image, and for what else its start would refuse. The image is
// here: it was pulled.
func (r *Runtime) Check(ctx context.Context, s runtime.Spec) error {
	if machine.IsHostImage(s.Image) {
		return r.Runtime.Check(ctx, s)
	}
	img, err := r.images.Look(ctx, s.Image)
	if err != nil {
		return err
	}
	in, err := r.completeSpec(&s, img)
	if err != nil {
		return err
	}
	return r.CheckIn(ctx, s, in)
}

// completeSpec completes a specification with what the image says, and returns the container that it is for.
func (r *Runtime) completeSpec(s *runtime.Spec, img Image) (*frame.Container, error) {
	if len(s.Argv) == 0 && s.Args != nil {
		img.Cmd = s.Args
	}
	if len(s.Argv) == 0 {
		s.Argv = append(slices.Clone(img.Entrypoint), img.Cmd...)
	}
	if len(s.Argv) == 0 {
		return nil, fault.New(fault.Invalid, runtime.CodeNoProgram,
			"the image %s names no program and the machine neither: say which it is to run", s.Image)
	}
	s.Env = withDefaults(s.Env, img.Env)
	if s.User == "" {
		s.User = img.User
	}
	s.Home = false // it is that of the user, inside
	e, err := r.engineNamed(s.Runtime)
	if err != nil {
		return nil, err
	}
	in := &frame.Container{
		Engine: e.path, Layers: img.Layers, Dir: img.Dir, Hostname: s.Machine, Init: r.init, ReadOnly: s.ReadOnly,
		StopSignal: stopSignal(img.StopSignal), Volumes: img.Volumes,
	}
	if err := r.connectNetwork(*s, e, in); err != nil {
		return nil, err
	}
	return in, nil
}

// stopSignal reads what an image says of how it is to be stopped; 0 where that is no signal, which stops no launch.
func stopSignal(s string) int {
	sig, err := machine.ParseSignal(s)
	if err != nil {
		return 0
	}
	return int(sig)
}

// withDefaults adds the variables of the image that the machine does not set.
func withDefaults(env, image []string) []string {
	out := slices.Clone(env)
	for _, kv := range image {
		name, _, is := strings.Cut(kv, "=")
		if is && !slices.ContainsFunc(env, func(e string) bool { return strings.HasPrefix(e, name+"=") }) {
			out = append(out, kv)
		}
	}
	return out
}
