package api

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// Op names an operation of the API by its method and path, as net/http's ServeMux writes a pattern.
type Op string

// Method returns the HTTP method.
func (o Op) Method() string {
	method, _, _ := strings.Cut(string(o), " ")
	return method
}

// Pattern returns the path with its parameters as names: "/v1/apps/{app}".
func (o Op) Pattern() string {
	_, path, _ := strings.Cut(string(o), " ")
	return path
}

// Path returns the path for values of its parameters, in their order. Each value is escaped, so it cannot leave its
// segment. Path panics when there are more or fewer values than parameters.
func (o Op) Path(values ...string) string {
	segments := strings.Split(o.Pattern(), "/")
	used := 0
	for i, s := range segments {
		if !strings.HasPrefix(s, "{") {
			continue
		}
		if used == len(values) {
			panic(fmt.Sprintf("api: %s has more parameters than the %d values", o, len(values)))
		}
		segments[i] = url.PathEscape(values[used])
		used++
	}
	if used != len(values) {
		panic(fmt.Sprintf("api: %s has %d parameters, not %d", o, used, len(values)))
	}
	return strings.Join(segments, "/")
}

// Verb is what an operation does to objects of its kind. Roles and scopes are made of verbs and kinds.
type Verb string

// The verbs.
const (
	VerbList    Verb = "list"    // reads several
	VerbGet     Verb = "get"     // reads one, or what belongs to it
	VerbWatch   Verb = "watch"   // reads as it changes: the answer waits or streams
	VerbPlan    Verb = "plan"    // asks what would happen; nothing is changed or reserved
	VerbCreate  Verb = "create"  // makes one
	VerbUpdate  Verb = "update"  // changes what one is meant to be
	VerbOperate Verb = "operate" // changes what one does now: start, stop, drain, lease
	VerbExec    Verb = "exec"    // acts inside of one: commands and files, and so whatever it can read
	VerbDelete  Verb = "delete"  // removes one for ever
)

// Verbs returns all verbs.
func Verbs() []Verb {
	return []Verb{VerbList, VerbGet, VerbWatch, VerbPlan, VerbCreate, VerbUpdate, VerbOperate, VerbExec, VerbDelete}
}

// Reads reports whether the verb leaves everything as it is.
func (v Verb) Reads() bool { return slices.Contains([]Verb{VerbList, VerbGet, VerbWatch, VerbPlan}, v) }

// Kind is the kind of object that an operation acts on.
type Kind string

// The kinds.
const (
	KindApp       Kind = "app"
	KindSecret    Kind = "secret"
	KindMachine   Kind = "machine"
	KindService   Kind = "service" // an app's releases, and its services for outside requests
	KindLog       Kind = "log"     // what machines and tasks write
	KindVolume    Kind = "volume"
	KindSnapshot  Kind = "snapshot"
	KindRegion    Kind = "region"
	KindHold      Kind = "hold" // capacity that a worker keeps for a while
	KindDecision  Kind = "decision"
	KindPolicy    Kind = "policy"
	KindJob       Kind = "job"
	KindNamespace Kind = "namespace"
	KindPrice     Kind = "price"
	KindScheduler Kind = "scheduler" // the default scheduler of a namespace or the cluster
	KindWorker    Kind = "worker"
	KindImage     Kind = "image" // container images at workers
	KindMember    Kind = "member"
	KindServer    Kind = "server" // the process that answers
	KindToken     Kind = "token"
)

// Kinds returns all kinds.
func Kinds() []Kind {
	return []Kind{KindApp, KindSecret, KindMachine, KindService, KindLog, KindVolume, KindSnapshot, KindRegion,
		KindHold, KindDecision, KindPolicy, KindJob, KindNamespace, KindPrice, KindScheduler, KindWorker,
		KindImage, KindMember, KindServer, KindToken}
}

// The media types of answers that are not one JSON value.
const (
	NDJSON = "application/x-ndjson" // one JSON value a line
	Tar    = "application/x-tar"
	Plain  = "text/plain"
	Bytes  = "application/octet-stream"
)

// Route is one line of the API.
type Route struct {
	Op    Op
	Verb  Verb
	Kind  Kind
	About string // one sentence
	Query string // names of the query's parameters, separated by blanks; one with * may be repeated
	In    any    // a value of the body's type; nil: no body
	Out   any    // a value of the answer's type; nil: none
	Code  int    // of success
	Media string // of the answer; "": JSON
	Open  bool   // it needs no token
}

// KeptHere reports whether the operation makes something that the answering process stores itself. For other operations
// a worker decides whether it has room.
func (r Route) KeptHere() bool {
	return r.Verb == VerbCreate && slices.Contains([]Kind{KindApp, KindService, KindJob, KindNamespace}, r.Kind)
}

// Shared reports whether the operation changes something that all members must know before it is answered. For machines
// that is only their destruction: all else is read at the machine's worker.
func (r Route) Shared() bool {
	return !r.Verb.Reads() && r.Verb != VerbExec && r.Media == "" && (r.AtWorker() || slices.Contains([]Kind{KindApp,
		KindSecret, KindService, KindPolicy, KindNamespace, KindPrice, KindScheduler, KindToken}, r.Kind))
}

// AtWorker reports whether the operation changes a worker's record.
func (r Route) AtWorker() bool {
	return slices.Contains([]Kind{KindVolume, KindSnapshot, KindImage, KindWorker}, r.Kind) || r.Op == DestroyMachine
}

// Routes returns the whole API.
func Routes() []Route {
	all := slices.Concat(appRoutes(), machineRoutes(), operationRoutes(), serviceRoutes(), releaseRoutes(),
		volumeRoutes(), placingRoutes(), jobRoutes(), quotaRoutes(), schedulerRoutes(), fleetRoutes(), imageRoutes(),
		tokenRoutes())
	for i := range all {
		if all[i].Code == 0 {
			all[i].Code = 200
		}
	}
	return all
}

// Unimplemented returns the parts of the Machines API that souk does not serve, each with what to do instead.
func Unimplemented() map[string]string {
	return map[string]string{
		"/v1/apps/{app}/ip_assignments/{rest...}": "souk does not hand out addresses; use those of its workers",
		"/v1/apps/{app}/secretkeys/{rest...}": "souk does not keep keys that it computes with; keep the key as " +
			"a secret and compute in the machine",
		"/v1/apps/{app}/certificates/{rest...}": "souk does not get certificates; put a proxy that does in front",
		"/v1/postgres/{rest...}": "souk does not run databases of its own; run one as a machine " +
			"with a volume",
	}
}
