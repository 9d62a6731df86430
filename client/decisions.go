package client

import (
	"context"
	"net/url"
	"strconv"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/machine"
)

// Explain asks why a machine is where it is. ref is an id or a name; for a machine that is gone only an id. number
// chooses among several decisions, from 1; 0 is the newest.
func (c *Client) Explain(ctx context.Context, app, ref string, number int) (api.Explanation, error) {
	var e api.Explanation
	q := url.Values{}
	if number != 0 {
		q.Set("decision", strconv.Itoa(number))
	}
	err := c.doCall(ctx, newCall(api.ExplainMachine, app, ref).withQuery(q), &e)
	return e, err
}

// DecisionQuery says which decisions are wanted.
type DecisionQuery struct {
	App, Machine, Outcome string
	Since                 string // a time, or how long ago: 24h
	Limit                 int
	Cursor                string
}

// Decisions lists decisions, newest first.
func (c *Client) Decisions(ctx context.Context, q DecisionQuery) (api.DecisionPage, error) {
	v := url.Values{}
	for key, value := range map[string]string{"app": q.App, "machine": q.Machine, "outcome": q.Outcome,
		"since": q.Since, "cursor": q.Cursor} {
		if value != "" {
			v.Set(key, value)
		}
	}
	if q.Limit > 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	var p api.DecisionPage
	err := c.doCall(ctx, newCall(api.ListDecisions).withQuery(v), &p)
	return p, err
}

// Decision returns one decision by its id.
func (c *Client) Decision(ctx context.Context, id string) (api.ExplainedDecision, error) {
	var d api.ExplainedDecision
	err := c.doCall(ctx, newCall(api.GetDecision, id), &d)
	return d, err
}

// Plan asks how a launch would be placed now, and which change would help. Nothing is reserved.
func (c *Client) Plan(ctx context.Context, app string, l *machine.Launch) (api.Plan, error) {
	var p api.Plan
	err := c.doCall(ctx, newCall(api.PlanLaunch, app).withBody(l), &p)
	return p, err
}
