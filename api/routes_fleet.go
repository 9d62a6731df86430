package api

import (
	"github.com/soukhq/souk/cluster"
)

// The operations on the images that workers keep.
const (
	ListImages   Op = "GET /v1/souk/images"
	PullImage    Op = "POST /v1/souk/workers/{worker}/images/pull"
	LoadImages   Op = "POST /v1/souk/workers/{worker}/images/load"
	RemoveImages Op = "DELETE /v1/souk/workers/{worker}/images"
)

func imageRoutes() []Route {
	return []Route{
		{Op: ListImages, Verb: VerbList, Kind: KindImage, Query: "worker*", Out: ImageList{},
			About: "List the images that workers keep; with worker only those of the ones named."},
		{Op: PullImage, Verb: VerbCreate, Kind: KindImage, In: NewPull{}, Out: PullLine{}, Media: NDJSON,
			About: "Have a worker bring an image from its registry; the last line has the image."},
		{Op: LoadImages, Verb: VerbCreate, Kind: KindImage, Query: "name", Out: LoadedImages{},
			About: "Give a worker the images of an archive (docker save, OCI layout), which is the body; name is " +
				"what errors call it."},
		{Op: RemoveImages, Verb: VerbDelete, Kind: KindImage, Query: "image unused", Out: Freed{},
			About: "Remove an image of a worker by a name or its digest, or with unused=true all that nothing needs."},
	}
}

// The operations on workers, members and the server itself.
const (
	ListWorkers    Op = "GET /v1/souk/workers"
	GetView        Op = "GET /v1/souk/view"
	Top            Op = "GET /v1/souk/top"
	ExamineWorkers Op = "GET /v1/souk/doctor"
	CordonWorker   Op = "PUT /v1/souk/workers/{worker}/cordon"
	UncordonWorker Op = "DELETE /v1/souk/workers/{worker}/cordon"
	PlanDrain      Op = "GET /v1/souk/workers/{worker}/drain"
	ListMembers    Op = "GET /v1/souk/members"
	ListDoors      Op = "GET /v1/souk/doors"
	ClusterHealth  Op = "GET /v1/souk/health"
	Leave          Op = "POST /v1/souk/leave"
	Lives          Op = "POST /v1/souk/lives"
	RemoveMember   Op = "DELETE /v1/souk/members/{member}"
	ListRemoved    Op = "GET /v1/souk/removed"
	GetVersion     Op = "GET /v1/souk/version"
	GetOpenAPI     Op = "GET /v1/souk/openapi.json"
	Prove          Op = "GET /v1/souk/proof"
	Livez          Op = "GET /livez"
	Readyz         Op = "GET /readyz"
	Metrics        Op = "GET /metrics"
)

func fleetRoutes() []Route {
	return []Route{
		{Op: ListWorkers, Verb: VerbList, Kind: KindWorker, About: "Return what each worker says of itself.",
			Out: WorkerList{}},
		{Op: GetView, Verb: VerbList, Kind: KindWorker,
			About: "Return the fleet as a buyer sees it, with the age of each record.", Out: FleetView{}},
		{Op: Top, Verb: VerbList, Kind: KindWorker,
			About: "Tell what each worker has, uses and does; with use=true also what each machine uses.",
			Query: "use", Out: UsageList{}},
		{Op: ExamineWorkers, Verb: VerbList, Kind: KindWorker, About: "Say what each worker's host has and lacks.",
			Out: Examinations{}},
		{Op: CordonWorker, Verb: VerbOperate, Kind: KindWorker,
			About: "Make a worker take nothing new; what it has stays.", In: WorkerCordon{}, Out: cluster.Record{}},
		{Op: UncordonWorker, Verb: VerbOperate, Kind: KindWorker, About: "Make a worker take things again.",
			Out: cluster.Record{}},
		{Op: PlanDrain, Verb: VerbPlan, Kind: KindWorker,
			About: "Say where a worker's machines would go if it were emptied now.", Out: DrainPlan{}},
		{Op: ListMembers, Verb: VerbList, Kind: KindMember,
			About: "List the members of the cluster, as this one knows them.", Out: MemberList{}},
		{Op: ListDoors, Verb: VerbList, Kind: KindMember, Out: DoorList{},
			About: "List where the members serve this API for other hosts, and the roots of their certificates."},
		{Op: ClusterHealth, Verb: VerbList, Kind: KindMember,
			About: "Tell what this member finds wrong with the cluster; thorough asks all workers, member one.",
			Query: "thorough member", Out: Health{}},
		{Op: Leave, Verb: VerbOperate, Kind: KindMember,
			About: "Have the member that answers say goodbye and end; its machines go on.", Out: OK{}},
		{Op: Lives, Verb: VerbOperate, Kind: KindMember,
			About: "Say that the member that answers is the one that lives, of those with its id.", In: LivesRequest{},
			Out: OK{}},
		{Op: RemoveMember, Verb: VerbDelete, Kind: KindMember, About: "Make a member one that may not come back.",
			Query: "force forget_machines end_tokens by reason", Out: MemberRemoved{}},
		{Op: ListRemoved, Verb: VerbList, Kind: KindMember, About: "List members that may not come back.",
			Out: RemovalList{}},
		{Op: GetVersion, Verb: VerbGet, Kind: KindServer, About: "Describe this souk.", Out: ServerInfo{}},
		{Op: GetOpenAPI, Verb: VerbGet, Kind: KindServer, About: "Describe this API.", Out: map[string]any{}},
		{Op: Prove, Verb: VerbGet, Kind: KindServer, Query: "token nonce", Out: Proof{}, Open: true,
			About: "Prove that this souk knows a token, by its id, to who has not sent it; needs none."},
		{Op: Livez, Verb: VerbGet, Kind: KindServer, About: "Say that the process serves; needs no token.",
			Media: Plain, Open: true},
		{Op: Readyz, Verb: VerbGet, Kind: KindServer, About: "Say whether a worker answers; needs no token.",
			Media: Plain, Open: true},
		{Op: Metrics, Verb: VerbGet, Kind: KindServer, About: "Return metrics as Prometheus reads them.",
			Media: Plain},
	}
}
