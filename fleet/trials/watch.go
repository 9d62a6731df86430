package trials

import (
	"context"
	"log/slog"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/defaults"
	"github.com/soukhq/souk/core/trial"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/wait"
)

// every is how often the jobs of comparisons are read.
const every = 10 * time.Second

// Catalog has the comparisons, by their namespaces; "" is the cluster.
type Catalog interface {
	RunningComparisons() map[string]defaults.Comparison
	StopComparison(namespace, id, why string, now time.Time) error
}

// Options are what a Watch is made of.
type Options struct {
	Jobs    Jobs
	Catalog Catalog
	Self    cluster.WorkerID
	// Members lists the reachable members, this one among them; nil: this process is alone
	Members func() []cluster.WorkerID
	Log     *slog.Logger
}

// Watch ends comparisons in which one scheduler is worse. Each comparison is watched by one of the members that are reached:
// they agree on it without messages, by rendezvous hashing. Where they disagree for a moment two watch it, and end it for
// the same reason; where that member dies another one watches from then on, as it has nothing to remember.
type Watch struct {
	Options
	reader *Reader
}

// NewWatch makes a Watch.
func NewWatch(o Options) *Watch { return &Watch{o, NewReader(o.Jobs)} }

// Run watches until ctx ends.
func (w *Watch) Run(ctx context.Context) {
	for wait.For(ctx, every) == nil {
		w.Look(ctx)
	}
}

// Look reads the comparisons that this member watches, and ends those in which one scheduler is worse by more than the margin.
func (w *Watch) Look(ctx context.Context) {
	for namespace, c := range w.Catalog.RunningComparisons() {
		if c.Margin == 0 || !w.watches(c.ID) {
			continue
		}
		table, _, err := w.reader.Read(ctx, &c)
		if err != nil {
			if ctx.Err() == nil {
				w.Log.Warn("the jobs of a comparison of schedulers could not be read", "comparison", c.ID, "err", err)
			}
			continue
		}
		if f := table.Verdict(c.Margin); f != trial.AWorse && f != trial.BWorse {
			continue
		}
		why := table.VerdictText(c.A, c.B, c.Margin)
		err = w.Catalog.StopComparison(namespace, c.ID, why, time.Now())
		switch {
		case err == nil:
			w.Log.Info("a comparison of schedulers has ended", "namespace", namespace, "a", c.A, "b", c.B, "why", why)
		case !fault.Is(err, fault.Precondition): // else somebody else has ended it
			w.Log.Error("a comparison of schedulers could not be ended", "comparison", c.ID, "err", err)
		}
	}
}

// watches reports whether this member watches a comparison.
func (w *Watch) watches(id string) bool {
	return w.Members == nil || cluster.Steward(w.Members(), "comparison/"+id) == w.Self
}
