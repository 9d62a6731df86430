package api

import "github.com/soukhq/souk/machine"

// Region is a region as the Machines API describes it.
type Region struct {
	Code             string  `json:"code"`
	Name             string  `json:"name"`
	Latitude         float32 `json:"latitude"`
	Longitude        float32 `json:"longitude"`
	GatewayAvailable bool    `json:"gateway_available"`
	RequiresPaidPlan bool    `json:"requires_paid_plan"`
	Deprecated       bool    `json:"deprecated"`
	// how many machines of the requested, else the smallest, size would fit now
	Capacity     int64  `json:"capacity"`
	GeoRegion    string `json:"geo_region"`
	MPGAvailable bool   `json:"mpg_available"`
}

// RegionList lists the regions that have workers.
type RegionList struct {
	Regions []Region `json:"Regions"`
	Nearest string   `json:"Nearest"`
}

// PlacementsRequest asks where machines of a size would go.
type PlacementsRequest struct {
	Compute         *machine.Guest     `json:"compute"`
	Region          string             `json:"region,omitempty"`
	Count           uint64             `json:"count,omitempty"`
	VolumeName      string             `json:"volume_name,omitempty"`
	VolumeSizeBytes uint64             `json:"volume_size_bytes,omitempty"`
	Weights         map[string]float64 `json:"weights,omitempty"`
	Org             string             `json:"org_slug,omitempty"`
}

// RegionPlacement is how many of the machines a region would take.
type RegionPlacement struct {
	Region      string `json:"Region"`
	Count       int    `json:"Count"`
	Concurrency int    `json:"Concurrency"` // how many of them could start at once
}

// Placements says where machines would go; nothing is reserved.
type Placements struct {
	Regions []RegionPlacement `json:"Regions"`
}
