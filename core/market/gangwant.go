package market

import (
	"fmt"
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
)

// A gang that waits has tasks kept from the capacity that it needs: where it would be planned if no tasks ran. That is
// asked again now and then, and at the same workers as long as they will do.
const (
	gangWantTTL   = 15 * time.Second
	gangWantAgain = 5 * time.Second
)

// gangWant is where tasks are kept from the capacity.
type gangWant struct {
	homes []cluster.WorkerID // by member; "": nowhere
	asked time.Time
}

// askWanted asks workers to keep tasks from what the gang needs; false: it asked lately, or there are too few that could
// have room for the gang even without tasks.
func (g *GangBuyer) askWanted(now time.Time) (Batch, bool) {
	if !now.Before(g.req.Until) || now.Sub(g.want.asked) < gangWantAgain {
		return Batch{}, false
	}
	view := cluster.View{Workers: slices.Clone(g.view.Workers)}
	for i := range view.Workers {
		view.Workers[i] = WithoutTasks(view.Workers[i])
	}
	same := view
	same.Workers = slices.DeleteFunc(slices.Clone(view.Workers), func(w cluster.Record) bool {
		return !slices.Contains(g.want.homes, w.Worker)
	})
	least := max(1, g.req.Min)
	p := planGang(g.req, same, g.policy)
	if p.n < least {
		p = planGang(g.req, view, g.policy)
	}
	if p.n < least {
		return Batch{}, false
	}
	g.want = gangWant{p.homes, now}
	g.phase = gangWanting
	var asks []Ask
	for m, w := range p.homes {
		if w != "" {
			asks = append(asks, Ask{Act: ActWant, Worker: w, Member: m, Token: fmt.Sprintf("%s.%d", g.req.ID, m),
				TTL: gangWantTTL, Fleet: p.fleets[m]})
		}
	}
	return g.rememberAsks(Batch{Asks: asks}), true
}
