package client

import (
	"context"
	"net/url"
	"strconv"

	"github.com/soukhq/souk/api"
)

// PolicyCalls are the client's calls on placement policies.
type PolicyCalls struct{ transport }

// Policies lists the policies.
func (c PolicyCalls) Policies(ctx context.Context) ([]api.PolicyInfo, error) {
	var a api.PolicyList
	err := c.doCall(ctx, newCall(api.ListPolicies), &a)
	return a.Policies, err
}

// Policy returns a version of a policy with its file; 0 is the newest.
func (c PolicyCalls) Policy(ctx context.Context, name string, version int) (api.PolicyFile, error) {
	var a api.PolicyFile
	q := url.Values{}
	if version != 0 {
		q.Set("version", strconv.Itoa(version))
	}
	err := c.doCall(ctx, newCall(api.GetPolicy, name).withQuery(q), &a)
	return a, err
}

// ApplyPolicy puts a policy file in force.
func (c PolicyCalls) ApplyPolicy(ctx context.Context, text string) (api.PolicyApplied, error) {
	var a api.PolicyApplied
	err := c.doCall(ctx, newCall(api.ApplyPolicy).withBody(api.PolicyText{Text: text}), &a)
	return a, err
}

// PlanPolicy asks which machines a policy would place elsewhere.
func (c PolicyCalls) PlanPolicy(ctx context.Context, about api.PolicyQuestion) (api.PolicyPlan, error) {
	var a api.PolicyPlan
	err := c.doCall(ctx, newCall(api.PlanPolicy).withBody(about), &a)
	return a, err
}

// RollbackPolicy puts an earlier version of a policy in force again; 0 is the one before.
func (c PolicyCalls) RollbackPolicy(ctx context.Context, name string, to int) (api.PolicyApplied, error) {
	var a api.PolicyApplied
	err := c.doCall(ctx, newCall(api.RollbackPolicy, name).withBody(api.Rollback{To: to}), &a)
	return a, err
}

// DeletePolicy deletes an unused policy.
func (c PolicyCalls) DeletePolicy(ctx context.Context, name string) error {
	return c.doCall(ctx, newCall(api.DeletePolicy, name), nil)
}

// ChoosePolicies sets the default policy and the shadow; nil leaves one unchanged, "" unsets it.
func (c PolicyCalls) ChoosePolicies(ctx context.Context, def, shadow *string) error {
	in := api.PolicyChoice{Default: def, Shadow: shadow}
	return c.doCall(ctx, newCall(api.ChoosePolicies).withBody(in), nil)
}

// AppPolicy returns the policy that an app chose; "" is the default.
func (c PolicyCalls) AppPolicy(ctx context.Context, app string) (string, error) {
	var a api.AppPolicy
	err := c.doCall(ctx, newCall(api.GetAppPolicy, app), &a)
	return a.Policy, err
}

// SetAppPolicy chooses an app's policy; "" is the default.
func (c PolicyCalls) SetAppPolicy(ctx context.Context, app, name string) error {
	return c.doCall(ctx, newCall(api.SetAppPolicy, app).withBody(api.AppPolicy{Policy: name}), nil)
}
