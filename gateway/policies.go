package gateway

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/broker/known"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/decision"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/core/policy"
	"github.com/soukhq/souk/core/policy/whatif"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/store/catalog"
	"github.com/soukhq/souk/store/decisionlog"
)

// policiesAPI serves the policies of placement.
type policiesAPI struct {
	catalog   policyCatalog
	chosen    known.Policies
	directory *directory
	decisions *decisionlog.Log // nil: none are recorded
}

// policyCatalog is what policiesAPI needs of the catalog.
type policyCatalog interface {
	App(name string) (catalog.App, error)
	SetPolicy(app, name string) error
	AllPolicies() []catalog.Policy
	Policy(name string) (catalog.Policy, error)
	PolicyVersion(name string, number int) (policy.Version, []policy.Version, error)
	PolicyInUse(name string) bool
	PolicyChoice() catalog.PolicyChoice
	ApplyPolicy(text []byte) (name string, changed bool, err error)
	RollbackPolicy(name string, to int) error
	EarlierPolicy(name string, to int) (text string, err error)
	DeletePolicy(name string) error
	ChoosePolicies(def, shadow *string) error
}

func (a *policiesAPI) opHandlers() handlers {
	return handlers{
		"GET /v1/souk/policies":                    a.listPolicies,
		"POST /v1/souk/policies":                   a.applyPolicy,
		"GET /v1/souk/policies/{policy}":           a.getPolicy,
		"DELETE /v1/souk/policies/{policy}":        a.deletePolicy,
		"POST /v1/souk/policies/{policy}/rollback": a.rollbackPolicy,
		"POST /v1/souk/policy-plan":                a.planPolicy,
		"PUT /v1/souk/policy-choice":               a.choosePolicies,
		"GET /v1/souk/apps/{app}/policy":           a.getAppPolicy,
		"PUT /v1/souk/apps/{app}/policy":           a.setAppPolicy,
	}
}

func (a *policiesAPI) policyInfos() api.PolicyList {
	out := api.PolicyList{Policies: []api.PolicyInfo{}}
	for _, p := range a.catalog.AllPolicies() {
		out.Policies = append(out.Policies, api.PolicyInfo(p))
	}
	return out
}

func (a *policiesAPI) listPolicies(w http.ResponseWriter, _ *http.Request) error {
	answerJSON(w, http.StatusOK, a.policyInfos())
	return nil
}

func (a *policiesAPI) getPolicy(w http.ResponseWriter, r *http.Request) error {
	version, err := queryInt(r, "version", 0, 0, 1<<30)
	if err != nil {
		return err
	}
	info, err := a.catalog.Policy(r.PathValue("policy"))
	if err != nil {
		return err
	}
	v, kept, err := a.catalog.PolicyVersion(info.Name, version)
	if err != nil {
		return err
	}
	out := api.PolicyFile{PolicyInfo: api.PolicyInfo(info), Text: v.Text, Versions: []api.PolicyVersion{}}
	out.Version, out.At, out.Of = v.Number, v.At, v.Of
	for _, v := range kept {
		out.Versions = append(out.Versions, api.PolicyVersion{Version: v.Number, At: v.At, Of: v.Of})
	}
	answerJSON(w, http.StatusOK, out)
	return nil
}

func (a *policiesAPI) applyPolicy(w http.ResponseWriter, r *http.Request) error {
	var in api.PolicyText
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	name, changed, err := a.catalog.ApplyPolicy([]byte(in.Text))
	if err != nil {
		return err
	}
	return a.answerApplied(w, name, changed)
}

func (a *policiesAPI) answerApplied(w http.ResponseWriter, name string, changed bool) error {
	info, err := a.catalog.Policy(name)
	if err != nil {
		return err
	}
	answerJSON(w, http.StatusOK, api.PolicyApplied{Policy: api.PolicyInfo(info), Changed: changed})
	return nil
}

func (a *policiesAPI) rollbackPolicy(w http.ResponseWriter, r *http.Request) error {
	var in api.Rollback
	if err := readJSON(w, r, &in, true); err != nil {
		return err
	}
	name := r.PathValue("policy")
	if err := a.catalog.RollbackPolicy(name, in.To); err != nil {
		return err
	}
	return a.answerApplied(w, name, true)
}

