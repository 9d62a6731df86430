package gateway

import (
	"net/http"
	"strconv"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/decision"
	"github.com/soukhq/souk/decisionlog"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/placement"
)

// explain tells of a machine that is there, and of one that is gone as long as the log has its decision.
func (g *Gateway) explain(w http.ResponseWriter, r *http.Request) error {
	number := 0
	if text := r.URL.Query().Get("decision"); text != "" {
		var err error
		if number, err = strconv.Atoi(text); err != nil || number < 1 {
			return fault.New(fault.Invalid, "decision", "decision is a number from 1, not %q", clip(text, 40))
		}
	}
	f, missing := g.named(r)
	if missing != nil && fault.CodeOf(missing) != machineMissing {
		return missing
	}
	out := api.Explanation{Machine: r.PathValue("id"), Now: []machine.Candidate{}, Sentences: []string{}}
	if missing == nil {
		out.Machine, out.Worker, out.Placement = f.machine.ID, f.worker.ID(), f.machine.Placement
	}
	found, err := g.findDecisions(r.Context(), decisionlog.Query{App: r.PathValue("app"), Machine: out.Machine, Limit: decisionlog.MaxFound})
	if err != nil {
		return err
	}
	if missing != nil && len(found.Decisions) == 0 {
		return missing
	}
	out.Notes = notesOf(found)
	if number == 0 && missing == nil {
		number = len(found.Decisions) - overtaken(found.Decisions, f.machine)
	}
	if err := chooseDecision(&out, found.Decisions, number); err != nil {
		return err
	}
	if missing == nil {
		out.Now = g.quotes(r.Context(), explainedRequest(&out, f.machine))
	}
	answer(w, http.StatusOK, out)
	return nil
}

// overtaken counts the refused starts and updates, of decisions that are newest first, that no longer say how the machine
// stands: it has started, or become another instance, since.
func overtaken(found []*decision.Decision, m *machine.Machine) (n int) {
	var last time.Time
	for _, e := range m.Events {
		if e.Type == "start" || e.Type == "launch" {
			last = time.UnixMilli(e.Timestamp)
			break // newest first
		}
	}
	for n < len(found) && found[n].Own != nil && !found[n].At.Truncate(time.Millisecond).After(last) { // events count milliseconds
		n++
	}
	if n == len(found) {
		return 0 // there is nothing else to tell
	}
	return n
}

// chooseDecision takes the decision that is asked for: the newest when number is 0. found is newest first.
func chooseDecision(e *api.Explanation, found []*decision.Decision, number int) error {
	n := len(found)
	for i := n - 1; i >= 0; i-- {
		d := found[i]
		e.Decisions = append(e.Decisions, api.DecisionSummary{ID: d.ID, At: d.At, Why: d.Why, Outcome: d.Outcome, Worker: d.Winner})
	}
	if number > n {
		return fault.New(fault.NotFound, "decision", "the log has %d decisions about machine %s; give a number from 1 to %d", n, e.Machine, n)
	}
	if n == 0 {
		return nil
	}
	if number == 0 {
		number = n
	}
	e.Number, e.Decision = number, found[n-number]
	e.Sentences = decision.Explain(e.Decision)
	return nil
}

// explainedRequest is what to ask the workers now: what the decision asked, or what the machine's config says.
func explainedRequest(e *api.Explanation, m *machine.Machine) placement.Request {
	if e.Decision != nil && e.Decision.Own == nil {
		r := e.Decision.Request
		r.Resources = machine.Resources(m.Config) // an update may have changed it
		return r
	}
	return requestOf(m)
}
