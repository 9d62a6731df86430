package client

import (
	"context"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/machine"
)

// AppCalls are the client's calls on apps, volumes and secrets.
type AppCalls struct{ transport }

// Apps lists the apps.
func (c AppCalls) Apps(ctx context.Context) ([]api.App, error) {
	var a api.AppList
	err := c.doCall(ctx, newCall(api.ListApps), &a)
	return a.Apps, err
}

// App returns one app.
func (c AppCalls) App(ctx context.Context, name string) (api.App, error) {
	var a api.App
	err := c.doCall(ctx, newCall(api.GetApp, name), &a)
	return a, err
}

// CreateApp makes an app.
func (c AppCalls) CreateApp(ctx context.Context, name string) (api.App, error) {
	var a api.App
	in := api.NewApp{Name: name, Org: "personal"}
	err := c.doCall(ctx, newCall(api.CreateApp).withBody(in), &a)
	return a, err
}

// DestroyApp destroys an app with its machines and volumes.
func (c AppCalls) DestroyApp(ctx context.Context, name string) error {
	return c.doCall(ctx, newCall(api.DeleteApp, name), nil)
}

// Volumes lists an app's volumes.
func (c AppCalls) Volumes(ctx context.Context, app string) ([]machine.Volume, error) {
	var vs []machine.Volume
	err := c.doCall(ctx, newCall(api.ListVolumes, app), &vs)
	return vs, err
}

// CreateVolume makes a volume.
func (c AppCalls) CreateVolume(ctx context.Context, app string, s api.NewVolume) (machine.Volume, error) {
	var v machine.Volume
	err := c.doCall(ctx, newCall(api.CreateVolume, app).withBody(s), &v)
	return v, err
}

// DestroyVolume destroys an unattached volume.
func (c AppCalls) DestroyVolume(ctx context.Context, app, id string) (machine.Volume, error) {
	var v machine.Volume
	err := c.doCall(ctx, newCall(api.DeleteVolume, app, id), &v)
	return v, err
}

// ExtendVolume makes a volume larger.
func (c AppCalls) ExtendVolume(ctx context.Context, app, id string, sizeGB int) (machine.Volume, error) {
	var a api.Extended
	k := newCall(api.ExtendVolume, app, id).withBody(api.ExtendRequest{SizeGB: sizeGB})
	err := c.doCall(ctx, k, &a)
	return a.Volume, err
}

// SnapshotVolume copies a volume as it is now.
func (c AppCalls) SnapshotVolume(ctx context.Context, app, id string) error {
	return c.doCall(ctx, newCall(api.CreateSnapshot, app, id), nil)
}

// Snapshots lists a volume's snapshots.
func (c AppCalls) Snapshots(ctx context.Context, app, id string) ([]machine.Snapshot, error) {
	var s []machine.Snapshot
	err := c.doCall(ctx, newCall(api.ListSnapshots, app, id), &s)
	return s, err
}

// Secrets lists an app's secrets.
func (c AppCalls) Secrets(ctx context.Context, app string) ([]api.Secret, error) {
	var a api.SecretList
	err := c.doCall(ctx, newCall(api.ListSecrets, app), &a)
	return a.Secrets, err
}

// RollSecrets sets secrets, and replaces the machines of the app's service that read them.
func (c AppCalls) RollSecrets(ctx context.Context, app string, in api.SecretsRoll) (out api.SecretsRolled, err error) {
	err = c.doCall(ctx, newCall(api.RollSecrets, app).withBody(in), &out)
	return out, err
}

// PlanSecrets says what a RollSecrets would do. Nothing changes.
func (c AppCalls) PlanSecrets(ctx context.Context, app string, in api.SecretsRoll) (p api.ReleasePlan, err error) {
	err = c.doCall(ctx, newCall(api.PlanSecrets, app).withBody(in), &p)
	return p, err
}

// SetSecrets sets secrets, and deletes those whose value is nil.
func (c AppCalls) SetSecrets(ctx context.Context, app string, values map[string]*string) error {
	k := newCall(api.SetSecrets, app).withBody(api.SecretValues{Values: values})
	return c.doCall(ctx, k, nil)
}
