package client

import (
	"context"
	"net/url"
	"strconv"
	"time"

	"github.com/soukhq/souk/policy"
)

// Policy is a policy of placement as it is in force.
type Policy struct {
	Name        string    `json:"name"`
	Version     int       `json:"version"` // 0: it comes with souk
	Description string    `json:"description"`
	Summary     string    `json:"summary"`
	Cost        uint64    `json:"cost"`
	Default     bool      `json:"default"`
	Shadow      bool      `json:"shadow"`
	Apps        []string  `json:"apps"`
	At          time.Time `json:"at,omitzero"`
	Of          int       `json:"of,omitempty"` // of a rollback: the version that it went back to
	Broken      string    `json:"broken,omitempty"`
}

// PolicyFile is a policy with its file and the versions that are kept.
type PolicyFile struct {
	Policy
	Text     string `json:"text"`
	Versions []struct {
		Version int       `json:"version"`
		At      time.Time `json:"at"`
		Of      int       `json:"of,omitempty"`
	} `json:"versions"`
}

// PolicyApplied is what applying a file did.
type PolicyApplied struct {
	Policy  Policy `json:"policy"`
	Changed bool   `json:"changed"` // false: it was in force already
}

// PolicyPlan is what a policy would place elsewhere.
type PolicyPlan struct {
	Policy     string            `json:"policy"`
	Scope      string            `json:"scope"`
	Comparison policy.Comparison `json:"comparison"`
	LeftOut    int               `json:"left_out,omitempty"`

	Recorded *policy.Comparison `json:"recorded,omitempty"` // the same for the decisions of the last day
}

type policyText struct {
	Text string `json:"text"`
}

// Policies lists the policies.
func (c *Client) Policies(ctx context.Context) ([]Policy, error) {
	var a struct {
		Policies []Policy `json:"policies"`
	}
	err := c.do(ctx, call{method: "GET", path: route("souk", "policies")}, &a)
	return a.Policies, err
}

// Policy gives a version of a policy with its file; 0 is the newest.
func (c *Client) Policy(ctx context.Context, name string, version int) (PolicyFile, error) {
	var a PolicyFile
	q := url.Values{}
	if version != 0 {
		q.Set("version", strconv.Itoa(version))
	}
	err := c.do(ctx, call{method: "GET", path: route("souk", "policies", name), query: q}, &a)
	return a, err
}

// ApplyPolicy puts a policy file in force.
func (c *Client) ApplyPolicy(ctx context.Context, text string) (PolicyApplied, error) {
	var a PolicyApplied
	err := c.do(ctx, call{method: "POST", path: route("souk", "policies"), in: policyText{text}}, &a)
	return a, err
}

// PlanPolicy asks what a policy file would place elsewhere.
func (c *Client) PlanPolicy(ctx context.Context, text string) (PolicyPlan, error) {
	var a PolicyPlan
	err := c.do(ctx, call{method: "POST", path: route("souk", "policy-plan"), in: policyText{text}}, &a)
	return a, err
}

// RollbackPolicy puts an earlier version of a policy in force again; 0 is the one before.
func (c *Client) RollbackPolicy(ctx context.Context, name string, to int) (PolicyApplied, error) {
	var a PolicyApplied
	err := c.do(ctx, call{method: "POST", path: route("souk", "policies", name, "rollback"), in: map[string]int{"to": to}}, &a)
	return a, err
}

// DeletePolicy takes out a policy that nobody uses.
func (c *Client) DeletePolicy(ctx context.Context, name string) error {
	return c.do(ctx, call{method: "DELETE", path: route("souk", "policies", name)}, nil)
}

// ChoosePolicies sets the default policy and the shadow; nil leaves one as it is, "" gives it up.
func (c *Client) ChoosePolicies(ctx context.Context, def, shadow *string) error {
	in := map[string]*string{"default": def, "shadow": shadow}
	return c.do(ctx, call{method: "PUT", path: route("souk", "policy-choice"), in: in}, nil)
}

// AppPolicy gives the policy that an app chose; "" is the default.
func (c *Client) AppPolicy(ctx context.Context, app string) (string, error) {
	var a struct {
		Policy string `json:"policy"`
	}
	err := c.do(ctx, call{method: "GET", path: route("souk", "apps", app, "policy")}, &a)
	return a.Policy, err
}

// SetAppPolicy chooses an app's policy; "" is the default.
func (c *Client) SetAppPolicy(ctx context.Context, app, name string) error {
	return c.do(ctx, call{method: "PUT", path: route("souk", "apps", app, "policy"), in: map[string]string{"policy": name}}, nil)
}
