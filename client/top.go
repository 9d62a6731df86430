package client

import (
	"context"

	"github.com/soukhq/souk/api"
)

// Top returns what each worker has, uses and does.
func (c *Client) Top(ctx context.Context) (u api.UsageList, err error) {
	err = c.do(ctx, newCall(api.Top), &u)
	return u, err
}
