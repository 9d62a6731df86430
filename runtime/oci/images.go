package oci

import (
	"context"
	"path"
	"slices"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/image"
	"github.com/soukhq/souk/runtime/reaper/spec"
)

// defaultPath is the PATH for an image without one.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Stored implements Images with an image store.
type Stored struct {
	Store *image.Store
}

// Bring pulls an image unless the store has it, pins it for a machine and unpacks it.
func (s Stored) Bring(ctx context.Context, machine, ref string) (out runtime.Pulled, err error) {
	is, err := s.Store.Get(ref)
	if fault.Is(err, fault.NotFound) {
		is, err = s.Store.Pull(ctx, ref, image.PullOptions{})
	}
	if err != nil {
		return out, err
	}
	if err := s.Store.Pin(ctx, is.Digest, machine); err != nil {
		return out, err
	}
	_, err = s.Store.Unpack(ctx, is.Digest)
	return runtime.Pulled{Digest: is.Digest, Volumes: volumesOf(is.Config.Volumes)}, err
}

// maxVolumes bounds the volumes of an image that are handled. Images have one or two.
const maxVolumes = 32

// volumesOf returns the directories of an image's volumes that can hold its data: not those of the kernel, and no
// invalid paths.
func volumesOf(declared []string) (out []string) {
	for _, v := range declared {
		if at, err := spec.Target(v); err == nil {
			out = append(out, at)
		}
	}
	slices.Sort(out)
	out = slices.Compact(out)
	return out[:min(len(out), maxVolumes)]
}

// Hold pins an image for a machine, in place of the machine's earlier pins, and unpacks it if needed.
func (s Stored) Hold(ctx context.Context, machine, ref string) (Image, error) {
	is, err := s.Store.Get(ref)
	if err != nil { // the machine keeps its earlier pins
		return Image{}, err
	}
	if err := s.Store.PinOnly(ctx, is.Digest, machine); err != nil {
		return Image{}, err
	}
	return s.Look(ctx, ref)
}

// Look unpacks an image that is pinned for a machine, if needed.
func (s Stored) Look(ctx context.Context, ref string) (Image, error) {
	is, err := s.Store.Get(ref)
	if err != nil {
		return Image{}, err
	}
	root, err := s.Store.Unpack(ctx, is.Digest)
	if err != nil {
		return Image{}, err
	}
	if root.Xattrs {
		return Image{}, fault.New(fault.Precondition, runtime.CodeRootfs,
			"the layers of %s were unpacked by a souk that was not root, and cannot be mounted for other users", ref)
	}
	c := root.Image.Config
	env := withDefaults(c.Env, []string{"PATH=" + defaultPath})
	dir := c.WorkDir
	if dir != "" && !path.IsAbs(dir) { // as other engines do
		dir = "/" + dir
	}
	return Image{root.Lower, c.Entrypoint, c.Cmd, env, c.User, dir, c.StopSignal, volumesOf(c.Volumes)}, nil
}

// Release removes a machine's pins. If the disk is nearly full, the images then go.
func (s Stored) Release(ctx context.Context, machine string) error {
	if err := s.Store.Unpin(ctx, machine); err != nil {
		return err
	}
	_, _ = s.Store.Relieve(ctx) // a later call retries it
	return nil
}
