package gateway

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/broker"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/decision"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/store/decisionlog"
)

// logged gives a shop whose decisions are recorded.
func logged(t *testing.T, workers ...*memWorker) *shop {
	t.Helper()
	s := newShop(t, workers...)
	l, err := decisionlog.Open(decisionlog.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	s.with(func(o *Options) { o.Decisions = l })
	return s.open()
}

func guest(name string, memory int) string {
	return fmt.Sprintf(`{"name":%q,"config":{"image":"souk/host","init":{"exec":["/bin/sleep","60"]},"guest":{"cpu_kind":"shared","cpus":1,"memory_mb":%d}}}`, name, memory)
}

var small = cluster.Resources{CPU: 4000, Memory: 1024, Disk: 100 << 10, Ports: 100}

// TestDecisionIsExplainedAfterDestroy follows a machine to its end, and a request that was refused.
func TestDecisionIsExplainedAfterDestroy(t *testing.T) {
	s := logged(t, newMemWorker("w1", "local", small), newMemWorker("w2", "local", room))
	m := s.launch(guest("web", 512))
	var e api.Explanation
	s.want(200, "GET", "/v1/souk/apps/a/machines/web/explain", nil).into(t, &e)
	if e.Decision == nil || e.Worker != cluster.WorkerID(m.Worker) || e.Decision.Winner != e.Worker ||
		len(e.Now) != 2 || len(e.Sentences) < 2 || e.Number != 1 {
		t.Fatalf("%+v", e)
	}
	s.want(200, "DELETE", "/v1/apps/a/machines/"+m.ID+"?kill=true", nil)
	for _, w := range s.workers {
		w.forget(m.ID)
	}
	e = api.Explanation{}
	s.want(200, "GET", "/v1/souk/apps/a/machines/"+m.ID+"/explain", nil).into(t, &e)
	if e.Decision == nil || e.Worker != "" || len(e.Now) != 0 ||
		!strings.HasPrefix(e.Sentences[0], "It was placed on w2 by policy spread") {
		t.Fatalf("%+v", e)
	}
	s.want(404, "GET", "/v1/souk/apps/a/machines/"+m.ID+"/explain?decision=2", nil)
	s.want(400, "GET", "/v1/souk/apps/a/machines/"+m.ID+"/explain?decision=x", nil)
	s.want(404, "GET", "/v1/souk/apps/a/machines/d891275c2e5118/explain", nil)

	no := s.want(422, "POST", "/v1/apps/a/machines", strings.Replace(guest("big", 2048), `"cpus":1`,
		`"cpus":1,"gpus":2`, 1)).failure(t)
	if no.Souk.Pending != decision.NeverFits || no.Souk.Decision == "" || len(no.Souk.Candidates) != 2 {
		t.Fatalf("%+v", no)
	}
	var d api.ExplainedDecision
	s.want(200, "GET", "/v1/souk/decisions/"+no.Souk.Decision, nil).into(t, &d)
	if d.Decision.Outcome != decision.Refused || d.Decision.Pending != decision.NeverFits {
		t.Fatalf("%+v", d.Decision)
	}
	if page := s.want(200, "GET", "/metrics", nil).raw; !strings.Contains(page,
		`souk_placements_refused_total{reason="never_fits"} 1`) ||
		!strings.Contains(page, "souk_decisions_recorded_total 2") {
		t.Error("the metrics lack the refusal or the decisions")
	}
	s.want(404, "GET", "/v1/souk/decisions/01ARZ3NDEKTSV4RRFFQ69G5FAV", nil)
}

// forget takes a machine out of the worker's memory, as a pruned one is.
func (w *memWorker) forget(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.rows, id)
	w.all = slices.DeleteFunc(w.all, func(have string) bool { return have == id })
}

