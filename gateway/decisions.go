package gateway

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/broker/known"
	"github.com/soukhq/souk/core/decision"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet/find"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/store/decisionlog"
)

// decisionsAPI serves decisions with their reasons, and the fleet as a decision would see it.
type decisionsAPI struct {
	decisions *decisionlog.Log // nil: none are recorded
	chosen    known.Policies
	directory *directory
}

func (a *decisionsAPI) opHandlers() handlers {
	return handlers{
		"GET /v1/souk/decisions":                        a.listDecisions,
		"GET /v1/souk/decisions/{decision}":             a.getDecision,
		"GET /v1/souk/view":                             a.getView,
		"GET /v1/souk/apps/{app}/machines/{id}/explain": a.explainMachine,
	}
}

func (a *decisionsAPI) listDecisions(w http.ResponseWriter, r *http.Request) error {
	v := r.URL.Query()
	q := decisionlog.Query{App: v.Get("app"), Machine: v.Get("machine"), Before: v.Get("cursor"),
		Outcome: decision.Outcome(v.Get("outcome"))}
	if text := v.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > decisionlog.MaxFound {
			return fault.New(fault.Invalid, codeLimit,
				"limit is a number from 1 to %d, not %q", decisionlog.MaxFound, clipText(text, 40))
		}
		q.Limit = n
	}
	if text := v.Get("since"); text != "" {
		var err error
		if q.Since, err = sinceText(text, time.Now()); err != nil {
			return err
		}
	}
	found, err := a.findDecisions(r.Context(), q)
	if err != nil {
		return err
	}
	page := api.DecisionPage{Decisions: append([]*decision.Decision{}, found.Decisions...), Notes: notesOf(found)}
	if found.More {
		page.NextCursor = found.Decisions[len(found.Decisions)-1].ID
	}
	answerJSON(w, http.StatusOK, page)
	return nil
}

// sinceText parses an RFC 3339 time, or an age such as 90s or 24h.
func sinceText(text string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return t, fault.New(fault.Invalid, codeSince,
			"since is a time as 2026-01-02T15:04:05Z, or how long ago as 24h, not %q", clipText(text, 40))
	}
	return t, nil
}

// findDecisions asks the log. Without a log it finds nothing.
func (a *decisionsAPI) findDecisions(ctx context.Context, q decisionlog.Query) (decisionlog.Found, error) {
	if a.decisions == nil {
		return decisionlog.Found{}, nil
	}
	return a.decisions.Find(ctx, q)
}

// notesOf says which parts of the log were skipped. File paths are for the operator only, so they go to the process's
// log.
func notesOf(f decisionlog.Found) (notes []string) {
	for _, t := range f.Torn {
		notes = append(notes, "the end of "+t.File+" was not written whole: "+strconv.FormatInt(t.Bytes, 10)+
			" bytes are passed over")
	}
	if f.Damage != nil {
		notes = append(notes, f.Damage.Error())
	}
	return notes
}

// elsewhere says where a decision may be that is not in the log of this member.
const elsewhere = "each member keeps the decisions that it made itself: ask the one that was asked for this machine, " +
	"or it was too long ago for its log"

// hasOtherMembers reports whether there are other members, which decide too.
func (a *decisionsAPI) hasOtherMembers() bool {
	for w := range a.directory.Fleet.Snapshot().Workers() {
		if !w.Own {
			return true
		}
	}
	return false
}

func (a *decisionsAPI) getDecision(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("decision")
	found, err := a.findDecisions(r.Context(), decisionlog.Query{ID: id, Limit: 1})
	if err != nil {
		return err
	}
	if len(found.Decisions) == 0 {
		if found.Damage != nil {
			return found.Damage
		}
		if a.hasOtherMembers() {
			return fault.New(fault.NotFound, codeDecision,
				"no decision has the id %s here; %s", clipText(id, 40), elsewhere)
		}
		return fault.New(fault.NotFound, codeDecision,
			"no decision has the id %s: it may have been too long ago for the log", clipText(id, 40))
	}
	answerJSON(w, http.StatusOK, api.ExplainedDecision{Decision: found.Decisions[0],
		Sentences: decision.Explain(found.Decisions[0])})
	return nil
}

func (a *decisionsAPI) getView(w http.ResponseWriter, r *http.Request) error {
	view := a.directory.View()
	out := api.FleetView{At: view.At, Workers: []api.AgedRecord{}, Unreachable: []api.UnreachableWorker{}}
	for _, k := range view.Workers {
		out.Workers = append(out.Workers, api.AgedRecord{Age: max(0, decision.Millis(view.At.Sub(k.At))), Record: k})
	}
	for k := range a.directory.Fleet.Snapshot().Workers() {
		if !k.Ready() {
			out.Unreachable = append(out.Unreachable, api.UnreachableWorker{Worker: k.ID, Error: "it does not answer"})
		}
	}
	answerJSON(w, http.StatusOK, out)
	return nil
}

