package oci

import (
	"context"
	"errors"
	"slices"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/image"
)

// Stored are the images of a store.
type Stored struct {
	Store *image.Store
}

// Has finds an image in the store.
func (s Stored) Has(ref string) error {
	_, err := s.Store.Get(ref)
	return err
}

// Hold pins an image for a machine, in place of what it had before, and unpacks what is not unpacked yet.
func (s Stored) Hold(ctx context.Context, machine, ref string) (Image, error) {
	is, err := s.Store.Get(ref)
	if err != nil { // it goes on having what it has
		return Image{}, err
	}
	if !slices.Contains(is.Pins, machine) { // a start that is asked for again may be of a machine that runs
		if err := errors.Join(s.Store.Unpin(ctx, machine), s.Store.Pin(ctx, ref, machine)); err != nil {
			return Image{}, err
		}
	}
	root, err := s.Store.Unpack(ctx, ref)
	if err != nil {
		return Image{}, err
	}
	if root.Xattrs {
		return Image{}, fault.New(fault.Precondition, "rootfs",
			"the layers of %s were unpacked by somebody who is not root, and cannot be mounted for others", ref)
	}
	c := root.Image.Config
	return Image{root.Lower, c.Entrypoint, c.Cmd, c.Env, c.User, c.WorkDir}, nil
}

// Release takes a machine's pins back.
func (s Stored) Release(ctx context.Context, machine string) error {
	return s.Store.Unpin(ctx, machine)
}
