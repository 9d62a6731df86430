package wire

import (
	"cmp"
	"context"

	"github.com/soukhq/souk/cluster"
)

const pathTerm = "/wire/term"

type termArgs struct {
	App  string       `json:"app"`
	Term cluster.Term `json:"term"`
}

func (a *termArgs) check() error { return cmp.Or(short(a.App), a.Term.Check()) }

// Obey makes a steward's term that in force for an app.
func (w *Worker) Obey(ctx context.Context, app string, t cluster.Term) error {
	return w.call(ctx, pathTerm, readTime, termArgs{app, t}, nil)
}
