package gateway

import (
	"cmp"
	"context"
	"net/http"
	"sync"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/fleet/find"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/store/catalog"
)

// appAnswer returns the answer for an app with its counts.
func appAnswer(a catalog.App, machines, volumes int) api.App {
	status := "pending"
	switch {
	case a.Deleting:
		status = "deleting"
	case machines > 0:
		status = "deployed"
	}
	return api.App{
		ID: a.ID, Name: a.Name, NumericID: a.Number, Network: a.Network, AppRole: a.Role, Status: status,
		CreatedAt:    a.CreatedAt,
		MachineCount: machines, VolumeCount: volumes, Organization: api.Organization{Name: a.Org, Slug: a.Org,
			NumericID: 1},
	}
}

// appsAPI serves apps and their settings.
type appsAPI struct {
	catalog   appCatalog
	directory *directory
}

// appCatalog is what appsAPI needs of the catalog.
type appCatalog interface {
	App(name string) (catalog.App, error)
	AllApps() []catalog.App
	CreateApp(name, org, network, role string) (catalog.App, error)
	MarkDeleting(name string) error
	DeleteApp(name string) error
	SetEvictionBudget(app string, b *machine.EvictionBudget) error
	SetDisconnect(app, policy string) error
}

func (a *appsAPI) opHandlers() handlers {
	return handlers{
		"POST /v1/apps":                           a.createApp,
		"GET /v1/apps":                            a.listApps,
		"GET /v1/apps/{app}":                      a.getApp,
		"DELETE /v1/apps/{app}":                   a.deleteApp,
		"GET /v1/apps/{app}/ip_assignments":       a.listIPs,
		"GET /v1/souk/apps/{app}/eviction-budget": a.getAppBudget,
		"PUT /v1/souk/apps/{app}/eviction-budget": a.setAppBudget,
		"GET /v1/souk/apps/{app}/disconnect":      a.getDisconnect,
		"PUT /v1/souk/apps/{app}/disconnect":      a.setDisconnect,
	}
}

func (a *appsAPI) createApp(w http.ResponseWriter, r *http.Request) error {
	var in api.NewApp
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	name := in.Name
	switch {
	case name == "":
		name = in.AppName
	case in.AppName != "" && in.AppName != name:
		return fault.New(fault.Invalid, fault.CodeAppName,
			"name is %q and app_name is %q; send one of them", clipText(name, 80), clipText(in.AppName, 80))
	}
	if err := checkAppsUser(r, name); err != nil {
		return err
	}
	app, err := a.catalog.CreateApp(name, in.Org, in.Network, in.Role)
	if err != nil {
		return err
	}
	answerJSON(w, http.StatusCreated, appAnswer(app, 0, 0))
	return nil
}

func (a *appsAPI) listApps(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	volumes, silent, err := a.directory.Volumes(r.Context(), "")
	if err != nil {
		return err
	}
	a.directory.nameMissing(w, silent)
	count := countByApp(a.directory.Fleet.Snapshot(), volumes)
	list := api.AppList{Apps: []api.App{}}
	for _, app := range a.catalog.AllApps() {
		if org := q.Get("org_slug"); org != "" && org != app.Org {
			continue
		}
		if role := q.Get("app_role"); role != "" && role != app.Role {
			continue
		}
		list.Apps = append(list.Apps, count(app))
	}
	list.Total = len(list.Apps)
	answerJSON(w, http.StatusOK, list)
	return nil
}

// countByApp returns a function that makes the answer for an app with its counts.
func countByApp(known *fleet.Snapshot, volumes []machine.Volume) func(catalog.App) api.App {
	ms, vs := map[string]int{}, map[string]int{}
	for m := range known.AllMachines() {
		ms[m.App]++
	}
	for _, v := range volumes {
		vs[v.App]++
	}
	return func(a catalog.App) api.App { return appAnswer(a, ms[a.Name], vs[a.Name]) }
}

