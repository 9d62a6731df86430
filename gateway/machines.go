package gateway

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/broker"
	"github.com/soukhq/souk/core/decision"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet/find"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/store/catalog"
)

// machinesAPI serves machines: it creates, reads, changes and destroys them.
type machinesAPI struct {
	catalog   machineCatalog
	broker    machineBroker
	directory *directory
}

// machineCatalog is what machinesAPI needs of the catalog.
type machineCatalog interface {
	App(name string) (catalog.App, error)
	ownAppMaker
	SecretsReach(app string, version uint64) error
}

// machineBroker is what machinesAPI needs of the broker.
type machineBroker interface {
	Place(ctx context.Context, in broker.Intent) (*broker.Placed, error)
	MountedVolumes(ctx context.Context, app string, launch *machine.Launch) ([]string, error)
	FreeOutside(app string, c *machine.Config) error
	AskOwner(why string, do func() (lifecycle.Outcome, error)) (lifecycle.Outcome, error)
	Ended(app, id string)
}

func (a *machinesAPI) opHandlers() handlers {
	return handlers{
		"POST /v1/apps/{app}/machines":              a.createMachine,
		"GET /v1/apps/{app}/machines":               a.listMachines,
		"GET /v1/apps/{app}/machines/{id}":          a.getMachine,
		"POST /v1/apps/{app}/machines/{id}":         a.updateMachine,
		"DELETE /v1/apps/{app}/machines/{id}":       a.destroyMachine,
		"GET /v1/apps/{app}/machines/{id}/wait":     a.waitMachine,
		"GET /v1/apps/{app}/machines/{id}/events":   a.listEvents,
		"GET /v1/apps/{app}/machines/{id}/versions": a.listVersions,
	}
}

func (a *machinesAPI) listMachines(w http.ResponseWriter, r *http.Request) error {
	app := r.PathValue("app")
	if _, err := a.catalog.App(app); err != nil {
		return err
	}
	deleted, err := queryBool(r, "include_deleted")
	if err != nil {
		return err
	}
	summary, err := queryBool(r, "summary")
	if err != nil {
		return err
	}
	limit, err := queryInt(r, "limit", maxPage, 1, maxPage)
	if err != nil {
		return err
	}
	query, keep := r.URL.Query(), listFilter(r)
	cursor := query.Get("cursor")
	all, silent, err := a.directory.Listing(r.Context(), app, deleted,
		func(m *machine.Machine) bool { return m.ID > cursor && keep(m) })
	if err != nil {
		return err
	}
	if summary {
		for i, m := range all {
			all[i].Text = (*find.Plain)(m.Summary())
		}
	}
	if query.Has("cursor") || query.Has("limit") {
		page := withinBytes(firstByID(all, limit), a.directory.pageBytes)
		if n := len(page); n < len(all) {
			w.Header().Set(api.NextCursorHeader, page[n-1].ID)
		}
		all = page
	} else if err := refuseTooLarge(all, listBytes); err != nil {
		return err
	}
	a.directory.nameMissing(w, silent)
	answerListed(w, "", all, "\n")
	return nil
}

// listBytes bounds the list of an app's machines if the client asks for no page.
const listBytes = 64 << 20

// refuseTooLarge refuses a list with more than most bytes: a part of it would look complete.
func refuseTooLarge(all []find.Listed, most int) error {
	if len(withinBytes(all, most)) == len(all) {
		return nil
	}
	return fault.New(fault.Invalid, codeListSize, "the list of the app's %d machines is larger than %d MiB, the "+
		"most that one answer may have; ask for summary=true, or for pages with limit and cursor: each names the "+
		"next in %s", len(all),
		most>>20, api.NextCursorHeader)
}

// listFilter reads region=, state= and metadata.K=V.
func listFilter(r *http.Request) func(*machine.Machine) bool {
	q := r.URL.Query()
	return func(m *machine.Machine) bool {
		if region := q.Get("region"); region != "" && region != m.Region {
			return false
		}
		if states := q["state"]; len(states) > 0 && !slices.Contains(strings.Split(strings.Join(states, ","), ","),
			string(m.State)) {
			return false
		}
		for k, v := range q {
			key, ok := strings.CutPrefix(k, "metadata.")
			if !ok {
				continue
			}
			if m.Config == nil || !hasValue(m.Config.Metadata, key, v[0]) {
				return false
			}
		}
		return true
	}
}

