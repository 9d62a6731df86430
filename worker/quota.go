package worker

import (
	"time"

	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/core/quota"
)

// Budgets tells the worker what namespaces may spend and what is spent elsewhere. Until it is first told, and for
// namespaces that it is not told of, everything may be spent: a worker starts without anybody.
func (w *Worker) Budgets(b quota.Limits) {
	w.loop.postInput(func(now time.Time) lifecycle.Out { return w.loop.sup.Budgets(now, b) })
}
