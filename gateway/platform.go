package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/broker"
	"github.com/soukhq/souk/broker/known"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet/find"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/store/catalog"
)

// platformAPI serves the regions, and simulated placements.
type platformAPI struct {
	region    cluster.Region
	broker    regionBroker
	chosen    known.Policies
	directory *directory
}

func (a *platformAPI) opHandlers() handlers {
	return handlers{
		"GET /v1/platform/regions":     a.listRegions,
		"POST /v1/platform/placements": a.simulatePlacements,
	}
}

func (a *platformAPI) listRegions(w http.ResponseWriter, r *http.Request) error {
	guest := machine.Guest{CPUKind: machine.Shared, CPUs: 1, MemoryMB: 256}
	if size := r.URL.Query().Get("size"); size != "" {
		var err error
		if guest, err = machine.Preset(size); err != nil {
			return err
		}
	}
	want, err := broker.GuestResources(&guest)
	if err != nil {
		return err
	}
	out := api.RegionList{Regions: []api.Region{}, Nearest: string(a.region)}
	byRegion := map[cluster.Region]int{}
	view := a.directory.View()
	for _, rec := range view.Workers {
		byRegion[rec.Region] += placement.CountFits(placement.Request{Resources: want}, rec, maxPlacements)
	}
	for code, n := range byRegion {
		out.Regions = append(out.Regions, api.Region{
			Code: string(code), Name: string(code), Capacity: int64(n), GatewayAvailable: code == a.region,
			GeoRegion: "local",
		})
	}
	slices.SortFunc(out.Regions, func(x, b api.Region) int { return cmp.Compare(x.Code, b.Code) })
	answerJSON(w, http.StatusOK, out)
	return nil
}

const maxPlacements = 1000 // machines of one simulation

// simulatePlacements says where count machines would go now, or with count 0 how many each region could have. It asks
// the workers for quotes and reserves nothing, so the room may be gone a moment later.
func (a *platformAPI) simulatePlacements(w http.ResponseWriter, r *http.Request) error {
	var in api.PlacementsRequest
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	req, err := a.simulatedRequest(r.Context(), in)
	if err != nil {
		return err
	}
	policy, err := a.chosen.PolicyFor(&req)
	if err != nil {
		return err
	}
	policy, err = withWeights(policy, in.Weights)
	if err != nil {
		return err
	}
	view := a.quotedView(r.Context(), req)
	counts := map[cluster.Region]int{}
	if in.Count == 0 {
		for _, rec := range view.Workers {
			counts[rec.Region] += placement.CountFits(req, rec, maxPlacements)
		}
	} else if counts = placement.Spread(req, view, policy, int(in.Count)); counts == nil {
		counts = map[cluster.Region]int{}
	}
	answerJSON(w, http.StatusOK, api.Placements{Regions: regionPlacements(req, view, counts)})
	return nil
}

func (a *platformAPI) simulatedRequest(ctx context.Context, in api.PlacementsRequest) (placement.Request, error) {
	guest := in.Compute
	if guest == nil {
		guest = &machine.Guest{CPUKind: machine.Performance, CPUs: 1, MemoryMB: 2048}
	}
	req := placement.Request{Start: true}
	if in.Count > maxPlacements {
		return req, fault.New(fault.Invalid, codeCount,
			"at most %d machines are placed in one simulation, not %d", maxPlacements, in.Count)
	}
	if in.VolumeSizeBytes > api.MaxVolumeGB<<30 {
		return req, fault.New(fault.Invalid, codeVolumeSizeBytes, "a volume has at most %d GB; ask for less",
			api.MaxVolumeGB)
	}
	var err error
	if req.Resources, err = broker.GuestResources(guest); err != nil {
		return req, err
	}
	req.Resources.Disk += int64(in.VolumeSizeBytes >> 20)
	req.Regions, err = a.broker.Regions(ctx, in.Region)
	return req, err
}

// withWeights returns the policy with other weights for the named terms.
func withWeights(p placement.Policy, weights map[string]float64) (placement.Policy, error) {
	p.Terms = slices.Clone(p.Terms)
	for name, weight := range weights {
		i := slices.IndexFunc(p.Terms, func(t placement.Term) bool { return t.Name == name })
		if i < 0 || weight < 0 || weight > 1000 {
			return p, fault.New(fault.Invalid, codeWeights,
				"the weight %q must be one of the policy's terms, from 0 to 1000", clipText(name, 40))
		}
		p.Terms[i].Weight = weight
	}
	return p, nil
}

// quotedView returns the view of the fleet that the workers' quotes give.
func (a *platformAPI) quotedView(ctx context.Context, req placement.Request) cluster.View {
	var view cluster.View
	workers := a.directory.Workers()
	records, errs := find.AskAll(workers, func(w Worker) (cluster.Record, error) {
		q, err := w.Quote(ctx, req)
		return q.Record, err
	})
	for i, rec := range records {
		if errs[i] == nil {
			view.Workers = append(view.Workers, rec)
		}
	}
	return view
}

// regionPlacements lists the regions that get machines, nearest first.
func regionPlacements(req placement.Request, view cluster.View, counts map[cluster.Region]int) []api.RegionPlacement {
	out, near := []api.RegionPlacement{}, map[string]int{}
	for region, n := range counts {
		if n == 0 {
			continue
		}
		starts := 0
		for _, w := range view.Workers {
			switch {
			case w.Region != region:
			case w.MaxStarting == 0:
				starts += n
			default:
				starts += max(0, w.MaxStarting-w.Starting)
			}
		}
		near[string(region)] = placement.Nearness(req, cluster.Record{Region: region})
		out = append(out, api.RegionPlacement{Region: string(region), Count: n, Concurrency: min(n, starts)})
	}
	slices.SortFunc(out, func(a, b api.RegionPlacement) int {
		return cmp.Or(cmp.Compare(near[a.Region], near[b.Region]), cmp.Compare(a.Region, b.Region))
	})
	return out
}

