package client

import (
	"context"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/quota"
)

// Namespaces lists all namespaces.
func (c *Client) Namespaces(ctx context.Context) ([]api.Namespace, error) {
	var out struct {
		Namespaces []api.Namespace `json:"namespaces"`
	}
	err := c.do(ctx, call{method: "GET", path: route("souk", "namespaces")}, &out)
	return out.Namespaces, err
}

// CreateNamespace makes a namespace without a limit.
func (c *Client) CreateNamespace(ctx context.Context, name string) (n api.Namespace, err error) {
	err = c.do(ctx, call{method: "POST", path: route("souk", "namespaces"), in: map[string]string{"name": name}}, &n)
	return n, err
}

// RemoveNamespace removes a namespace that no app is in.
func (c *Client) RemoveNamespace(ctx context.Context, name string) error {
	return c.do(ctx, call{method: "DELETE", path: route("souk", "namespaces", name)}, nil)
}

// Quota tells of one namespace.
func (c *Client) Quota(ctx context.Context, name string) (n api.Namespace, err error) {
	err = c.do(ctx, call{method: "GET", path: route("souk", "namespaces", name, "quota")}, &n)
	return n, err
}

// SetQuota sets what a namespace may spend, nil for no limit; a nil weight leaves that of its fair share.
func (c *Client) SetQuota(ctx context.Context, name string, b *quota.Budget, weight *float64) (n api.Namespace, err error) {
	err = c.do(ctx, call{method: "PUT", path: route("souk", "namespaces", name, "quota"), in: map[string]any{"budget": b, "weight": weight}}, &n)
	return n, err
}

// Price gives what resources cost.
func (c *Client) Price(ctx context.Context) (p quota.Price, err error) {
	err = c.do(ctx, call{method: "GET", path: route("souk", "price")}, &p)
	return p, err
}

// SetPrice sets what resources cost from now on.
func (c *Client) SetPrice(ctx context.Context, p quota.Price) (quota.Price, error) {
	var out quota.Price
	err := c.do(ctx, call{method: "PUT", path: route("souk", "price"), in: p}, &out)
	return out, err
}

// AppNamespace gives the namespace of an app.
func (c *Client) AppNamespace(ctx context.Context, app string) (string, error) {
	var out struct {
		Namespace string `json:"namespace"`
	}
	err := c.do(ctx, call{method: "GET", path: route("souk", "apps", app, "namespace")}, &out)
	return out.Namespace, err
}

// SetAppNamespace puts an app into a namespace, for machines that are made from then on.
func (c *Client) SetAppNamespace(ctx context.Context, app, name string) error {
	return c.do(ctx, call{method: "PUT", path: route("souk", "apps", app, "namespace"), in: map[string]string{"namespace": name}}, nil)
}
