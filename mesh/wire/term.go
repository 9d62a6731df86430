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

// termAnswer is the machines of the app's service on the worker, at the moment the term came into force.
type termAnswer struct {
	Machines []lifecycle.Replica `json:"machines"`
}

// Obey puts a steward's term in force for an app, and returns the machines of its service on the worker at that moment.
func (w *Worker) Obey(ctx context.Context, app string, t cluster.Term) ([]lifecycle.Replica, error) {
	var out termAnswer
	err := w.callMember(ctx, pathTerm, readTime, termArgs{app, t}, &out)
	return out.Machines, err
}
