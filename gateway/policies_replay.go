package gateway

import (
	"context"
	"time"

	"github.com/soukhq/souk/decision"
	"github.com/soukhq/souk/decisionlog"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/placement"
	"github.com/soukhq/souk/policy/whatif"
)

// Bounds of what a plan looks at in the decision log.
const (
	replayedSince = 24 * time.Hour
	mostReplayed  = 500 // newest decisions
)

// recorded gives the newest decisions that a policy made within a day: those whose whole view was kept, and whose first ask
// was granted, so that another winner can only be another policy's.
func (g *Gateway) recorded(ctx context.Context, by string) ([]whatif.Decided, error) {
	if g.decisions == nil {
		return nil, nil
	}
	if err := g.decisions.Flush(ctx); err != nil {
		return nil, err
	}
	since := time.Now().Add(-replayedSince)
	var out []whatif.Decided
	_, err := decisionlog.Scan(g.decisions.Dir(), func(l *decision.Line, book *decision.Book) error {
		d := l.Decision
		if d == nil || d.At.Before(since) || d.Policy.Name != by || d.Outcome != decision.Placed || len(d.Asks) != 1 || !d.Complete() {
			return ctx.Err()
		}
		view, whole := decision.View(d, book.Get)
		if !whole {
			return ctx.Err()
		}
		if out = append(out, whatif.Decided{Request: d.Request, View: view, Winner: d.Winner}); len(out) >= 2*mostReplayed {
			out = append(out[:0], out[mostReplayed:]...)
		}
		return ctx.Err()
	})
	if err != nil && fault.CodeOf(err) != "log_damaged" { // what is whole is enough
		return nil, err
	}
	return out[max(0, len(out)-mostReplayed):], ctx.Err()
}

// replay says which of the recorded decisions of a policy another would have made otherwise.
func (g *Gateway) replay(ctx context.Context, by string, then *placement.Policy) (*whatif.Comparison, error) {
	decided, err := g.recorded(ctx, by)
	if err != nil || len(decided) == 0 {
		return nil, err
	}
	out := whatif.Replay(decided, func(*placement.Request) *placement.Policy { return then })
	return &out, nil
}
