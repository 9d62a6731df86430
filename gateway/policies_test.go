package gateway

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/broker"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/core/policy"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/store/journal/mem"
)

const eastOnly = "name = \"east\"\n[[filter]]\nname = \"side\"\nexpr = 'worker.id == \"w2\"'\n[[score]]\nname = " +
	"\"s\"\nweight = %d\nexpr = '1'\n"

func east(weight int) api.PolicyText { return api.PolicyText{Text: fmt.Sprintf(eastOnly, weight)} }

func twoWorkers() []*memWorker {
	return []*memWorker{newMemWorker("w1", "local", room), newMemWorker("w2", "local", room)}
}

// A policy is applied, chosen by an app, a launch and as the default, and each choice places as it says.
func TestChosenPolicyPlacesTheMachine(t *testing.T) {
	s := newShop(t, twoWorkers()...).open()
	on := func(body string) cluster.WorkerID {
		t.Helper()
		return cluster.WorkerID(s.launch(body).Worker)
	}
	s.want(200, "POST", "/v1/souk/policies", east(1))
	named := `{"config":{"image":"souk/host","init":{"exec":["/bin/sleep","60"]}},"scheduling":{"policy":"east"}}`
	for range 3 {
		if w := on(named); w != "w2" {
			t.Errorf("a launch that chose east is on %s", w)
		}
	}
	if w := on(hostLaunch); w != "w1" {
		t.Errorf("a launch that chose nothing is on %s, and not where there is most room", w)
	}
	r := s.do("POST", "/v1/apps/a/machines", strings.Replace(named, "east", "nowhere", 1))
	if b := r.failure(t); r.code != 400 || b.Souk.Code != "policy_unknown" {
		t.Errorf("an unknown policy gave %d %s", r.code, r.raw)
	}
	s.want(200, "PUT", "/v1/souk/apps/a/policy", api.AppPolicy{Policy: "east"})
	for range 3 {
		if w := on(hostLaunch); w != "w2" {
			t.Errorf("a machine of an app that chose east is on %s", w)
		}
	}
	s.want(200, "PUT", "/v1/souk/apps/a/policy", api.AppPolicy{Policy: ""})
	s.want(200, "PUT", "/v1/souk/policy-choice", `{"default":"east"}`)
	m := s.launch(hostLaunch)
	if m.Worker != "w2" {
		t.Errorf("with east the default a machine is on %s", m.Worker)
	}
	var got machine.Machine
	s.want(200, "GET", "/v1/apps/a/machines/"+m.ID, nil).into(t, &got)
	if p := got.Placement; p.Policy != "east" || p.Shadow != nil || len(p.Candidates) != 2 ||
		p.Candidates[1].Failing[0].Had != `worker.id is "w1"` {
		t.Errorf("%+v", p)
	}
	big := `{"config":{"image":"souk/host","init":{"exec":["/bin/sleep","60"]}},"region":"local","scheduling":{"policy":"none"}}`
	s.want(200, "POST", "/v1/souk/policies",
		api.PolicyText{Text: "name = \"none\"\n[[filter]]\nname = \"no\"\nexpr = 'worker.attributes.zone == \"a\"'\n"})
	if b := s.do("POST", "/v1/apps/a/machines", big).failure(t); !strings.Contains(b.Error,
		`no: worker.attributes.zone == "a", had undefined: worker has no attribute "zone" (2 of 2 workers)`) {
		t.Errorf("a policy that lets nothing be gave %s", b.Error)
	}
}

// Versions grow, go back, and are all there after a restart, with every choice.
func TestPolicyVersionsSurviveRestart(t *testing.T) {
	j, key := mem.New(), filepath.Join(t.TempDir(), "key")
	s := openShop(t, j, key, twoWorkers()...).open()
	var a api.PolicyApplied
	for i := range 3 {
		s.want(200, "POST", "/v1/souk/policies", east(i+1)).into(t, &a)
		if a.Policy.Version != i+1 || !a.Changed {
			t.Errorf("%+v", a)
		}
	}
	s.want(200, "POST", "/v1/souk/policies", east(3)).into(t, &a)
	if a.Policy.Version != 3 || a.Changed {
		t.Errorf("the same file again: %+v", a)
	}
	s.want(200, "POST", "/v1/souk/policies/east/rollback", nil).into(t, &a)
	if a.Policy.Version != 4 || a.Policy.Of != 2 {
		t.Errorf("back: %+v", a)
	}
	s.want(200, "PUT", "/v1/souk/apps/a/policy", api.AppPolicy{Policy: "east"})
	s.want(200, "PUT", "/v1/souk/policy-choice", `{"shadow":"binpack","default":"least-waiting"}`)
	var before, after api.PolicyList
	s.want(200, "GET", "/v1/souk/policies", nil).into(t, &before)

	s = openShop(t, j, key, s.workers...)
	s.want(200, "GET", "/v1/souk/policies", nil).into(t, &after)
	if fmt.Sprint(before) != fmt.Sprint(after) || len(after.Policies) != 6 {
		t.Errorf("before the restart\n%+v\nafter\n%+v", before, after)
	}
	var text api.PolicyFile
	s.want(200, "GET", "/v1/souk/policies/east", nil).into(t, &text)
	if text.Text != east(2).Text || len(text.Versions) != 4 || text.Apps[0] != "a" {
		t.Errorf("%+v", text)
	}
	s.want(200, "GET", "/v1/souk/policies/east?version=3", nil).into(t, &text)
	if text.Text != east(3).Text {
		t.Errorf("version 3 is %s", text.Text)
	}
	for i := range 3 * policy.MaxVersions {
		s.want(200, "POST", "/v1/souk/policies", east(i+10))
	}
	s = openShop(t, j, key, s.workers...)
	s.want(200, "GET", "/v1/souk/policies/east", nil).into(t, &text)
	if len(text.Versions) != policy.MaxVersions || text.Version != 4+3*policy.MaxVersions {
		t.Errorf("%d versions to %d", len(text.Versions), text.Version)
	}
}

