package client

import (
	"context"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/gossip"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/market"
)

// Bid is a launch offered to one worker, by a scheduler that chooses for itself.
type Bid struct {
	App    string          `json:"app"`
	Launch *machine.Launch `json:"launch"`
	Hold   string          `json:"hold,omitempty"` // token of a hold: to be made ("" draws one), or redeemed by a grant
	TTL    float64         `json:"ttl,omitempty"`  // of a hold, in seconds
	Evict  bool            `json:"evict,omitempty"`
	Reason string          `json:"reason,omitempty"` // a sentence for souk explain
}

// Held is room that a worker keeps until Expires.
type Held struct {
	Hold    string    `json:"hold"`
	Expires time.Time `json:"expires"`
	Machine string    `json:"machine"` // the id that the launch of the grant must have
}

// Quote asks a worker what it would say to a bid. Nothing is reserved.
func (c *Client) Quote(ctx context.Context, w cluster.WorkerID, b Bid) (q market.Quote, err error) {
	err = c.do(ctx, call{method: "POST", path: route("souk", "workers", string(w), "quote"), in: b}, &q)
	return q, err
}

// Hold asks a worker to keep room for a bid. Set the launch's id to the answer's Machine before granting.
func (c *Client) Hold(ctx context.Context, w cluster.WorkerID, b Bid) (h Held, err error) {
	err = c.do(ctx, call{method: "POST", path: route("souk", "workers", string(w), "holds"), in: b}, &h)
	return h, err
}

// ReleaseHold gives held room back. It is nil when there is none (any more).
func (c *Client) ReleaseHold(ctx context.Context, w cluster.WorkerID, hold string) error {
	return c.do(ctx, call{method: "DELETE", path: route("souk", "workers", string(w), "holds", hold)}, nil)
}

// GrantAt makes a machine at one worker.
func (c *Client) GrantAt(ctx context.Context, w cluster.WorkerID, b Bid) (*machine.Machine, error) {
	m := new(machine.Machine)
	if err := c.do(ctx, call{method: "POST", path: route("souk", "workers", string(w), "machines"), in: b}, m); err != nil {
		return nil, err
	}
	return m, nil
}

// GangRequest asks for Size machines of one launch of which at least Min start together, or none.
type GangRequest struct {
	Size   int             `json:"size"`
	Min    int             `json:"min,omitempty"`  // 0: all
	Same   string          `json:"same,omitempty"` // attribute that must have one value on all their workers
	Wait   float64         `json:"wait,omitempty"` // seconds to go on trying
	Launch *machine.Launch `json:"launch"`
}

// Gang is a gang that was placed; its machines are in the order of their ranks.
type Gang struct {
	Gang     string             `json:"gang"`
	Machines []*machine.Machine `json:"machines"`
	Size     int                `json:"size"`
	Tries    int                `json:"tries"`
	Refusals []string           `json:"refusals,omitempty"`
}

// LaunchGang places a gang. It answers when all are started, or when there was no room in the time given.
func (c *Client) LaunchGang(ctx context.Context, app string, r GangRequest) (*Gang, error) {
	g := new(Gang)
	if err := c.do(ctx, call{method: "POST", path: route("souk", "apps", app, "gangs"), in: r}, g); err != nil {
		return nil, err
	}
	return g, nil
}

// Members lists the members of the cluster, as the one that answers knows them; none where souk is alone.
func (c *Client) Members(ctx context.Context) ([]gossip.Member, error) {
	var a struct {
		Members []gossip.Member `json:"members"`
	}
	err := c.do(ctx, call{method: "GET", path: route("souk", "members")}, &a)
	return a.Members, err
}
