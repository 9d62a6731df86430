package client

import (
	"context"
	"encoding/json"
	"net/url"
	"strconv"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/decision"
	"github.com/soukhq/souk/machine"
)

// Explanation is why a machine is where it is, or was, and what each worker would say now.
type Explanation struct {
	Machine   string              `json:"machine"`
	Worker    cluster.WorkerID    `json:"worker,omitempty"` // "": the machine is gone
	Placement *machine.Placement  `json:"placement"`
	Sentences []string            `json:"sentences"`
	Number    int                 `json:"number,omitempty"` // of Decision among Decisions, from 1
	Decision  *decision.Decision  `json:"decision,omitempty"`
	Decisions []DecisionSummary   `json:"decisions,omitempty"` // oldest first
	Now       []machine.Candidate `json:"now"`
	Notes     []string            `json:"notes,omitempty"` // what of the log could not be read
}

// DecisionSummary is one decision in short.
type DecisionSummary struct {
	ID      string           `json:"id"`
	At      time.Time        `json:"at"`
	Why     string           `json:"why"`
	Outcome decision.Outcome `json:"outcome"`
	Worker  cluster.WorkerID `json:"worker,omitempty"`
}

// Explain asks why a machine is where it is. ref is an id or a name; of a machine that is gone, its id. number chooses
// among several decisions, from 1; 0 is the newest.
func (c *Client) Explain(ctx context.Context, app, ref string, number int) (Explanation, error) {
	var e Explanation
	q := url.Values{}
	if number != 0 {
		q.Set("decision", strconv.Itoa(number))
	}
	err := c.do(ctx, call{method: "GET", path: route("souk", "apps", app, "machines", ref, "explain"), query: q}, &e)
	return e, err
}

// DecisionQuery says which decisions are wanted.
type DecisionQuery struct {
	App, Machine, Outcome string
	Since                 string // a time, or how long ago: 24h
	Limit                 int
	Cursor                string
}

// DecisionPage is a page of decisions, newest first.
type DecisionPage struct {
	Decisions  []*decision.Decision `json:"decisions"`
	NextCursor string               `json:"next_cursor,omitempty"`
	Notes      []string             `json:"notes,omitempty"`
}

// Decisions lists decisions, newest first.
func (c *Client) Decisions(ctx context.Context, q DecisionQuery) (DecisionPage, error) {
	v := url.Values{}
	for key, value := range map[string]string{"app": q.App, "machine": q.Machine, "outcome": q.Outcome, "since": q.Since, "cursor": q.Cursor} {
		if value != "" {
			v.Set(key, value)
		}
	}
	if q.Limit > 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	var p DecisionPage
	err := c.do(ctx, call{method: "GET", path: route("souk", "decisions"), query: v}, &p)
	return p, err
}

// ExplainedDecision is one decision and its explanation.
type ExplainedDecision struct {
	Decision  *decision.Decision `json:"decision"`
	Sentences []string           `json:"sentences"`
}

// Decision gives one decision by its id.
func (c *Client) Decision(ctx context.Context, id string) (ExplainedDecision, error) {
	var d ExplainedDecision
	err := c.do(ctx, call{method: "GET", path: route("souk", "decisions", id)}, &d)
	return d, err
}

// Plan is what a launch would meet now.
type Plan struct {
	Machine   string             `json:"machine"` // a launch with this id goes where the plan says
	Verdict   decision.Foreseen  `json:"verdict"`
	Worker    cluster.WorkerID   `json:"worker,omitempty"`
	Reason    string             `json:"reason"`
	Pending   decision.Pending   `json:"pending,omitempty"`
	Equal     []cluster.WorkerID `json:"equal,omitempty"`
	Among     []cluster.WorkerID `json:"among,omitempty"` // of a race: it goes to the first of these that answers
	Sentences []string           `json:"sentences"`
	Changes   []decision.Change  `json:"changes"`
	Victims   []Victims          `json:"victims,omitempty"`
	Decision  *decision.Decision `json:"decision"`
}

// Victims is whom a worker would evict.
type Victims struct {
	Worker  cluster.WorkerID `json:"worker"`
	Victims []string         `json:"victims"`
	Cost    float64          `json:"cost"`
}

// Plan asks what a launch would meet now, and what would help. Nothing is reserved.
func (c *Client) Plan(ctx context.Context, app string, l *machine.Launch) (Plan, error) {
	var p Plan
	err := c.do(ctx, call{method: "POST", path: route("souk", "apps", app, "plan"), in: l}, &p)
	return p, err
}

// Detail gives what souk adds to an error for programs; nothing when the server is not souk.
func (a ErrorAnswer) Detail() ErrorDetail {
	var d ErrorDetail
	if len(a.Souk) > 0 {
		_ = json.Unmarshal(a.Souk, &d) // a server that is not souk says nothing here
	}
	return d
}