// What cannot be done with policies is refused with its code.
func TestInvalidPolicyRequestsAreRefused(t *testing.T) {
	s := newShop(t).open()
	s.want(200, "POST", "/v1/souk/policies", east(1))
	s.want(200, "PUT", "/v1/souk/policy-choice", `{"shadow":"east"}`)
	spread := policy.Builtins()[4].Text
	for _, c := range []struct {
		code                     int
		method, path, body, want string
	}{
		{400, "POST", "/policies", `{"text":"name = 3"}`, "1:8: name is written as an integer where a text is wanted"},
		{400, "POST", "/policies", fmt.Sprintf(`{"text":%q}`, strings.Repeat("x", 70_000)),
			"the file has 70000 bytes; a policy has at most 65536"},
		{400, "POST", "/policies", `{}`, "the file is empty"},
		{400, "POST", "/policy-plan", `{"text":"["}`, "1:"},
		{409, "POST", "/policies", fmt.Sprintf(`{"text":%q}`, spread), "comes with souk"},
		{412, "POST", "/policies/east/rollback", ``, "no earlier one is kept"},
		{404, "POST", "/policies/east/rollback", `{"to":7}`, "no version 7"},
		{404, "POST", "/policies/west/rollback", ``, "no policy"},
		{412, "POST", "/policies/spread/rollback", ``, "comes with souk"},
		{404, "GET", "/policies/west", ``, "no policy"},
		{404, "GET", "/policies/spread?version=1", ``, "has no versions"},
		{412, "DELETE", "/policies/east", ``, "choose another there first"},
		{412, "DELETE", "/policies/spread", ``, "stays"},
		{404, "DELETE", "/policies/west", ``, "no policy"},
		{404, "PUT", "/policy-choice", `{"default":"west"}`, "no policy"},
		{404, "PUT", "/apps/a/policy", `{"policy":"west"}`, "no policy"},
		{404, "PUT", "/apps/b/policy", `{"policy":"east"}`, "app not found"},
		{404, "GET", "/apps/b/policy", ``, "app not found"},
	} {
		r := s.do(c.method, "/v1/souk"+c.path, c.body)
		if b := r.failure(t); r.code != c.code || !strings.Contains(b.Error, c.want) {
			t.Errorf("%s %s: %d %s, want %d with %q", c.method, c.path, r.code, b.Error, c.code, c.want)
		}
	}
	s.want(200, "PUT", "/v1/souk/policy-choice", `{"shadow":""}`)
	s.want(200, "DELETE", "/v1/souk/policies/east", nil)
	s.want(404, "GET", "/v1/souk/policies/east", nil)
}

// A shadow is recorded with the machine and with its decision, and counted, whatever the strategy; it changes nothing.
func TestShadowPolicyIsRecordedAndChangesNothing(t *testing.T) {
	for _, strategy := range []string{broker.Direct, broker.Race, broker.Shared, broker.Batching, broker.FairShare,
		"gang"} {
		s := logged(t, twoWorkers()...)
		s.want(200, "POST", "/v1/souk/policies", east(1))
		s.want(200, "PUT", "/v1/souk/policy-choice", `{"shadow":"east"}`)
		seen, n := map[string]int{}, 0
		check := func(m *machine.Machine) {
			if p := m.Placement; p.Policy != "spread" || p.Shadow == nil || p.Shadow.Policy != "east version 1" ||
				p.Shadow.Worker != "w2" {
				t.Fatalf("%s: %+v", strategy, p)
			}
			n++
			seen[m.Placement.Worker]++
		}
		if strategy == "gang" {
			var g api.Gang
			s.want(200, "POST", "/v1/souk/apps/a/gangs", `{"size":6,"launch":`+hostLaunch+`}`).into(t, &g)
			for _, m := range g.Machines {
				check(m)
			}
		} else {
			for range 6 {
				var m machine.Machine
				s.want(200, "POST", "/v1/apps/a/machines", launchBy(strategy, 256)).into(t, &m)
				check(&m)
			}
			var page api.DecisionPage
			s.want(200, "GET", "/v1/souk/decisions?app=a", nil).into(t, &page)
			for _, d := range page.Decisions {
				if d.Strategy != strategy || d.Shadow == nil || d.Shadow.Worker != "w2" {
					t.Errorf("%s: the decision has %+v", strategy, d)
				}
			}
			if len(page.Decisions) != n {
				t.Errorf("%s: %d decisions about %d machines", strategy, len(page.Decisions), n)
			}
		}
		metrics := s.want(200, "GET", "/metrics", nil).raw
		for same, worker := range map[string]string{"true": "w2", "false": "w1"} {
			want := fmt.Sprintf("souk_policy_shadow_total{same=%q} %d", same, seen[worker])
			if n != 6 || seen[worker] > 0 && !strings.Contains(metrics, want) || seen[worker] == 0 &&
				strategy != broker.Race {
				t.Errorf("%s: %v, but no %s", strategy, seen, want)
			}
		}
	}
}