// TestDecisionsAreFilteredAndPaged lists by app and outcome, page by page.
func TestDecisionsAreFilteredAndPaged(t *testing.T) {
	s := logged(t)
	for i := range 5 {
		s.launch(guest(fmt.Sprintf("m%d", i), 256))
	}
	var all []string
	cursor := ""
	for {
		var page api.DecisionPage
		s.want(200, "GET", "/v1/souk/decisions?app=a&limit=2&since=1h&cursor="+cursor, nil).into(t, &page)
		for _, d := range page.Decisions {
			all = append(all, d.ID)
		}
		if cursor = page.NextCursor; cursor == "" {
			break
		}
	}
	if len(all) != 5 {
		t.Errorf("%v", all)
	}
	var none api.DecisionPage
	s.want(200, "GET", "/v1/souk/decisions?app=b", nil).into(t, &none)
	s.want(200, "GET", "/v1/souk/decisions?outcome=refused", nil).into(t, &none)
	if len(none.Decisions) != 0 {
		t.Errorf("%+v", none)
	}
	s.want(400, "GET", "/v1/souk/decisions?limit=0", nil)
	s.want(400, "GET", "/v1/souk/decisions?since=yesterday", nil)
	var v api.FleetView
	s.want(200, "GET", "/v1/souk/view", nil).into(t, &v)
	if len(v.Workers) != 1 || v.Workers[0].Record.Worker != "w1" || v.Workers[0].Age < 0 {
		t.Errorf("%+v", v)
	}
}

// TestPlanPredictsThePlacementOfALaunch (invariant 9): a launch goes where its plan said, over the API, by each strategy.
func TestPlanPredictsThePlacementOfALaunch(t *testing.T) {
	for _, strategy := range []string{broker.Direct, broker.Race, broker.Shared, broker.Batching, broker.FairShare} {
		planAndRun(t, strategy)
	}
}

func planAndRun(t *testing.T, strategy string) {
	s := logged(t, newMemWorker("w1", "local", small), newMemWorker("w2", "local", small),
		newMemWorker("w3", "ord", small))
	for i := range 13 {
		body := strings.Replace(guest(fmt.Sprintf("m%d", i), 256), `{"name"`, `{"scheduling":{"strategy":"`+strategy+
			`"},"name"`, 1)
		if i%3 == 0 {
			body = strings.Replace(body, `{`, `{"region":"ord,any",`, 1)
		}
		plan := func() (p api.Plan) {
			if strategy == broker.Race { // until no loser of the last one holds room any more
				for _, w := range s.workers {
					w.usedAt(time.Now().Add(market.RaceHoldTTL))
				}
			}
			s.want(200, "POST", "/v1/souk/apps/a/plan", body).into(t, &p)
			return p
		}
		p := plan()
		for end := time.Now().Add(time.Minute); strategy == broker.Race && i < 12 &&
			p.Verdict != decision.FitsNow && time.Now().Before(end); {
			p = plan() // one was on its way still, and came in between
		}
		body = strings.Replace(body, `{`, `{"id":"`+p.Machine+`",`, 1)
		if p.Decision.Strategy != strategy || strategy != broker.Direct && p.Verdict == decision.FitsNow &&
			!strings.Contains(strings.Join(p.Sentences, " "), "Its strategy is "+strategy) {
			t.Errorf("%s: strategy %s, %q", strategy, p.Decision.Strategy, p.Sentences)
		}
		switch p.Verdict {
		case decision.FitsNow:
			m := s.launch(body)
			if goes := append(p.Among, p.Worker); (strategy == broker.Race) != (len(p.Among) > 0) ||
				!slices.Contains(goes, cluster.WorkerID(m.Worker)) {
				t.Fatalf("%s, machine %d: the plan says %s of %v, and it went to %s", strategy, i, p.Worker, p.Among,
					m.Worker)
			}
		case decision.NotNow:
			if i != 12 || p.Pending != decision.Capacity {
				t.Fatalf("%s, machine %d: %s, %s", strategy, i, p.Verdict, p.Pending)
			}
			s.want(422, "POST", "/v1/apps/a/machines", body)
		default:
			t.Fatalf("%s, machine %d: %s", strategy, i, p.Verdict)
		}
	}
	var p api.Plan
	s.want(200, "POST", "/v1/souk/apps/nowhere/plan", guest("big", 2048)).into(t, &p)
	if p.Verdict != decision.Never || p.Pending != decision.NeverFits || len(p.Changes) != 0 || p.Worker != "" {
		t.Errorf("%+v", p)
	}
	s.want(400, "POST", "/v1/souk/apps/a/plan", `{"config":{"image":"souk/host"},"nonsense":1}`)
}

