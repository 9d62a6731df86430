package oci

import (
	"context"

	"github.com/soukhq/souk/runtime"
)

// StopSignal reads an image's.
func StopSignal(s string) int { return stopSignal(s) }

// MakeReady is what Ready has done a moment later.
func (r *Runtime) MakeReady(ctx context.Context, s runtime.Spec) error { return r.makeReady(ctx, s) }

// TryAs is Try by a container whose id the test knows.
func TryAs(ctx context.Context, path, id string) error { return tryAs(ctx, path, id) }
