package wire

import (
	"cmp"
	"context"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/lifecycle"
)

const pathTerm = "/wire/term"

type termArgs struct {
	App  string       `json:"app"`
	Term cluster.Term `json:"term"`
}

func (a *termArgs) check() error { return cmp.Or(checkLengths(a.App), a.Term.Check()) }

// termAnswer is what a worker has of the service of an app whose term it obeys.
type termAnswer struct {
	Machines []lifecycle.Replica `json:"machines"`
}

// Obey makes a steward's term that in force for an app, and returns which machines of its service the worker has then.
func (w *Worker) Obey(ctx context.Context, app string, t cluster.Term) ([]lifecycle.Replica, error) {
	var out termAnswer
	err := w.callMember(ctx, pathTerm, readTime, termArgs{app, t}, &out)
	return out.Machines, err
}