// TestDecisionLogHoldsNoSecret (invariant 11): what a launch keeps to itself is nowhere in the log's bytes.
func TestDecisionLogHoldsNoSecret(t *testing.T) {
	s := logged(t)
	s.want(200, "POST", "/v1/apps/a/secrets", map[string]any{"values": map[string]string{"TOKEN": "hush-secret"}})
	s.launch(`{"config":{"image":"souk/host","env":{"KEY":"hush-env"},"metadata":{"k":"hush-metadata"},"init":{"exec":["/bin/sleep","60","hush-command"]},
		"files":[{"guest_path":"/f","raw_value":"aHVzaC1maWxl"}]}}`)
	s.options.Decisions.Find(t.Context(), decisionlog.Query{})
	lines := 0
	_, err := decisionlog.Scan(s.options.Decisions.Dir(), func(l *decision.Line, records *decision.RecordCache) error {
		lines++
		if text := fmt.Sprintf("%+v", *l.Decision); strings.Contains(text, "hush") ||
			strings.Contains(text, "aHVzaC1maWxl") {
			t.Errorf("%s", text)
		}
		if wrong := decision.Verify(l.Decision, records.Get, placement.Default()); len(wrong) > 0 {
			t.Error(wrong)
		}
		return nil
	})
	if err != nil || lines != 1 {
		t.Errorf("%d decisions: %v", lines, err)
	}
	if _, err := os.Stat(s.options.Decisions.Dir()); err != nil {
		t.Fatal(err)
	}
}

// TestRefusedStartIsExplained: the refused start and update of a machine whose worker filled up are logged with the
// worker's reason, and explained until the machine starts.
func TestRefusedStartIsExplained(t *testing.T) {
	s := logged(t, newMemWorker("w1", "local", small), newMemWorker("w2", "ord", small))
	m := s.launch(strings.Replace(guest("web", 512), `{"name"`, `{"region":"local","name"`, 1))
	path := "/v1/apps/a/machines/" + m.ID
	s.want(200, "POST", path+"/stop", nil)
	other := s.launch(strings.Replace(guest("other", 768), `{"name"`, `{"region":"local","name"`, 1))

	nextMillisecond()
	no := s.want(409, "POST", path+"/start", nil).failure(t)
	if no.Status != "" || no.Souk.Decision == "" || no.Souk.Pending != decision.Capacity || len(no.Souk.Clauses) != 1 ||
		no.Souk.Clauses[0].Code != "memory" {
		t.Fatalf("%+v", no)
	}
	var e api.Explanation
	s.want(200, "GET", "/v1/souk/apps/a/machines/web/explain", nil).into(t, &e)
	if e.Number != 2 || len(e.Decisions) != 2 || e.Decision.ID != no.Souk.Decision ||
		e.Decision.Why != decision.Start || e.Decision.Took.Ask <= 0 ||
		len(e.Decision.Considered) != 1 || e.Decision.Considered[0].Worker != "w1" ||
		!strings.HasPrefix(e.Sentences[0], "It was not started: its own worker, w1, said no: memory") {
		t.Fatalf("%+v", e)
	}
	s.want(409, "POST", path, strings.Replace(guest("web", 2048), `"cpus":1`, `"cpus":4`, 1))
	// another refusal, which is no decision about room
	s.want(412, "POST", path+"/exec", map[string]string{"cmd": "true"})
	e = api.Explanation{}
	s.want(200, "GET", "/v1/souk/apps/a/machines/web/explain", nil).into(t, &e)
	if e.Number != 3 || e.Decision.Why != decision.Update ||
		!strings.HasPrefix(e.Sentences[0], "It was not updated: ") {
		t.Fatalf("%+v", e)
	}
	s.want(200, "DELETE", "/v1/apps/a/machines/"+other.ID+"?kill=true", nil)
	nextMillisecond()
	s.want(200, "POST", path+"/start", nil)
	e = api.Explanation{}
	s.want(200, "GET", "/v1/souk/apps/a/machines/web/explain", nil).into(t, &e)
	if e.Number != 1 || len(e.Decisions) != 3 || e.Decision.Outcome != decision.Placed {
		t.Fatalf("after it has started, its placement is what is told: %+v", e)
	}
	s.verifyLog()
}

// nextMillisecond waits until the clock has moved on: events count milliseconds, and say no order within one.
func nextMillisecond() {
	for now := time.Now().UnixMilli(); time.Now().UnixMilli() == now; { // ends within one
	}
}

// verifyLog computes all that is in the log again.
func (s *shop) verifyLog() {
	s.t.Helper()
	if err := s.options.Decisions.Flush(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	_, err := decisionlog.Scan(s.options.Decisions.Dir(), func(l *decision.Line, records *decision.RecordCache) error {
		if l.Decision != nil {
			for _, wrong := range decision.Verify(l.Decision, records.Get, placement.Default()) {
				s.t.Error(wrong)
			}
		}
		return nil
	})
	if err != nil {
		s.t.Error(err)
	}
}