func (a *appsAPI) getApp(w http.ResponseWriter, r *http.Request) error {
	app, err := a.catalog.App(r.PathValue("app"))
	if err != nil {
		return err
	}
	machines := 0
	for range a.directory.Fleet.Snapshot().MachinesOf(app.Name) {
		machines++
	}
	volumes, silent, err := a.directory.Volumes(r.Context(), app.Name)
	if err != nil {
		return err
	}
	a.directory.nameMissing(w, silent)
	answerJSON(w, http.StatusOK, appAnswer(app, machines, len(volumes)))
	return nil
}

// deleteApp deletes an app with its machines and volumes. It marks the app first, so after an interrupted deletion the
// app takes no new machines, and deleting again continues.
func (a *appsAPI) deleteApp(w http.ResponseWriter, r *http.Request) error {
	ctx, name := context.WithoutCancel(r.Context()), r.PathValue("app")
	if err := a.catalog.MarkDeleting(name); err != nil {
		return err
	}
	_, errs := find.AskAll(a.directory.Workers(), func(k Worker) (struct{}, error) {
		err := emptyWorker(ctx, k, name)
		if find.NoAnswer(err) && !a.directory.MayHave(k.ID(), name) {
			err = nil // a missing worker without machines of the app must not block its deletion
		}
		return struct{}{}, err
	})
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	if err := a.catalog.DeleteApp(name); err != nil {
		return err
	}
	answerJSON(w, http.StatusAccepted, api.OK{OK: true})
	return nil
}

const destroysAtOnce = 16 // machines of one worker that a deletion destroys at the same time

// emptyWorker destroys an app's machines on one worker, then its volumes.
func emptyWorker(ctx context.Context, w Worker, app string) error {
	machines, err := w.Machines(ctx, app, false)
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	errs, slots := make([]error, len(machines)), make(chan struct{}, destroysAtOnce)
	for i, m := range machines {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			errs[i] = destroyMachine(ctx, w, app, m.ID)
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	volumes, err := w.Volumes(ctx, app)
	if err != nil {
		return err
	}
	for _, v := range volumes {
		c := lifecycle.VolumeCommand{Verb: "destroy", App: app, Volume: v.ID}
		if _, err := w.Volume(ctx, c); err != nil && !fault.Is(err, fault.NotFound) {
			return err
		}
	}
	return nil
}

// destroyMachine destroys a machine regardless of its lease, since its whole app is deleted.
func destroyMachine(ctx context.Context, w Worker, app, id string) error {
	c := lifecycle.Command{Verb: lifecycle.Destroy, App: app, Machine: id, Kill: true}
	if l, err := w.CurrentLease(ctx, app, id); err == nil {
		c.Nonce = l.Nonce
	}
	if _, err := w.Do(ctx, c); err != nil && !fault.Is(err, fault.NotFound) {
		return err
	}
	return nil
}

func (a *appsAPI) getAppBudget(w http.ResponseWriter, r *http.Request) error {
	app, err := a.catalog.App(r.PathValue("app"))
	if err != nil {
		return err
	}
	b := app.Budget
	answerJSON(w, http.StatusOK, api.AppBudget{Budget: machine.Scheduling{EvictionBudget: b}.Budget(),
		Default: b == nil})
	return nil
}

func (a *appsAPI) setAppBudget(w http.ResponseWriter, r *http.Request) error {
	var in api.AppBudget
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	b := &in.Budget
	if in.Default {
		b = nil
	}
	if err := a.catalog.SetEvictionBudget(r.PathValue("app"), b); err != nil {
		return err
	}
	return a.getAppBudget(w, r)
}

func (a *appsAPI) getDisconnect(w http.ResponseWriter, r *http.Request) error {
	app, err := a.catalog.App(r.PathValue("app"))
	if err != nil {
		return err
	}
	answerJSON(w, http.StatusOK, api.AppDisconnect{Policy: cmp.Or(app.Disconnect, catalog.DisconnectNever)})
	return nil
}

func (a *appsAPI) setDisconnect(w http.ResponseWriter, r *http.Request) error {
	var in api.AppDisconnect
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	if err := a.catalog.SetDisconnect(r.PathValue("app"), in.Policy); err != nil {
		return err
	}
	return a.getDisconnect(w, r)
}
