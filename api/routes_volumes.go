package api

import (
	"github.com/soukhq/souk/machine"
)

// The operations on volumes.
const (
	ListVolumes    Op = "GET /v1/apps/{app}/volumes"
	CreateVolume   Op = "POST /v1/apps/{app}/volumes"
	GetVolume      Op = "GET /v1/apps/{app}/volumes/{volume}"
	UpdateVolume   Op = "PUT /v1/apps/{app}/volumes/{volume}"
	DeleteVolume   Op = "DELETE /v1/apps/{app}/volumes/{volume}"
	ExtendVolume   Op = "PUT /v1/apps/{app}/volumes/{volume}/extend"
	ListSnapshots  Op = "GET /v1/apps/{app}/volumes/{volume}/snapshots"
	CreateSnapshot Op = "POST /v1/apps/{app}/volumes/{volume}/snapshots"
	ListOrgVolumes Op = "GET /v1/orgs/{org}/volumes"
)

func volumeRoutes() []Route {
	return []Route{
		{Op: ListVolumes, Verb: VerbList, Kind: KindVolume, About: "List an app's volumes.",
			Out: []machine.Volume{}},
		{Op: CreateVolume, Verb: VerbCreate, Kind: KindVolume, About: "Create a volume.",
			In: NewVolume{}, Out: machine.Volume{}},
		{Op: GetVolume, Verb: VerbGet, Kind: KindVolume, About: "Describe a volume.", Out: machine.Volume{}},
		{Op: UpdateVolume, Verb: VerbUpdate, Kind: KindVolume, About: "Change how a volume's snapshots are kept.",
			In: VolumeUpdate{}, Out: machine.Volume{}},
		{Op: DeleteVolume, Verb: VerbDelete, Kind: KindVolume, About: "Delete a volume that no machine has.",
			Out: machine.Volume{}},
		{Op: ExtendVolume, Verb: VerbUpdate, Kind: KindVolume, About: "Make a volume larger.",
			In: ExtendRequest{}, Out: Extended{}},
		{Op: ListSnapshots, Verb: VerbList, Kind: KindSnapshot, About: "List a volume's snapshots.",
			Out: []machine.Snapshot{}},
		{Op: CreateSnapshot, Verb: VerbCreate, Kind: KindSnapshot, About: "Copy a volume as it is now.",
			Out: machine.Snapshot{}},
		{Op: ListOrgVolumes, Verb: VerbList, Kind: KindVolume,
			About: "List the volumes of an organization's apps.", Out: VolumeList{}},
	}
}
