package gateway

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/decision"
	"github.com/soukhq/souk/decisionlog"
	"github.com/soukhq/souk/fault"
)

func (g *Gateway) listDecisions(w http.ResponseWriter, r *http.Request) error {
	v := r.URL.Query()
	q := decisionlog.Query{App: v.Get("app"), Machine: v.Get("machine"), Before: v.Get("cursor"), Outcome: decision.Outcome(v.Get("outcome"))}
	if text := v.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > decisionlog.MaxFound {
			return fault.New(fault.Invalid, "limit", "limit is a number from 1 to %d, not %q", decisionlog.MaxFound, clip(text, 40))
		}
		q.Limit = n
	}
	if text := v.Get("since"); text != "" {
		var err error
		if q.Since, err = sinceText(text, time.Now()); err != nil {
			return err
		}
	}
	found, err := g.findDecisions(r.Context(), q)
	if err != nil {
		return err
	}
	page := api.DecisionPage{Decisions: append([]*decision.Decision{}, found.Decisions...), Notes: notesOf(found)}
	if found.More {
		page.NextCursor = found.Decisions[len(found.Decisions)-1].ID
	}
	answer(w, http.StatusOK, page)
	return nil
}

// sinceText reads an RFC 3339 time, or how long ago: 90s, 24h.
func sinceText(text string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return t, fault.New(fault.Invalid, "since", "since is a time as 2026-01-02T15:04:05Z, or how long ago as 24h, not %q", clip(text, 40))
	}
	return t, nil
}

// findDecisions asks the log. Without one there is nothing to find.
func (g *Gateway) findDecisions(ctx context.Context, q decisionlog.Query) (decisionlog.Found, error) {
	if g.decisions == nil {
		return decisionlog.Found{}, nil
	}
	return g.decisions.Find(ctx, q)
}

// notesOf says what of the log was passed over. The paths are the operator's business, and are in the log.
func notesOf(f decisionlog.Found) (notes []string) {
	for _, t := range f.Torn {
		notes = append(notes, "the end of "+t.File+" was not written whole: "+strconv.FormatInt(t.Bytes, 10)+" bytes are passed over")
	}
	if f.Damage != nil {
		notes = append(notes, f.Damage.Error())
	}
	return notes
}

func (g *Gateway) getDecision(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("decision")
	found, err := g.findDecisions(r.Context(), decisionlog.Query{ID: id, Limit: 1})
	if err != nil {
		return err
	}
	if len(found.Decisions) == 0 {
		if found.Damage != nil {
			return found.Damage
		}
		return fault.New(fault.NotFound, "decision", "no decision has the id %s: it may have been too long ago for the log", clip(id, 40))
	}
	answer(w, http.StatusOK, api.ExplainedDecision{Decision: found.Decisions[0], Sentences: decision.Explain(found.Decisions[0])})
	return nil
}

func (g *Gateway) getView(w http.ResponseWriter, r *http.Request) error {
	view := g.view(r.Context())
	there := map[cluster.WorkerID]bool{}
	out := api.FleetView{At: view.At, Workers: []api.AgedRecord{}, Unreachable: []api.UnreachableWorker{}}
	for _, k := range view.Workers {
		there[k.Worker] = true
		out.Workers = append(out.Workers, api.AgedRecord{Age: max(0, decision.Millis(view.At.Sub(k.At))), Record: k})
	}
	for _, k := range g.workers() {
		if !there[k.ID()] {
			out.Unreachable = append(out.Unreachable, api.UnreachableWorker{Worker: k.ID(), Error: "it does not answer"})
		}
	}
	answer(w, http.StatusOK, out)
	return nil
}