func (a *policiesAPI) deletePolicy(w http.ResponseWriter, r *http.Request) error {
	if err := a.catalog.DeletePolicy(r.PathValue("policy")); err != nil {
		return err
	}
	return answerOK(w)
}

func (a *policiesAPI) choosePolicies(w http.ResponseWriter, r *http.Request) error {
	var in api.PolicyChoice
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	if err := a.catalog.ChoosePolicies(in.Default, in.Shadow); err != nil {
		return err
	}
	return a.listPolicies(w, r)
}

func (a *policiesAPI) getAppPolicy(w http.ResponseWriter, r *http.Request) error {
	app, err := a.catalog.App(r.PathValue("app"))
	if err != nil {
		return err
	}
	answerJSON(w, http.StatusOK, api.AppPolicy{Policy: app.Policy})
	return nil
}

func (a *policiesAPI) setAppPolicy(w http.ResponseWriter, r *http.Request) error {
	var in api.AppPolicy
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	if err := a.catalog.SetPolicy(r.PathValue("app"), in.Policy); err != nil {
		return err
	}
	answerJSON(w, http.StatusOK, in)
	return nil
}

// Bounds of a plan: it judges every worker for every machine, twice.
const (
	maxPlanned  = 2000
	planTimeout = time.Minute
)

// planPolicy says where a policy would place each running machine that it does not apply to yet.
func (a *policiesAPI) planPolicy(w http.ResponseWriter, r *http.Request) error {
	var in api.PolicyQuestion
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), planTimeout)
	defer cancel()
	src, err := a.askedFor(&in)
	if err != nil {
		return err
	}
	machines, silent, err := a.directory.Machines(ctx)
	if err != nil {
		return err
	}
	a.directory.nameMissing(w, silent)
	machines = slices.DeleteFunc(machines, func(m *machine.Machine) bool { return m.State != machine.Started })
	about := a.aboutOf(src.Name, &in)
	out := api.PolicyPlan{Policy: src.Name, LeftOut: max(0, len(machines)-maxPlanned), Scope: about.text}
	placed := make([]whatif.Placed, 0, len(machines))
	for _, m := range machines[:min(len(machines), maxPlanned)] {
		placed = append(placed, whatif.Placed{Request: requestOf(m), Worker: m.Worker})
	}
	view := a.directory.View()
	next := src.Bind(policy.NewEvaluator())
	old := a.boundChoosers()
	then := func(r *placement.Request) *placement.Policy {
		if p := old(r); !about.holds(r, p) {
			return p
		}
		return &next
	}
	if out.Comparison, err = whatif.Compare(ctx.Err, view, placed, old, then); err != nil {
		return err
	}
	if out.Recorded, err = a.replayDecisions(ctx, about.stands, &next); err != nil {
		return err
	}
	answerJSON(w, http.StatusOK, out)
	return nil
}

// askedFor returns the policy that a question is about.
func (a *policiesAPI) askedFor(in *api.PolicyQuestion) (s *policy.Source, err error) {
	text, whose := in.Text, 0
	for _, said := range []bool{in.Chosen, in.Default, in.App != ""} {
		if said {
			whose++
		}
	}
	switch {
	case whose > 1:
		return nil, fault.New(fault.Invalid, codePolicyQuestion,
			"a plan treats the policy as chosen where it is chosen now (chosen), as the default (default), or as "+
				"chosen by one app (app): send at most one of the three")
	case (in.Text == "") == (in.Policy == "") || in.Back != nil && in.Policy == "":
		return nil, fault.New(fault.Invalid, codePolicyQuestion,
			"a plan needs a policy's text (text), or the name of a kept policy (policy, with back for an earlier "+
				"version): send one of the two")
	case in.Back != nil:
		text, err = a.catalog.EarlierPolicy(in.Policy, *in.Back)
	case in.Policy != "":
		var v policy.Version
		v, _, err = a.catalog.PolicyVersion(in.Policy, 0)
		text = v.Text
	}
	if err != nil {
		return nil, err
	}
	return policy.Load([]byte(text))
}

// about says which machines a policy plan considers.
type about struct {
	text   string // in words
	stands string // the policy that it would replace
	holds  func(r *placement.Request, by *placement.Policy) bool
}