func hasValue(m map[string]string, key, want string) bool {
	got, ok := m[key]
	return ok && got == want
}

func (a *machinesAPI) getMachine(w http.ResponseWriter, r *http.Request) error {
	f, err := a.directory.Find(r.Context(), r.PathValue("app"), r.PathValue("id"))
	if err != nil {
		return err
	}
	answerJSON(w, http.StatusOK, f.Machine)
	return nil
}

func (a *machinesAPI) updateMachine(w http.ResponseWriter, r *http.Request) error {
	c := commandOf(r, lifecycle.Update)
	f, err := a.directory.Find(r.Context(), c.App, c.Machine)
	if err != nil {
		return err
	}
	if c.Launch, err = readLaunch(w, r); err != nil {
		return err
	}
	if err := settleOwnerOf(r, c.App, c.Launch); err != nil { // the machine stays whose it is
		return err
	}
	if v := c.Launch.MinSecretsVersion; v != nil {
		if err := a.catalog.SecretsReach(c.App, *v); err != nil {
			return err
		}
	}
	res := machine.Resources(c.Launch.Config)
	c.Resources = &res
	c.Launch.ID = c.Machine
	if _, err := a.broker.MountedVolumes(r.Context(), c.App, c.Launch); err != nil {
		return err
	}
	if err := a.broker.FreeOutside(c.App, c.Launch.Config); err != nil {
		return err
	}
	out, err := a.broker.AskOwner(decision.Update,
		func() (lifecycle.Outcome, error) { return f.Worker.Do(r.Context(), c) })
	if err != nil {
		return err
	}
	answerJSON(w, http.StatusOK, out.Machine)
	return nil
}

func (a *machinesAPI) destroyMachine(w http.ResponseWriter, r *http.Request) error {
	c := commandOf(r, lifecycle.Destroy)
	kill, err := queryBool(r, "kill")
	if err != nil {
		return err
	}
	force, err := queryBool(r, "force")
	if err != nil {
		return err
	}
	c.Kill = kill || force
	out, err := a.directory.doCommand(r, c)
	if err != nil {
		return err
	}
	a.broker.Ended(c.App, c.Machine)
	return answerDone(w, out)
}

func (a *machinesAPI) listEvents(w http.ResponseWriter, r *http.Request) error {
	limit, err := queryInt(r, "limit", machine.MaxEvents, 1, maxPage)
	if err != nil {
		return err
	}
	f, err := a.directory.Find(r.Context(), r.PathValue("app"), r.PathValue("id"))
	if err != nil {
		return err
	}
	events := f.Machine.Events
	if events == nil {
		events = []machine.Event{}
	}
	answerJSON(w, http.StatusOK, events[:min(limit, len(events))])
	return nil
}

func (a *machinesAPI) listVersions(w http.ResponseWriter, r *http.Request) error {
	app, id := r.PathValue("app"), r.PathValue("id")
	list, err := find.Owner(r.Context(), a.directory.Directory, app, id, find.MachineMissing,
		func(k Worker) ([]machine.Version, error) { return k.Versions(r.Context(), app, id) })
	if err != nil {
		return err
	}
	if list == nil {
		list = []machine.Version{}
	}
	answerJSON(w, http.StatusOK, list)
	return nil
}

// createMachine makes a machine exactly once: under the client's own id, the id that its idempotency key is bound to,
// or a new one.
func (a *machinesAPI) createMachine(w http.ResponseWriter, r *http.Request) error {
	app, err := openAppFor(r, a.catalog, r.PathValue("app"))
	if err != nil {
		return err
	}
	launch, err := readLaunch(w, r)
	if err != nil {
		return err
	}
	if err := settleOwnerOf(r, app.Name, launch); err != nil {
		return err
	}
	drawn, err := drawnAt(r.Header.Get(api.KeyAgeHeader))
	if err != nil {
		return err
	}
	placed, err := a.broker.Place(r.Context(),
		broker.Intent{App: app.Name, Launch: launch, Key: r.Header.Get(api.IdempotencyHeader),
			NewKey: r.Header.Get(api.NewKeyHeader) != "", Drawn: drawn})
	if err != nil {
		return err
	}
	answerJSON(w, http.StatusOK, placed.Machines[0])
	return nil
}

