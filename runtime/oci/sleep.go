package oci

import (
	"context"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/reaper/frame"
)

// Hibernate suspends a container of runsc to disk. Its memory is written unencrypted, so a worker that must not have
// secrets on disk refuses it (Options.Awake).
func (r *Runtime) Hibernate(ctx context.Context, id string, attempt uint64) error {
	if r.awake != nil {
		return fault.Wrap(r.awake, fault.Precondition, runtime.CodeAwake, "machine %s cannot be suspended to disk", id)
	}
	return r.HibernateIn(ctx, id, attempt)
}

// Wake resumes a suspended machine.
func (r *Runtime) Wake(ctx context.Context, s runtime.Spec) (runtime.Status, error) {
	var in *frame.Container
	if !machine.IsHostImage(s.Image) {
		img, err := r.images.Hold(ctx, s.Machine, s.Image)
		if err != nil {
			return runtime.Status{}, err
		}
		if in, err = r.completeSpec(&s, img); err != nil {
			return runtime.Status{}, err
		}
	}
	return r.WakeIn(ctx, s, in)
}
