// Package oci runs machines as containers of OCI images, by any OCI runtime: runc, crun or runsc (gVisor).
//
// It is package process with another way to start: the reaper lets the OCI runtime make the container, and from then on
// it is a life like any other, with the same cgroup, output, exit and end (docs/decisions/0047-containers.md). Machines
// of the image souk/host, programs of the host, are run as processes by the same reaper.
//
// # What a container gets
//
//   - the image's files as its root, with a writable layer above, which is empty again at each start
//   - a user namespace: its root is an unprivileged user on the host, a different one for each container
//   - the restrictions of package spec: a system call filter, few capabilities, no way to gain more
//   - the machine's cgroup, with its limits
//   - the machine's files, in memory only; its volumes
//   - a network of its own (package hostnet), if Options.Network is set; else loopback only
package oci

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/process"
	"github.com/soukhq/souk/runtime/reaper/engine"
	"github.com/soukhq/souk/runtime/reaper/frame"
)

// Image is what a container is made from. Its layers must not change while it is used.
type Image struct {
	Layers     []string // directories, topmost first
	Entrypoint []string
	Cmd        []string
	Env        []string
	User       string // "": root
	Dir        string
	StopSignal string   // "": none
	Volumes    []string // directories for its data: absolute, clean, sorted, without duplicates
}

// Images provides the host's images. NotFound means that an image is not on the host.
type Images interface {
	// Bring brings an image to the host unless it is there, and pins it for a machine in addition to its other pins.
	Bring(ctx context.Context, machine, ref string) (runtime.Pulled, error)
	// Hold makes an image ready for a machine, and makes it the machine's only pin until Release.
	Hold(ctx context.Context, machine, ref string) (Image, error)
	// Look is Hold for an image that is pinned already; it changes no pins.
	Look(ctx context.Context, ref string) (Image, error)
	// Release removes a machine's pins; nil if there are none.
	Release(ctx context.Context, machine string) error
}

// Options of a runtime.
type Options struct {
	Process process.Options
	Engines []string // names or paths of OCI runtimes; the first is the default for machines; nil: runc
	Init    string   // name or path of a static init such as tini; "": the first known one found on the host, if any
	Images  Images
	Network *Network // nil: containers have only loopback
	// Awake is why no machine is suspended to disk; nil: machines can be, if their runtime supports it.
	Awake error
	Ready int // how many stopped machines may have a prepared container; 0: none
}

// Runtime runs containers, and processes.
type Runtime struct {
	*process.Runtime
	images  Images
	network *Network
	engines []program // the first is the default for machines
	init    string    // path; "": none
	ahead   *ahead
	awake   error // why no machine is suspended to disk; nil: it is allowed
	// fresh has the IDs of fresh lives of souk/host, which pin nothing: Release reads all pins of this host.
	fresh sync.Map
}

var (
	_ runtime.Runtime = (*Runtime)(nil)
	_ runtime.Puller  = (*Runtime)(nil)
	_ runtime.Readier = (*Runtime)(nil)
	_ runtime.Checker = (*Runtime)(nil)

	_ runtime.Hibernator = (*Runtime)(nil)
	_ runtime.DirFinder  = (*Runtime)(nil)
)

// program is an installed OCI runtime.
type program struct {
	name string
	path string

	unconnected error // why its containers can have no network; nil: they can
	unshared    error // why its containers cannot share the host's network; nil: they can
}

// Open is process.Open, and also finds the OCI runtimes.
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
				"a machine run by %s has a kernel of its own, which cannot share the host's network: run it by "+
					"another runtime, or with a network of its own", p.name)
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

// engineNamed returns the OCI runtime of a name; "" means the default.
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

// findInit finds a program made to be a container's process 1: it forwards signals and reaps orphans. A program that is
// itself process 1 gets only the signals that it handles, and must reap orphans.
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

// Name returns "oci".
func (*Runtime) Name() string { return "oci" }

// CanRun accepts souk/host, and any valid image name if the OCI runtime exists.
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
	r.fresh.Delete(id)
	return r.images.Bring(ctx, id, image)
}

// Remove removes the machine, and its pins.
func (r *Runtime) Remove(ctx context.Context, id string) error {
	r.ahead.forgetMachine(id)
	if err := r.Runtime.Remove(ctx, id); err != nil {
		return err
	}
	return r.releaseImage(ctx, id)
}

// RemoveAll implements runtime.Remover.
func (r *Runtime) RemoveAll(ctx context.Context, ids []string) error {
	for _, id := range ids {
		r.ahead.forgetMachine(id)
	}
	err := r.Runtime.RemoveAll(ctx, ids)
	if err != nil {
		return err
	}
	for _, id := range ids {
		err = errors.Join(err, r.releaseImage(ctx, id))
	}
	return err
}

// releaseImage gives back the image of a removed machine, if it has one.
func (r *Runtime) releaseImage(ctx context.Context, id string) error {
	if _, unpinned := r.fresh.LoadAndDelete(id); unpinned {
		return nil
	}
	return r.images.Release(ctx, id)
}

// Start starts a container, or a process if the image is souk/host.
func (r *Runtime) Start(ctx context.Context, s runtime.Spec) (runtime.Status, error) {
	if machine.IsHostImage(s.Image) {
		if s.Fresh {
			r.fresh.Store(s.Machine, true)
		}
		return r.Runtime.Start(ctx, s)
	}
	if err := checkHostOnly(&s); err != nil {
		return runtime.Status{}, err
	}
	r.fresh.Delete(s.Machine)
	r.ahead.forgetMachine(s.Machine)
	img, err := r.images.Hold(ctx, s.Machine, s.Image)
	if fault.Is(err, fault.NotFound) { // something removed it although it is pinned
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

// checkHostOnly refuses for a container what only a program of the host has.
func checkHostOnly(s *runtime.Spec) error {
	if err := s.As.Check(s.User, true); err != nil {
		return err
	}
	return s.Stdio.Check(s.Dir, true, false)
}

// Check checks that the image has the machine's program and user, and for other reasons to refuse its start. The image
// has been pulled already.
func (r *Runtime) Check(ctx context.Context, s runtime.Spec) error {
	if machine.IsHostImage(s.Image) {
		return r.Runtime.Check(ctx, s)
	}
	if err := checkHostOnly(&s); err != nil {
		return err
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

// completeSpec fills in a specification from the image, and returns the container's description.
func (r *Runtime) completeSpec(s *runtime.Spec, img Image) (*frame.Container, error) {
	if len(s.Argv) == 0 && s.Args != nil {
		img.Cmd = s.Args
	}
	if len(s.Argv) == 0 {
		s.Argv = append(slices.Clone(img.Entrypoint), img.Cmd...)
	}
	if len(s.Argv) == 0 {
		return nil, fault.New(fault.Invalid, runtime.CodeNoProgram,
			"neither the image %s nor the machine names a program: say which one to run", s.Image)
	}
	s.Env = withDefaults(s.Env, img.Env)
	if s.User == "" {
		s.User = img.User
	}
	s.Home = false // the container's own user database sets it
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

// stopSignal parses an image's stop signal; 0 if it is invalid, which does not prevent a launch.
func stopSignal(s string) int {
	sig, err := machine.ParseSignal(s)
	if err != nil {
		return 0
	}
	return int(sig)
}

// withDefaults adds the image's variables that the machine does not set.
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