// maxKeyAge is the greatest accepted age of a key: keys are kept no longer.
const maxKeyAge = catalog.KeyLife

// drawnAt reads how many seconds ago a key was drawn; the zero time if it is absent.
func drawnAt(age string) (t time.Time, err error) {
	if age == "" {
		return t, nil
	}
	s, err := strconv.ParseFloat(age, 64)
	if err != nil || !(s >= 0 && s <= maxKeyAge.Seconds()) {
		return t, fault.New(fault.Invalid, codeKeyAge, "%s is how many seconds ago the key was drawn, 0 to %d, not %q",
			api.KeyAgeHeader, int(maxKeyAge.Seconds()), clipText(age, 40))
	}
	return time.Now().Add(-time.Duration(s * float64(time.Second))), nil
}

// readLaunch reads the body of a create or an update: a launch that is valid as far as the body alone shows.
func readLaunch(w http.ResponseWriter, r *http.Request) (*machine.Launch, error) {
	raw, err := readBody(w, r)
	if err != nil {
		return nil, err
	}
	l, err := machine.DecodeLaunch(raw)
	if err != nil {
		return nil, err
	}
	return l, broker.CheckLaunch(l)
}

// metadataAPI serves the metadata of machines.
type metadataAPI struct {
	directory *directory
}

func (a *metadataAPI) opHandlers() handlers {
	return handlers{
		"GET /v1/apps/{app}/machines/{id}/metadata":          a.getMetadata,
		"PUT /v1/apps/{app}/machines/{id}/metadata":          a.putMetadata,
		"PATCH /v1/apps/{app}/machines/{id}/metadata":        a.patchMetadata,
		"POST /v1/apps/{app}/machines/{id}/metadata/{key}":   a.setMetadataKey,
		"DELETE /v1/apps/{app}/machines/{id}/metadata/{key}": a.deleteMetadataKey,
	}
}

func (a *metadataAPI) getMetadata(w http.ResponseWriter, r *http.Request) error {
	f, err := a.directory.Find(r.Context(), r.PathValue("app"), r.PathValue("id"))
	if err != nil {
		return err
	}
	out := map[string]string{}
	if c := f.Machine.Config; c != nil && c.Metadata != nil {
		out = c.Metadata
	}
	answerJSON(w, http.StatusOK, out)
	return nil
}

func (a *metadataAPI) setMetadataKey(w http.ResponseWriter, r *http.Request) error {
	var in api.SetValue
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	if in.Value == nil {
		return fault.New(fault.Invalid, codeValue, "no value was sent; send {\"value\": \"...\"}, or DELETE the key")
	}
	return a.changeMetadata(w, r, map[string]*string{r.PathValue("key"): in.Value}, false)
}

func (a *metadataAPI) deleteMetadataKey(w http.ResponseWriter, r *http.Request) error {
	return a.changeMetadata(w, r, map[string]*string{r.PathValue("key"): nil}, false)
}

func (a *metadataAPI) patchMetadata(w http.ResponseWriter, r *http.Request) error {
	var in map[string]*string
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	return a.changeMetadata(w, r, in, false)
}

func (a *metadataAPI) putMetadata(w http.ResponseWriter, r *http.Request) error {
	var in map[string]*string
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	for k, v := range in {
		if v == nil {
			return fault.New(fault.Invalid, codeValue, "the key %q has no value; in a whole map every key has one",
				clipText(k, 80))
		}
	}
	return a.changeMetadata(w, r, in, true)
}

func (a *metadataAPI) changeMetadata(w http.ResponseWriter, r *http.Request, values map[string]*string,
	whole bool) error {
	for k, v := range values {
		value := ""
		setIfGiven(&value, v)
		if err := machine.CheckMetadata(k, value); err != nil {
			return err
		}
	}
	c := commandOf(r, lifecycle.SetMetadata)
	c.Metadata, c.ReplaceMetadata = values, whole
	if _, err := a.directory.doCommand(r, c); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
