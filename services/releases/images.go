package releases

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime/image"
)

// Images finds out which image a name means. The image store of the host does.
type Images interface {
	Resolve(ctx context.Context, name string) (image.Resolved, error)
	// Known is Resolve without asking a registry: false where no image is here by the name.
	Known(name string) (image.Resolved, bool)
}

// pinTime bounds how long the registries of a release may take to say what its images are.
const pinTime = 10 * time.Second

// pin has each group of a release name its image with the digest that its name means now, so that all machines of the
// release are of the same one. It returns the names of those images that were taken as they are on this host. ask allows
// that registries are asked: who may only read may not have this host connect to whatever address a name has.
func (a *Releases) pin(ctx context.Context, r *release.Release, ask bool) (here []string, err error) {
	if a.Images == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, pinTime)
	defer cancel()
	groups := map[string]string{} // by image, the first group that has it
	for i := range r.Groups {
		name := r.Groups[i].Config.Image
		if machine.IsHostImage(name) || machine.ParseImage(name).Digest != "" {
			continue
		}
		if _, known := groups[name]; !known {
			groups[name] = r.Groups[i].Name
		}
	}
	var mu sync.Mutex
	digests := map[string]string{}
	var all errgroup.Group
	all.SetLimit(8)
	for name, group := range groups {
		all.Go(func() error {
			x, err := a.meant(ctx, group, name, ask)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			if digests[name] = x.Digest; x.Here {
				here = append(here, name)
			}
			return nil
		})
	}
	if err := all.Wait(); err != nil {
		return nil, err
	}
	for i := range r.Groups {
		if digest, found := digests[r.Groups[i].Config.Image]; found {
			c := *r.Groups[i].Config
			c.Image += "@" + digest
			r.Groups[i].Config = &c
		}
	}
	slices.Sort(here)
	return here, nil
}

// meant returns which image a group's name means.
func (a *Releases) meant(ctx context.Context, group, name string, ask bool) (image.Resolved, error) {
	if !ask {
		x, known := a.Images.Known(name)
		if !known {
			return x, fault.New(fault.Denied, fault.CodeRole,
				"group %s has the image %s, which is not at this member, and a token that may not deploy does not "+
					"have its registry asked: name the image with its digest, or use a token with the role %s", group,
				fault.Clip(name, 120), api.RoleOperator)
		}
		return x, nil
	}
	x, err := a.Images.Resolve(ctx, name)
	if err != nil {
		return x, unresolved(group, name, err)
	}
	return x, nil
}

// unresolved is the error of an image of which nobody says what it is.
func unresolved(group, name string, err error) error {
	kind, code := fault.KindOf(err), fault.As(err).Code
	if errors.Is(err, context.DeadlineExceeded) {
		kind, code = fault.Unavailable, fault.CodeRegistrySlow
		err = fmt.Errorf("the registry %s did not answer within %v", machine.ParseImage(name).Registry, pinTime)
	}
	return fault.New(kind, code, "group %s has the image %s, and nobody says which that is now: %v; nothing was "+
		"changed: see to the name or the registry, name the image with its digest, or load it at this member (souk "+
		"image load)", group, fault.Clip(name, 120), err)
}
