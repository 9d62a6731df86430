package gateway

import (
	"cmp"
	"context"
	"net/http"
	"slices"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/broker"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/placement"
)

func (g *Gateway) listRegions(w http.ResponseWriter, r *http.Request) error {
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
	out := api.RegionList{Regions: []api.Region{}, Nearest: string(g.region)}
	byRegion := map[cluster.Region]int{}
	view := g.view(r.Context())
	for _, rec := range view.Workers {
		byRegion[rec.Region] += countFits(placement.Request{Resources: want}, rec, maxPlacements)
	}
	for code, n := range byRegion {
		out.Regions = append(out.Regions, api.Region{
			Code: string(code), Name: string(code), Capacity: int64(n), GatewayAvailable: code == g.region, GeoRegion: "local",
		})
	}
	slices.SortFunc(out.Regions, func(a, b api.Region) int { return cmp.Compare(a.Code, b.Code) })
	answer(w, http.StatusOK, out)
	return nil
}

const maxPlacements = 1000 // machines of one simulation

// simulatePlacements says where count machines would go now, or with count 0 how many each region could have. It asks
// the workers for quotes and reserves nothing, so what it says can be gone the moment after.
func (g *Gateway) simulatePlacements(w http.ResponseWriter, r *http.Request) error {
	var in api.PlacementsRequest
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	req, err := g.simulated(r.Context(), in)
	if err != nil {
		return err
	}
	policy, err := g.policyFor(&req)
	if err != nil {
		return err
	}
	policy, err = weighted(policy, in.Weights)
	if err != nil {
		return err
	}
	view := g.quotedView(r.Context(), req)
	counts := map[cluster.Region]int{}
	if in.Count == 0 {
		for _, rec := range view.Workers {
			counts[rec.Region] += countFits(req, rec, maxPlacements)
		}
	} else if counts = spread(req, view, policy, int(in.Count)); counts == nil {
		counts = map[cluster.Region]int{}
	}
	answer(w, http.StatusOK, api.Placements{Regions: regionPlacements(req, view, counts)})
	return nil
}

func (g *Gateway) simulated(ctx context.Context, in api.PlacementsRequest) (placement.Request, error) {
	guest := in.Compute
	if guest == nil {
		guest = &machine.Guest{CPUKind: machine.Performance, CPUs: 1, MemoryMB: 2048}
	}
	req := placement.Request{Start: true}
	if in.Count > maxPlacements {
		return req, fault.New(fault.Invalid, "count", "at most %d machines are placed in one simulation, not %d", maxPlacements, in.Count)
	}
	if in.VolumeSizeBytes > MaxVolumeGB<<30 {
		return req, fault.New(fault.Invalid, "volume_size_bytes", "a volume has at most %d GB; ask for less", MaxVolumeGB)
	}
	var err error
	if req.Resources, err = broker.GuestResources(guest); err != nil {
		return req, err
	}
	req.Resources.Disk += int64(in.VolumeSizeBytes >> 20)
	req.Regions, err = g.broker.Regions(ctx, in.Region)
	return req, err
}

// weighted gives the policy with other weights for the terms that are named.
func weighted(p placement.Policy, weights map[string]float64) (placement.Policy, error) {
	p.Terms = slices.Clone(p.Terms)
	for name, weight := range weights {
		i := slices.IndexFunc(p.Terms, func(t placement.Term) bool { return t.Name == name })
		if i < 0 || weight < 0 || weight > 1000 {
			return p, fault.New(fault.Invalid, "weights", "the weight %q must be one of the policy's terms, from 0 to 1000", clip(name, 40))
		}
		p.Terms[i].Weight = weight
	}
	return p, nil
}

// quotedView is the fleet as its quotes tell it.
func (g *Gateway) quotedView(ctx context.Context, req placement.Request) cluster.View {
	var view cluster.View
	workers := g.workers()
	records, errs := fanOut(workers, func(w Worker) (cluster.Record, error) {
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

// countFits gives how many machines of the request a worker takes, one after the other, at most limit.
func countFits(req placement.Request, rec cluster.Record, limit int) int {
	rec.Starting = 0 // over time, not at once
	n := 0
	for n < limit && placement.Judge(req, rec).Fits {
		rec.Used = rec.Used.Add(req.Resources)
		n++
		if req.Resources.IsZero() {
			return limit
		}
	}
	return n
}

// spread places count machines on copies of the records, as buyers would, and counts them by region. What does not fit
// is not counted.
func spread(req placement.Request, view cluster.View, policy placement.Policy, count int) map[cluster.Region]int {
	view.Workers = slices.Clone(view.Workers)
	counts := map[cluster.Region]int{}
	for range count {
		best := placement.Rank(req, view, policy)
		if len(best) == 0 || !best[0].Fits {
			return counts
		}
		for i := range view.Workers {
			w := &view.Workers[i]
			if string(w.Worker) == best[0].Worker {
				w.Used = w.Used.Add(req.Resources)
				counts[w.Region]++
			}
		}
	}
	return counts
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
