package client

import (
	"context"
	"net/url"
	"strconv"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/machine"
)

// WorkerCordon says who wants a worker to take nothing new, why, and for how long.
type WorkerCordon struct {
	Owner  string  `json:"owner"`
	Reason string  `json:"reason"`
	TTL    float64 `json:"ttl,omitempty"` // seconds; 0: until somebody ends it
	Drain  bool    `json:"drain,omitempty"`
}

// CordonWorker makes a worker take nothing new. It gives the worker's record afterwards.
func (c *Client) CordonWorker(ctx context.Context, worker string, to WorkerCordon) (rec cluster.Record, err error) {
	err = c.do(ctx, call{method: "PUT", path: route("souk", "workers", worker, "cordon"), in: to}, &rec)
	return rec, err
}

// UncordonWorker makes a worker take things again.
func (c *Client) UncordonWorker(ctx context.Context, worker string) (rec cluster.Record, err error) {
	err = c.do(ctx, call{method: "DELETE", path: route("souk", "workers", worker, "cordon")}, &rec)
	return rec, err
}

// DrainPlan says where a worker's machines would go if it were emptied now.
type DrainPlan struct {
	Worker string `json:"worker"`
	Moves  []Move `json:"moves"`
}

// Move is one machine of a plan. Fate is moves, stays or stuck.
type Move struct {
	App     string        `json:"app"`
	Machine string        `json:"machine"`
	Name    string        `json:"name"`
	State   machine.State `json:"state"`
	Fate    string        `json:"fate"`
	To      string        `json:"to,omitempty"`
	Reason  string        `json:"reason"`
}

// DrainPlan asks where a worker's machines would go. Nothing is done.
func (c *Client) DrainPlan(ctx context.Context, worker string) (p DrainPlan, err error) {
	err = c.do(ctx, call{method: "GET", path: route("souk", "workers", worker, "drain")}, &p)
	return p, err
}

// Moved is a machine that was made anew elsewhere.
type Moved struct {
	From    string           `json:"from"`
	Worker  string           `json:"worker"` // where it was
	Machine *machine.Machine `json:"machine"`
	DownMS  float64          `json:"down_ms"`
}

// Move makes a machine anew at another worker, under another id and its own name.
func (c *Client) Move(ctx context.Context, app, id string) (m Moved, err error) {
	err = c.do(ctx, call{method: "POST", path: route("souk", "apps", app, "machines", id, "move")}, &m)
	return m, err
}

// Leave has the member that answers say goodbye and end.
func (c *Client) Leave(ctx context.Context) error {
	return c.do(ctx, call{method: "POST", path: route("souk", "leave")}, nil)
}

// RemoveMember makes a member one that may not come back.
func (c *Client) RemoveMember(ctx context.Context, id, by, reason string, force bool) error {
	q := url.Values{"by": {by}, "reason": {reason}, "force": {strconv.FormatBool(force)}}
	return c.do(ctx, call{method: "DELETE", path: route("souk", "members", id), query: q}, nil)
}

// Finding is one thing that was looked at.
type Finding struct {
	Member string `json:"member"`
	Check  string `json:"check"`
	OK     bool   `json:"ok"`
	Have   string `json:"have"`
	Advice string `json:"advice,omitempty"`
}

// Health is the health of the cluster as the member that answers finds it.
type Health struct {
	Member   string    `json:"member,omitempty"`
	At       time.Time `json:"at"`
	OK       bool      `json:"ok"`
	Findings []Finding `json:"findings"`
}

// Health asks for it.
func (c *Client) Health(ctx context.Context) (h Health, err error) {
	err = c.do(ctx, call{method: "GET", path: route("souk", "health")}, &h)
	return h, err
}

// Disconnect gives what is to become of an app's machines on a worker that cannot be heard: fast, fenced or never.
func (c *Client) Disconnect(ctx context.Context, app string) (string, error) {
	var b struct {
		Policy string `json:"policy"`
	}
	err := c.do(ctx, call{method: "GET", path: route("souk", "apps", app, "disconnect")}, &b)
	return b.Policy, err
}

// SetDisconnect sets it.
func (c *Client) SetDisconnect(ctx context.Context, app, policy string) error {
	in := map[string]string{"policy": policy}
	return c.do(ctx, call{method: "PUT", path: route("souk", "apps", app, "disconnect"), in: in}, nil)
}
