package oci

import (
	"context"

	"github.com/soukhq/souk/runtime"
)

// MakeReady is what Ready has done a moment later.
func (r *Runtime) MakeReady(ctx context.Context, s runtime.Spec) error { return r.makeReady(ctx, s) }
