package worker

import (
	"time"

	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/core/quota"
)

// Budgets sets what namespaces may spend and what is spent elsewhere. Before the first call, and for namespaces
// without a budget, spending is unlimited: a worker starts without other members.
func (w *Worker) Budgets(b quota.Limits) {
	w.loop.postInput(func(now time.Time) lifecycle.Out { return w.loop.sup.Budgets(now, b) })
}
