package client

import (
	"context"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/core/quota"
)

// NamespaceCalls are the client's calls on namespaces, quotas and the price.
type NamespaceCalls struct{ transport }

// Namespaces lists all namespaces.
func (c NamespaceCalls) Namespaces(ctx context.Context) ([]api.Namespace, error) {
	var out api.NamespaceList
	err := c.doCall(ctx, newCall(api.ListNamespaces), &out)
	return out.Namespaces, err
}

// CreateNamespace makes a namespace without a limit.
func (c NamespaceCalls) CreateNamespace(ctx context.Context, name string) (n api.Namespace, err error) {
	err = c.doCall(ctx, newCall(api.CreateNamespace).withBody(api.NewNamespace{Name: name}), &n)
	return n, err
}

// RemoveNamespace removes a namespace that no app is in.
func (c NamespaceCalls) RemoveNamespace(ctx context.Context, name string) error {
	return c.doCall(ctx, newCall(api.DeleteNamespace, name), nil)
}

// Quota returns one namespace with its quota.
func (c NamespaceCalls) Quota(ctx context.Context, name string) (n api.Namespace, err error) {
	err = c.doCall(ctx, newCall(api.GetQuota, name), &n)
	return n, err
}

// SetQuota sets a namespace's budget (nil: no limit), its fair-share weight, and what it may occupy at once (most); a
// nil weight or most is left unchanged.
func (c NamespaceCalls) SetQuota(ctx context.Context, name string, b *quota.Budget, weight *float64,
	most *quota.Caps) (n api.Namespace, err error) {
	err = c.doCall(ctx, newCall(api.SetQuota, name).withBody(api.QuotaRequest{Budget: b, Weight: weight, Max: most}),
		&n)
	return n, err
}

// Price returns what resources cost.
func (c NamespaceCalls) Price(ctx context.Context) (p quota.Price, err error) {
	err = c.doCall(ctx, newCall(api.GetPrice), &p)
	return p, err
}

// SetPrice sets what resources cost from now on.
func (c NamespaceCalls) SetPrice(ctx context.Context, p quota.Price) (quota.Price, error) {
	var out quota.Price
	err := c.doCall(ctx, newCall(api.SetPrice).withBody(p), &out)
	return out, err
}

// AppNamespace returns the namespace of an app.
func (c NamespaceCalls) AppNamespace(ctx context.Context, app string) (string, error) {
	var out api.AppNamespace
	err := c.doCall(ctx, newCall(api.GetAppNamespace, app), &out)
	return out.Namespace, err
}

// SetAppNamespace puts an app into a namespace, for machines that are made from then on.
func (c NamespaceCalls) SetAppNamespace(ctx context.Context, app, name string) error {
	return c.doCall(ctx, newCall(api.SetAppNamespace, app).withBody(api.AppNamespace{Namespace: name}), nil)
}
