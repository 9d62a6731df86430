package gateway

import (
	"net/http"
	"slices"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/catalog"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Bounds of a page of an organization's machines.
const (
	defaultPage = 100
	maxPage     = 1000
)

// orgsAPI serves what an organization has.
type orgsAPI struct {
	catalog interface {
		Apps() []catalog.App
	}
	directory *directory
}

// handlers returns what it serves.
func (g *orgsAPI) handlers() handlers {
	return handlers{
		"GET /v1/orgs/{org}/machines": g.listOrgMachines,
		"GET /v1/orgs/{org}/volumes":  g.listOrgVolumes,
	}
}

// appsOf gives the names of an organization's apps.
func (g *orgsAPI) appsOf(org string) map[string]bool {
	names := map[string]bool{}
	for _, a := range g.catalog.Apps() {
		if a.Org == org {
			names[a.Name] = true
		}
	}
	return names
}

// listOrgMachines pages through an organization's machines in the order of their ids: the cursor is the last one's, so
// machines that come and go meanwhile move no other.
func (g *orgsAPI) listOrgMachines(w http.ResponseWriter, r *http.Request) error {
	limit, err := queryInt(r, "limit", defaultPage, 1, maxPage)
	if err != nil {
		return err
	}
	deleted, err := queryBool(r, "include_deleted")
	if err != nil {
		return err
	}
	after, err := queryTime(r, "updated_after")
	if err != nil {
		return err
	}
	apps, cursor := g.appsOf(r.PathValue("org")), r.URL.Query().Get("cursor")
	all, err := g.directory.listing(r.Context(), "", deleted, func(m *machine.Machine) bool {
		return m.ID > cursor && apps[m.App] && updatedAfter(m, after)
	})
	if err != nil {
		return err
	}
	page := firstByID(all, limit)
	out := api.MachinePage{Machines: []*machine.Machine{}}
	if n := len(page); n > 0 {
		out.LastMachineID, out.LastUpdatedAt = page[n-1].ID, page[n-1].UpdatedAt
		if n < len(all) {
			out.NextCursor = out.LastMachineID
		}
	}
	head, tail := around(out)
	answerListed(w, head, page, tail)
	return nil
}

func updatedAfter(m *machine.Machine, after time.Time) bool {
	if after.IsZero() {
		return true
	}
	at, err := time.Parse(time.RFC3339, m.UpdatedAt)
	return err != nil || at.After(after)
}

func queryTime(r *http.Request, name string) (time.Time, error) {
	s := r.URL.Query().Get(name)
	if s == "" {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return at, fault.New(fault.Invalid, "query", "%s=%q is not a time; write it as \"2026-01-31T12:00:00Z\"", name, clip(s, 40))
	}
	return at, nil
}

func (g *orgsAPI) listOrgVolumes(w http.ResponseWriter, r *http.Request) error {
	all, err := g.directory.volumes(r.Context(), "")
	if err != nil {
		return err
	}
	apps := g.appsOf(r.PathValue("org"))
	all = slices.DeleteFunc(all, func(v machine.Volume) bool { return !apps[v.App] })
	answer(w, http.StatusOK, api.VolumeList{Volumes: all})
	return nil
}
