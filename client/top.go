package client

import (
	"context"
	"net/url"

	"github.com/soukhq/souk/api"
)

// Top returns each worker's capacity, usage and activity, and with use each machine's usage.
func (c *Client) Top(ctx context.Context, use bool) (u api.UsageList, err error) {
	k := newCall(api.Top)
	if use {
		k = k.withQuery(url.Values{"use": {"true"}})
	}
	err = c.doCall(ctx, k, &u)
	return u, err
}
