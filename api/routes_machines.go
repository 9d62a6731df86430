package api

import (
	"github.com/soukhq/souk/machine"
)

// The operations on machines and what is kept of them.
const (
	CreateMachine     Op = "POST /v1/apps/{app}/machines"
	ListMachines      Op = "GET /v1/apps/{app}/machines"
	GetMachine        Op = "GET /v1/apps/{app}/machines/{id}"
	UpdateMachine     Op = "POST /v1/apps/{app}/machines/{id}"
	DestroyMachine    Op = "DELETE /v1/apps/{app}/machines/{id}"
	WaitMachine       Op = "GET /v1/apps/{app}/machines/{id}/wait"
	ListEvents        Op = "GET /v1/apps/{app}/machines/{id}/events"
	ListVersions      Op = "GET /v1/apps/{app}/machines/{id}/versions"
	ListProcesses     Op = "GET /v1/apps/{app}/machines/{id}/ps"
	GetMetadata       Op = "GET /v1/apps/{app}/machines/{id}/metadata"
	PutMetadata       Op = "PUT /v1/apps/{app}/machines/{id}/metadata"
	PatchMetadata     Op = "PATCH /v1/apps/{app}/machines/{id}/metadata"
	SetMetadataKey    Op = "POST /v1/apps/{app}/machines/{id}/metadata/{key}"
	DeleteMetadataKey Op = "DELETE /v1/apps/{app}/machines/{id}/metadata/{key}"
	GetLease          Op = "GET /v1/apps/{app}/machines/{id}/lease"
	AcquireLease      Op = "POST /v1/apps/{app}/machines/{id}/lease"
	ReleaseLease      Op = "DELETE /v1/apps/{app}/machines/{id}/lease"
	ListOrgMachines   Op = "GET /v1/orgs/{org}/machines"
	ListMachineLines  Op = "GET /v1/souk/machines"
)

func machineRoutes() []Route {
	return []Route{
		{Op: CreateMachine, Verb: VerbCreate, Kind: KindMachine,
			About: "Create a machine, and start it unless skip_launch is set.",
			In:    machine.Launch{}, Out: machine.Machine{}},
		{Op: ListMachines, Verb: VerbList, Kind: KindMachine,
			About: "List an app's machines; metadata.KEY=VALUE filters. With cursor or limit a page of them, in the " +
				"order of their ids; Souk-Next-Cursor names the next.",
			Query: "include_deleted region state summary cursor limit", Out: []machine.Machine{}},
		{Op: GetMachine, Verb: VerbGet, Kind: KindMachine, About: "Describe a machine.", Out: machine.Machine{}},
		{Op: UpdateMachine, Verb: VerbUpdate, Kind: KindMachine,
			About: "Replace a machine's config: a new instance.", In: machine.Launch{}, Out: machine.Machine{}},
		{Op: DestroyMachine, Verb: VerbDelete, Kind: KindMachine,
			About: "Destroy a machine; a running one only with kill.", Query: "kill force", Out: OK{}},
		{Op: WaitMachine, Verb: VerbWatch, Kind: KindMachine,
			About: "Answer when the machine is in one of the states.",
			Query: "state* timeout version instance_id from_event_id", Out: Waited{}},
		{Op: ListEvents, Verb: VerbGet, Kind: KindMachine, About: "List a machine's events, newest first.",
			Query: "limit", Out: []machine.Event{}},
		{Op: ListVersions, Verb: VerbGet, Kind: KindMachine,
			About: "List the configs a machine has had, newest first.", Out: []machine.Version{}},
		{Op: ListProcesses, Verb: VerbGet, Kind: KindMachine, About: "List a machine's processes.",
			Query: "sort_by order", Out: []machine.Process{}},
		{Op: GetMetadata, Verb: VerbGet, Kind: KindMachine, About: "Return a machine's metadata.",
			Out: map[string]string{}},
		{Op: PutMetadata, Verb: VerbUpdate, Kind: KindMachine, About: "Replace a machine's metadata.",
			In: map[string]string{}, Code: 204},
		{Op: PatchMetadata, Verb: VerbUpdate, Kind: KindMachine,
			About: "Change keys of a machine's metadata; null deletes one.", In: map[string]*string{}, Code: 204},
		{Op: SetMetadataKey, Verb: VerbUpdate, Kind: KindMachine, About: "Set one key of a machine's metadata.",
			In: SetValue{}, Code: 204},
		{Op: DeleteMetadataKey, Verb: VerbUpdate, Kind: KindMachine,
			About: "Delete one key of a machine's metadata.", Code: 204},
		{Op: GetLease, Verb: VerbGet, Kind: KindMachine, About: "Return the lease in force.", Out: LeaseAnswer{}},
		{Op: AcquireLease, Verb: VerbOperate, Kind: KindMachine,
			About: "Take a lease, or refresh it with its nonce.",
			Query: "ttl", In: LeaseRequest{}, Out: LeaseAnswer{}, Code: 201},
		{Op: ReleaseLease, Verb: VerbOperate, Kind: KindMachine, About: "Release a lease with its nonce.",
			Out: OK{}},
		{Op: ListOrgMachines, Verb: VerbList, Kind: KindMachine,
			About: "List the machines of an organization's apps.",
			Query: "updated_after cursor limit include_deleted", Out: MachinePage{}},
		{Op: ListMachineLines, Verb: VerbList, Kind: KindMachine,
			About: "List machines of all apps, or of one, in one line each, in the order of their ids.",
			Query: "app name region include_deleted cursor limit", Out: MachineLines{}},
	}
}