// explainMachine explains an existing machine, or a gone one as long as the log has its decision.
func (a *decisionsAPI) explainMachine(w http.ResponseWriter, r *http.Request) error {
	number := 0
	if text := r.URL.Query().Get("decision"); text != "" {
		var err error
		if number, err = strconv.Atoi(text); err != nil || number < 1 {
			return fault.New(fault.Invalid, codeDecision, "decision is a number from 1, not %q", clipText(text, 40))
		}
	}
	f, missing := a.directory.machineNamed(r)
	if missing != nil && fault.CodeOf(missing) != find.MachineMissing {
		return missing
	}
	out := api.Explanation{Machine: r.PathValue("id"), Now: []machine.Candidate{}, Sentences: []string{}}
	if missing == nil {
		out.Machine, out.Worker, out.Placement = f.Machine.ID, f.Worker.ID(), f.Machine.Placement
	}
	found, err := a.findDecisions(r.Context(), decisionlog.Query{App: r.PathValue("app"), Machine: out.Machine,
		Limit: decisionlog.MaxFound})
	if err != nil {
		return err
	}
	if missing != nil && len(found.Decisions) == 0 {
		return missing
	}
	out.Notes = notesOf(found)
	if len(found.Decisions) == 0 && a.hasOtherMembers() {
		out.Notes = append(out.Notes, elsewhere)
	}
	if number == 0 && missing == nil {
		number = len(found.Decisions) - countOvertaken(found.Decisions, f.Machine)
	}
	if err := chooseDecision(&out, found.Decisions, number); err != nil {
		return err
	}
	if missing == nil {
		out.Evicted = a.evictedFor(f.Machine)
		out.Now = a.askQuotes(r.Context(), explainedRequest(&out, f.Machine))
	}
	answerJSON(w, http.StatusOK, out)
	return nil
}

// countOvertaken counts the refused starts and updates that are out of date, since the machine has started or been
// updated after them. found is newest first.
func countOvertaken(found []*decision.Decision, m *machine.Machine) (n int) {
	var last time.Time
	for _, e := range m.Events {
		if e.Type == "start" || e.Type == "launch" {
			last = time.UnixMilli(e.Timestamp)
			break // newest first
		}
	}
	for n < len(found) && found[n].Own != nil && !found[n].At.Truncate(time.Millisecond).After(last) {
		// event times have milliseconds
		n++
	}
	if n == len(found) {
		return 0 // show them all the same: there is nothing else
	}
	return n
}

// chooseDecision selects the decision with a number; 0: the newest. found is newest first.
func chooseDecision(e *api.Explanation, found []*decision.Decision, number int) error {
	n := len(found)
	for i := n - 1; i >= 0; i-- {
		d := found[i]
		e.Decisions = append(e.Decisions, api.DecisionSummary{ID: d.ID, At: d.At, Why: d.Why, Outcome: d.Outcome,
			Worker: d.Winner})
	}
	if number > n {
		return fault.New(fault.NotFound, codeDecision,
			"the log has %d decisions about machine %s; give a number from 1 to %d", n, e.Machine, n)
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

// explainedRequest returns the request to ask the workers about now: the decision's, or one made from the machine's
// config.
func explainedRequest(e *api.Explanation, m *machine.Machine) placement.Request {
	if e.Decision != nil && e.Decision.Own == nil {
		r := e.Decision.Request
		r.AskFor(m.Config) // an update may have changed it
		return r
	}
	return requestOf(m)
}

// evictedFor lists the machines that were evicted for a machine, newest first.
func (a *decisionsAPI) evictedFor(m *machine.Machine) (out []api.Evictee) {
	for _, e := range m.Events {
		if e.Type != "evict" || e.Request == nil {
			continue
		}
		for _, p := range e.Request.Preemptions {
			out = append(out, a.directory.evicteeOf(market.Victim{Machine: p.Machine, App: p.App, Rank: p.Rank,
				Cost: p.Cost, Why: p.Why}))
		}
	}
	return out
}

// evictionText names the machines that a worker would evict.
func (a *decisionsAPI) evictionText(e *market.Eviction) string {
	names := make([]string, len(e.Victims))
	for i, v := range e.Victims {
		x := a.directory.evicteeOf(v)
		names[i] = fmt.Sprintf("%s of app %s", cmp.Or(x.Name, x.Machine), x.App)
	}
	return "it would evict " + strings.Join(names, ", ")
}

// askQuotes asks every worker for a quote on the request now.
func (a *decisionsAPI) askQuotes(ctx context.Context, req placement.Request) []machine.Candidate {
	workers := a.directory.Workers()
	policy, err := a.chosen.PolicyFor(&req)
	if err != nil {
		policy = placement.Default() // the decision's policy is gone
	}
	quotes, errs := find.AskAll(workers, func(k Worker) (market.Quote, error) { return k.Quote(ctx, req) })
	out := make([]machine.Candidate, 0, len(workers))
	for i, k := range workers {
		c := machine.Candidate{Worker: string(k.ID())}
		switch q := quotes[i]; {
		case errs[i] != nil:
			c.Failing = []machine.Clause{{Code: "unreachable", Wanted: "an answer", Had: errs[i].Error()}}
		case q.Verdict.Fits:
			v := policy.Judge(&req, &q.Record)
			if c.Fits, c.Failing = v.Fits, v.Failing; v.Fits {
				c.Score, c.Terms = policy.Score(req, q.Record)
				c.Notes = policy.Notes(&req, &q.Record)
			}
		default:
			c.Failing = q.Verdict.Failing
			if q.Evict != nil {
				c.Notes = append(c.Notes, a.evictionText(q.Evict))
			}
		}
		out = append(out, c)
	}
	return out
}
