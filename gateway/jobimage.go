package gateway

import (
	"context"
	"time"

	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// pinTime bounds how long a registry may take to say which image a name means now.
const pinTime = 10 * time.Second

// pinImage adds to the name of a job's image the digest that it has now, so that all tasks run the same image.
func (a *jobsAPI) pinImage(ctx context.Context, spec *jobs.Spec) error {
	if spec.Image == "" || a.images == nil || machine.ParseImage(spec.Image).Digest != "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, pinTime)
	defer cancel()
	x, err := a.images.Resolve(ctx, spec.Image)
	if err != nil {
		return fault.Wrap(err, fault.KindOf(err), fault.CodeOf(err), "souk cannot find out now which image %s means: "+
			"check the name and the registry, name the image with its digest, or load it at this member (souk image "+
			"load)", fault.Clip(spec.Image, 120))
	}
	spec.Image += "@" + x.Digest
	return nil
}