// Bounds of a page of an organization's machines.
const (
	defaultPage = 100
	maxPage     = 1000
)

// orgsAPI serves the machines of an organization.
type orgsAPI struct {
	catalog interface {
		AllApps() []catalog.App
		App(name string) (catalog.App, error)
	}
	directory *directory
}

func (a *orgsAPI) opHandlers() handlers {
	return handlers{
		"GET /v1/orgs/{org}/machines": a.listOrgMachines,
		"GET /v1/orgs/{org}/volumes":  a.listOrgVolumes,
		"GET /v1/souk/machines":       a.listLines,
	}
}

// appsOf returns the names of an organization's apps.
func (a *orgsAPI) appsOf(org string) map[string]bool {
	names := map[string]bool{}
	for _, app := range a.catalog.AllApps() {
		if app.Org == org {
			names[app.Name] = true
		}
	}
	return names
}

// listOrgMachines pages through an organization's machines in the order of their ids. The cursor is the last id, so
// machines that come and go meanwhile shift no page.
func (a *orgsAPI) listOrgMachines(w http.ResponseWriter, r *http.Request) error {
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
	apps, cursor := a.appsOf(r.PathValue("org")), r.URL.Query().Get("cursor")
	all, silent, err := a.directory.Listing(r.Context(), "", deleted, func(m *machine.Machine) bool {
		return m.ID > cursor && apps[m.App] && updatedAfter(m, after)
	})
	if err != nil {
		return err
	}
	a.directory.nameMissing(w, silent)
	page := withinBytes(firstByID(all, limit), a.directory.pageBytes)
	out := api.MachinePage{Machines: []*machine.Machine{}}
	if n := len(page); n > 0 {
		out.LastMachineID, out.LastUpdatedAt = page[n-1].ID, page[n-1].UpdatedAt
		if n < len(all) {
			out.NextCursor = out.LastMachineID
		}
	}
	head, tail := splitAround(out)
	answerListed(w, head, page, tail)
	return nil
}

// withinBytes returns the first machines of a list that fit into most bytes together, but at least one.
func withinBytes(page []find.Listed, most int) []find.Listed {
	sum := 0
	for i, m := range page {
		b, err := m.Text.MarshalJSON()
		if err != nil {
			panic("gateway: a machine does not encode: " + err.Error()) // plain data: cannot happen
		}
		if sum += len(b); sum > most && i > 0 {
			return page[:i]
		}
		page[i].Text = json.RawMessage(b)
	}
	return page
}

// linesPerPage bounds a page of lines: each has some 250 bytes.
const linesPerPage = 10_000

// listLines pages through the machines of all apps, or of one, one line each. A name may also mean a replica's machines
// (web/2) or a gang's (gang/ID).
func (a *orgsAPI) listLines(w http.ResponseWriter, r *http.Request) error {
	limit, err := queryInt(r, "limit", linesPerPage, 1, linesPerPage)
	if err != nil {
		return err
	}
	deleted, err := queryBool(r, "include_deleted")
	if err != nil {
		return err
	}
	q := r.URL.Query()
	app, name, region, cursor := q.Get("app"), q.Get("name"), q.Get("region"), q.Get("cursor")
	if app != "" && !isSendersApp(r, app) {
		if _, err := a.catalog.App(app); err != nil {
			return err
		}
	}
	all, silent, err := a.directory.Listing(r.Context(), app, deleted, func(m *machine.Machine) bool {
		is := name == "" || m.Name == name || m.Replica != nil && m.Replica.Slot() == name ||
			isOfGang(m, name)
		return is && m.ID > cursor && (region == "" || m.Region == region)
	})
	if err != nil {
		return err
	}
	a.directory.nameMissing(w, silent)
	page := withinBytes(firstByID(all, limit), a.directory.pageBytes)
	out := api.MachineLines{Machines: make([]machine.Line, len(page))}
	for i, m := range page {
		out.Machines[i] = m.Line()
	}
	if n := len(page); n < len(all) {
		out.NextCursor = page[n-1].ID
	}
	answerText(w, http.StatusOK, append(out.AppendJSON(make([]byte, 0, lineLength*len(page))), '\n'))
	return nil
}

func isOfGang(m *machine.Machine, name string) bool {
	gang, _ := machine.GangOf(m.Config)
	return gang != "" && gang == name
}

// lineLength is about how long a machine's line is, bytes of JSON.
const lineLength = 300

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
		return at, fault.New(fault.Invalid, codeQuery,
			"%s=%q is not a time; write it as \"2026-01-31T12:00:00Z\"", name, clipText(s, 40))
	}
	return at, nil
}

func (a *orgsAPI) listOrgVolumes(w http.ResponseWriter, r *http.Request) error {
	all, silent, err := a.directory.Volumes(r.Context(), "")
	if err != nil {
		return err
	}
	a.directory.nameMissing(w, silent)
	apps := a.appsOf(r.PathValue("org"))
	all = slices.DeleteFunc(all, func(v machine.Volume) bool { return !apps[v.App] })
	answerJSON(w, http.StatusOK, api.VolumeList{Volumes: all})
	return nil
}
