package gateway

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/placement"
	"github.com/soukhq/souk/policy"
	"github.com/soukhq/souk/policy/whatif"
)

// policyFor gives the policy of a request: the launch's own, else its app's, else the default. It belongs to the goroutine
// that asked for it.
func (g *Gateway) policyFor(r *placement.Request) (placement.Policy, error) {
	name := r.Scheduling.Policy
	if name == "" {
		app, _ := g.catalog.App(r.App) // of one that is gone the request is refused elsewhere
		name = app.Policy
	}
	if name == "" && g.policy.Name != "" {
		return g.policy, nil // the one it was made with
	}
	if name == "" {
		name = g.catalog.PolicyChoice().Default
	}
	return g.catalog.BoundPolicy(name)
}

// watcher gives the policy that only watches; false when there is none. It places nothing.
func (g *Gateway) watcher() (placement.Policy, bool) {
	name := g.catalog.PolicyChoice().Shadow
	if name == "" {
		return placement.Policy{}, false
	}
	p, err := g.catalog.BoundPolicy(name)
	return p, err == nil // it may have been taken away meanwhile
}

func (g *Gateway) policyInfos() api.PolicyList {
	out := api.PolicyList{Policies: []api.PolicyInfo{}}
	for _, p := range g.catalog.Policies() {
		out.Policies = append(out.Policies, api.PolicyInfo(p))
	}
	return out
}

func (g *Gateway) listPolicies(w http.ResponseWriter, _ *http.Request) error {
	answer(w, http.StatusOK, g.policyInfos())
	return nil
}

func (g *Gateway) getPolicy(w http.ResponseWriter, r *http.Request) error {
	version, err := queryInt(r, "version", 0, 0, 1<<30)
	if err != nil {
		return err
	}
	info, err := g.catalog.Policy(r.PathValue("policy"))
	if err != nil {
		return err
	}
	v, kept, err := g.catalog.PolicyVersion(info.Name, version)
	if err != nil {
		return err
	}
	out := api.PolicyFile{PolicyInfo: api.PolicyInfo(info), Text: v.Text, Versions: []api.PolicyVersion{}}
	out.Version, out.At, out.Of = v.Number, v.At, v.Of
	for _, v := range kept {
		out.Versions = append(out.Versions, api.PolicyVersion{Version: v.Number, At: v.At, Of: v.Of})
	}
	answer(w, http.StatusOK, out)
	return nil
}

func (g *Gateway) applyPolicy(w http.ResponseWriter, r *http.Request) error {
	var in api.PolicyText
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	name, changed, err := g.catalog.ApplyPolicy([]byte(in.Text))
	if err != nil {
		return err
	}
	return g.answerApplied(w, name, changed)
}

func (g *Gateway) answerApplied(w http.ResponseWriter, name string, changed bool) error {
	info, err := g.catalog.Policy(name)
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, api.PolicyApplied{Policy: api.PolicyInfo(info), Changed: changed})
	return nil
}

func (g *Gateway) rollbackPolicy(w http.ResponseWriter, r *http.Request) error {
	var in api.Rollback
	if err := readJSON(w, r, &in, true); err != nil {
		return err
	}
	name := r.PathValue("policy")
	if err := g.catalog.RollbackPolicy(name, in.To); err != nil {
		return err
	}
	return g.answerApplied(w, name, true)
}

func (g *Gateway) deletePolicy(w http.ResponseWriter, r *http.Request) error {
	if err := g.catalog.DeletePolicy(r.PathValue("policy")); err != nil {
		return err
	}
	return answerOK(w)
}

func (g *Gateway) choosePolicies(w http.ResponseWriter, r *http.Request) error {
	var in api.PolicyChoice
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	if err := g.catalog.ChoosePolicies(in.Default, in.Shadow); err != nil {
		return err
	}
	return g.listPolicies(w, r)
}

func (g *Gateway) getAppPolicy(w http.ResponseWriter, r *http.Request) error {
	app, err := g.catalog.App(r.PathValue("app"))
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, api.AppPolicy{Policy: app.Policy})
	return nil
}

func (g *Gateway) setAppPolicy(w http.ResponseWriter, r *http.Request) error {
	var in api.AppPolicy
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	if err := g.catalog.SetPolicy(r.PathValue("app"), in.Policy); err != nil {
		return err
	}
	answer(w, http.StatusOK, in)
	return nil
}

// Bounds of a plan: it judges every worker for every machine, twice.
const (
	maxPlanned  = 2000
	planTimeout = time.Minute
)

// planPolicy says where each running machine would be placed by a policy that is not in force yet. It is asked about the
// machines that its name is chosen for; where nobody chose it, about those of the default, as if it were that.
func (g *Gateway) planPolicy(w http.ResponseWriter, r *http.Request) error {
	var in api.PolicyText
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), planTimeout)
	defer cancel()
	src, err := policy.Load([]byte(in.Text))
	if err != nil {
		return err
	}
	machines, err := g.machines(ctx, "", false)
	if err != nil {
		return err
	}
	machines = slices.DeleteFunc(machines, func(m *machine.Machine) bool { return m.State != machine.Started })
	out := api.PolicyPlan{Policy: src.Name, LeftOut: max(0, len(machines)-maxPlanned)}
	placed := make([]whatif.Placed, 0, len(machines))
	for _, m := range machines[:min(len(machines), maxPlanned)] {
		placed = append(placed, whatif.Placed{Request: requestOf(m), Worker: m.Worker})
	}
	stands := src.Name
	if !g.catalog.PolicyInUse(src.Name) {
		stands = g.catalog.PolicyChoice().Default
	}
	out.Scope = planScope(src.Name, stands)
	view := g.view(ctx)
	next := src.Bind(policy.NewEvaluator())
	old := g.choosers()
	then := func(r *placement.Request) *placement.Policy {
		if p := old(r); p.Name != stands {
			return p
		}
		return &next
	}
	if out.Comparison, err = whatif.Compare(ctx.Err, view, placed, old, then); err != nil {
		return err
	}
	if out.Recorded, err = g.replay(ctx, stands, &next); err != nil {
		return err
	}
	answer(w, http.StatusOK, out)
	return nil
}

func planScope(name, stands string) string {
	if name == stands {
		return "machines whose policy is " + name
	}
	return fmt.Sprintf("machines whose policy is the default, %s, as if %s were the default", stands, name)
}

// choosers gives the policies in force, each bound once. One that cannot be had stands for the default of souk.
func (g *Gateway) choosers() whatif.Chooser {
	bound := map[string]*placement.Policy{}
	return func(r *placement.Request) *placement.Policy {
		key := r.App + "/" + r.Scheduling.Policy
		if bound[key] == nil {
			p, err := g.policyFor(r)
			if err != nil {
				p = placement.Default()
			}
			bound[key] = &p
		}
		return bound[key]
	}
}

// requestOf makes the request again that a machine was placed by. The regions that its launch named are not kept with it:
// its own is taken to be the nearest, and the others to be possible.
func requestOf(m *machine.Machine) placement.Request {
	r := placement.Request{App: m.App, Machine: m.ID, Resources: machine.Resources(m.Config), Image: m.Config.Image, Start: true}
	if m.Region != "" {
		r.Regions = []cluster.Region{cluster.Region(m.Region), "any"}
	}
	if guest := m.Config.Guest; guest != nil {
		r.GPUKind = guest.GPUKind
	}
	if m.Scheduling != nil {
		r.Scheduling = *m.Scheduling
	}
	for _, mount := range m.Config.Mounts {
		r.Volumes = append(r.Volumes, mount.Volume)
	}
	return r
}
