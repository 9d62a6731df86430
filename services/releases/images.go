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

// Images resolves image names. The host's image store implements it.
type Images interface {
	Resolve(ctx context.Context, name string) (image.Resolved, error)
	// Known is Resolve without asking a registry; false: this host has no image of that name.
	Known(name string) (image.Resolved, bool)
}

// pinTime bounds how long registries may take to resolve a release's images.
const pinTime = 10 * time.Second

// pin adds the current digest to each group's image name, so that all machines of the release use the same image. It
// returns the names that it resolved from this host's images. ask allows registry requests: a caller who may only read
// must not make this host connect to arbitrary addresses.
func (a *Releases) pin(ctx context.Context, r *release.Release, ask bool) (here []string, err error) {
	if a.Images == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, pinTime)
	defer cancel()
	groups := map[string]string{} // image to the first group that uses it
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

// meant resolves a group's image name.
func (a *Releases) meant(ctx context.Context, group, name string, ask bool) (image.Resolved, error) {
	if !ask {
		x, known := a.Images.Known(name)
		if !known {
			return x, fault.New(fault.Denied, fault.CodeRole,
				"group %s has the image %s, which is not at this member, and souk asks no registry for a token that "+
					"may not deploy: name the image with its digest, or use a token with the role %s", group,
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

// unresolved is the error of an image name that could not be resolved.
func unresolved(group, name string, err error) error {
	kind, code := fault.KindOf(err), fault.As(err).Code
	if errors.Is(err, context.DeadlineExceeded) {
		kind, code = fault.Unavailable, fault.CodeRegistrySlow
		err = fmt.Errorf("the registry %s did not answer within %v", machine.ParseImage(name).Registry, pinTime)
	}
	return fault.New(kind, code, "group %s has the image %s, and souk cannot find out its digest now: %v; nothing "+
		"was changed: check the name and the registry, name the image with its digest, or load it at this member "+
		"(souk image load)", group, fault.Clip(name, 120), err)
}
