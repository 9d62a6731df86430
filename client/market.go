package client

import (
	"context"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/machine"
)

// Quote asks a worker how it would answer a bid. Nothing is reserved.
func (c *Client) Quote(ctx context.Context, w cluster.WorkerID, b api.Bid) (q market.Quote, err error) {
	err = c.doCall(ctx, newCall(api.QuoteAt, string(w)).withBody(b), &q)
	return q, err
}

// Hold asks a worker to hold room for a bid. Set the launch's id to the answer's Machine before granting.
func (c *Client) Hold(ctx context.Context, w cluster.WorkerID, b api.Bid) (h api.Held, err error) {
	err = c.doCall(ctx, newCall(api.HoldAt, string(w)).withBody(b), &h)
	return h, err
}

// ReleaseHold releases held room. Releasing a hold that is gone is no error.
func (c *Client) ReleaseHold(ctx context.Context, w cluster.WorkerID, hold string) error {
	return c.doCall(ctx, newCall(api.ReleaseAt, string(w), hold), nil)
}

// GrantAt makes a machine at one worker.
func (c *Client) GrantAt(ctx context.Context, w cluster.WorkerID, b api.Bid) (*machine.Machine, error) {
	m := new(machine.Machine)
	if err := c.doCall(ctx, newCall(api.GrantAt, string(w)).withBody(b), m); err != nil {
		return nil, err
	}
	return m, nil
}

// LaunchGang places a gang. It returns when all are started, or when there was no room in the given time.
func (c *Client) LaunchGang(ctx context.Context, app string, r api.GangRequest) (*api.Gang, error) {
	g := new(api.Gang)
	if err := c.doCall(ctx, newCall(api.CreateGang, app).withBody(r), g); err != nil {
		return nil, err
	}
	return g, nil
}

// Members lists the members of the cluster, as the answering member knows them; none if souk is alone.
func (c *Client) Members(ctx context.Context) ([]cluster.Member, error) {
	var a api.MemberList
	err := c.doCall(ctx, newCall(api.ListMembers), &a)
	return a.Members, err
}