// TestShadowPolicyIsRecordedForRefusals: the placement of a shadow policy is recorded and shown for refused requests
// too.
func TestShadowPolicyIsRecordedForRefusals(t *testing.T) {
	for _, strategy := range []string{broker.Direct, broker.Race, broker.Shared} {
		s := logged(t, twoWorkers()...)
		s.want(200, "POST", "/v1/souk/policies", east(1))
		s.want(200, "PUT", "/v1/souk/policy-choice", `{"default":"east","shadow":"spread"}`)
		s.want(200, "POST", "/v1/apps/a/machines", launchBy(strategy, 2048))
		for range 2 { // w2 is full, and east wants no other
			r := s.do("POST", "/v1/apps/a/machines", launchBy(strategy, 2048))
			if r.code == 200 {
				continue
			}
			var d api.ExplainedDecision
			s.want(200, "GET", "/v1/souk/decisions/"+r.failure(t).Souk.Decision, nil).into(t, &d)
			told := strings.Join(d.Sentences, " ")
			if r.code != 422 || d.Decision.Shadow == nil || d.Decision.Shadow.Worker != "w1" ||
				!strings.Contains(told, "The policy spread, which only watches, would have chosen w1.") {
				t.Errorf("%s: %+v, %s", strategy, d.Decision.Shadow, told)
			}
		}
	}
}

// TestPolicyPlanPredictsPlacements: each machine that is placed after a policy is applied goes where the plan said.
func TestPolicyPlanPredictsPlacements(t *testing.T) {
	s := newShop(t, twoWorkers()...).open()
	for range 4 {
		s.launch(hostLaunch)
	}
	var p api.PolicyPlan
	s.want(200, "POST", "/v1/souk/policy-plan", east(1)).into(t, &p)
	c := p.Comparison
	if c.Compared != 4 || c.Same+len(c.Moves) != 4 || len(c.Moves) == 0 || len(c.Nowhere) != 0 ||
		!strings.Contains(p.Scope, "as if east were the default") {
		t.Fatalf("%+v", p)
	}
	for _, m := range c.Moves {
		if m.New != "w2" || m.Old != "w1" || len(m.Why) != 1 || m.Why[0].Code != "policy" {
			t.Errorf("%+v", m)
		}
	}
	s.want(200, "POST", "/v1/souk/policies", east(1))
	s.want(200, "PUT", "/v1/souk/policy-choice", `{"default":"east"}`)
	s.want(200, "POST", "/v1/souk/policy-plan", east(2)).into(t, &p)
	if p.Comparison.Same != 4 || p.Scope != "machines whose policy is east" {
		t.Errorf("a new weight moves nobody: %+v", p)
	}
}

// A stored policy that this souk cannot load any more does not keep it from starting; the default stands in.
func TestUnloadablePolicyFallsBackToTheDefault(t *testing.T) {
	j, key := mem.New(), filepath.Join(t.TempDir(), "key")
	s := openShop(t, j, key, twoWorkers()...).open()
	s.want(200, "POST", "/v1/souk/policies", east(1))
	s.want(200, "PUT", "/v1/souk/apps/a/policy", api.AppPolicy{Policy: "east"})
	v := policy.Version{Policy: "east", Number: 2, Text: "name = 'of the future'"}
	row, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Commit([]fsm.Record{{Bucket: "policy", Key: "east/00000002", Value: row}}); err != nil {
		t.Fatal(err)
	}
	s = openShop(t, j, key, s.workers...)
	s.launch(hostLaunch)
	var list api.PolicyList
	s.want(200, "GET", "/v1/souk/policies", nil).into(t, &list)
	found := false
	for _, p := range list.Policies {
		found = found || p.Name == "east" && p.Broken != "" && p.Version == 2
	}
	if !found {
		t.Errorf("%+v", list)
	}
	s.want(200, "POST", "/v1/souk/policies/east/rollback", nil)
}
