package client

import (
	"context"

	"github.com/soukhq/souk/api"
)

// AppBudget returns the eviction budget of an app.
func (c *Client) AppBudget(ctx context.Context, app string) (b api.AppBudget, err error) {
	err = c.doCall(ctx, newCall(api.GetAppBudget, app), &b)
	return b, err
}

// SetAppBudget sets the eviction budget for machines that are made from then on; with Default it removes the app's own
// budget.
func (c *Client) SetAppBudget(ctx context.Context, app string, to api.AppBudget) (b api.AppBudget, err error) {
	err = c.doCall(ctx, newCall(api.SetAppBudget, app).withBody(to), &b)
	return b, err
}
