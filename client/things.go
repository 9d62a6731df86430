package client

import (
	"context"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/machine"
)

// Apps lists the apps.
func (c *Client) Apps(ctx context.Context) ([]api.App, error) {
	var a struct {
		Apps []api.App `json:"apps"`
	}
	err := c.do(ctx, call{method: "GET", path: route("apps")}, &a)
	return a.Apps, err
}

// App gives one app.
func (c *Client) App(ctx context.Context, name string) (api.App, error) {
	var a api.App
	err := c.do(ctx, call{method: "GET", path: route("apps", name)}, &a)
	return a, err
}

// CreateApp makes an app.
func (c *Client) CreateApp(ctx context.Context, name string) (api.App, error) {
	var a api.App
	in := map[string]string{"name": name, "org_slug": "personal"}
	err := c.do(ctx, call{method: "POST", path: route("apps"), in: in}, &a)
	return a, err
}

// DestroyApp destroys an app with its machines and volumes.
func (c *Client) DestroyApp(ctx context.Context, name string) error {
	return c.do(ctx, call{method: "DELETE", path: route("apps", name)}, nil)
}

// Volumes lists an app's volumes.
func (c *Client) Volumes(ctx context.Context, app string) ([]machine.Volume, error) {
	var vs []machine.Volume
	err := c.do(ctx, call{method: "GET", path: route("apps", app, "volumes")}, &vs)
	return vs, err
}

// CreateVolume makes a volume.
func (c *Client) CreateVolume(ctx context.Context, app string, s api.NewVolume) (machine.Volume, error) {
	var v machine.Volume
	err := c.do(ctx, call{method: "POST", path: route("apps", app, "volumes"), in: s}, &v)
	return v, err
}

// DestroyVolume destroys a volume that is attached to nothing.
func (c *Client) DestroyVolume(ctx context.Context, app, id string) (machine.Volume, error) {
	var v machine.Volume
	err := c.do(ctx, call{method: "DELETE", path: route("apps", app, "volumes", id)}, &v)
	return v, err
}

// ExtendVolume makes a volume larger.
func (c *Client) ExtendVolume(ctx context.Context, app, id string, sizeGB int) (machine.Volume, error) {
	var a struct {
		Volume machine.Volume `json:"volume"`
	}
	k := call{method: "PUT", path: route("apps", app, "volumes", id, "extend"), in: map[string]int{"size_gb": sizeGB}}
	err := c.do(ctx, k, &a)
	return a.Volume, err
}

// SnapshotVolume copies a volume as it is now.
func (c *Client) SnapshotVolume(ctx context.Context, app, id string) error {
	return c.do(ctx, call{method: "POST", path: route("apps", app, "volumes", id, "snapshots")}, nil)
}

// Snapshots lists a volume's snapshots.
func (c *Client) Snapshots(ctx context.Context, app, id string) ([]machine.Snapshot, error) {
	var s []machine.Snapshot
	err := c.do(ctx, call{method: "GET", path: route("apps", app, "volumes", id, "snapshots")}, &s)
	return s, err
}

// Secrets lists an app's secrets.
func (c *Client) Secrets(ctx context.Context, app string) ([]api.Secret, error) {
	var a struct {
		Secrets []api.Secret `json:"secrets"`
	}
	err := c.do(ctx, call{method: "GET", path: route("apps", app, "secrets")}, &a)
	return a.Secrets, err
}

// SetSecrets sets secrets, and deletes those whose value is nil.
func (c *Client) SetSecrets(ctx context.Context, app string, values map[string]*string) error {
	k := call{method: "POST", path: route("apps", app, "secrets"), in: map[string]any{"values": values}}
	return c.do(ctx, k, nil)
}