// aboutOf returns which machines a question considers.
func (a *policiesAPI) aboutOf(name string, in *api.PolicyQuestion) about {
	def := cmp.Or(a.catalog.PolicyChoice().Default, policy.DefaultName)
	inPlaceOf := func(stands, text string) about {
		return about{text, stands, func(_ *placement.Request, by *placement.Policy) bool { return by.Name == stands }}
	}
	switch {
	case in.App != "":
		return about{fmt.Sprintf("machines of app %s, as if it chose %s", in.App, name), name,
			func(r *placement.Request, _ *placement.Policy) bool {
				return r.App == in.App && r.Scheduling.Policy == ""
			}}
	case in.Default:
		return about{fmt.Sprintf("machines whose policy is the default, %s, as if %s were the default", def, name), def,
			func(r *placement.Request, _ *placement.Policy) bool {
				app, _ := a.catalog.App(r.App) // a gone app has chosen no policy
				return r.Scheduling.Policy == "" && app.Policy == ""
			}}
	case in.Chosen || a.catalog.PolicyInUse(name):
		return inPlaceOf(name, "machines whose policy is "+name)
	}
	return inPlaceOf(def, fmt.Sprintf("machines whose policy is the default, %s, as if %s were the default", def, name))
}

// boundChoosers gives the policies in force, each bound once. souk's default policy replaces one that cannot be loaded.
func (a *policiesAPI) boundChoosers() whatif.Chooser {
	bound := map[string]*placement.Policy{}
	return func(r *placement.Request) *placement.Policy {
		key := r.App + "/" + r.Scheduling.Policy
		if bound[key] == nil {
			p, err := a.chosen.PolicyFor(r)
			if err != nil {
				p = placement.Default()
			}
			bound[key] = &p
		}
		return bound[key]
	}
}

// requestOf rebuilds the request that placed a machine. The launch's regions are not kept with the machine: its own
// region is taken as the nearest, and all others as allowed.
func requestOf(m *machine.Machine) placement.Request {
	r := placement.Request{
		App:     m.App,
		Machine: m.ID,
		Start:   true,
	}
	r.AskFor(m.Config)
	r.AskForUser(m.UnixUser)
	if m.Region != "" {
		r.Regions = []cluster.Region{cluster.Region(m.Region), "any"}
	}
	if m.Scheduling != nil {
		r.Scheduling = *m.Scheduling
	}
	for _, mount := range m.Config.Mounts {
		r.Volumes = append(r.Volumes, mount.Volume)
	}
	return r
}

// Bounds of what a plan looks at in the decision log.
const (
	replayedSince = 24 * time.Hour
	mostReplayed  = 500 // newest decisions
)

// recordedDecisions gives the newest decisions that a policy made within a day: only those with their whole view, and
// whose first ask was granted, so that only the policy can change the winner.
func (a *policiesAPI) recordedDecisions(ctx context.Context, by string) ([]whatif.Decided, error) {
	if a.decisions == nil {
		return nil, nil
	}
	if err := a.decisions.Flush(ctx); err != nil {
		return nil, err
	}
	since := time.Now().Add(-replayedSince)
	var out []whatif.Decided
	_, err := decisionlog.Scan(a.decisions.Dir(), func(l *decision.Line, records *decision.RecordCache) error {
		d := l.Decision
		if d == nil || d.At.Before(since) || d.Policy.Name != by || d.Outcome != decision.Placed || len(d.Asks) != 1 ||
			!d.Complete() {
			return ctx.Err()
		}
		view, whole := decision.View(d, records.Get)
		if !whole {
			return ctx.Err()
		}
		if out = append(out, whatif.Decided{Request: d.Request, View: view,
			Winner: d.Winner}); len(out) >= 2*mostReplayed {
			out = append(out[:0], out[mostReplayed:]...)
		}
		return ctx.Err()
	})
	if err != nil && fault.CodeOf(err) != decisionlog.CodeLogDamaged { // the undamaged part is enough
		return nil, err
	}
	return out[max(0, len(out)-mostReplayed):], ctx.Err()
}

// replayDecisions says which recorded decisions of a policy another policy would have made differently.
func (a *policiesAPI) replayDecisions(ctx context.Context, by string, then *placement.Policy) (*whatif.Comparison,
	error) {
	decided, err := a.recordedDecisions(ctx, by)
	if err != nil || len(decided) == 0 {
		return nil, err
	}
	out := whatif.Replay(decided, func(*placement.Request) *placement.Policy { return then })
	return &out, nil
}
