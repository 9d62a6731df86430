package gateway

import (
	"net/http"
	"slices"
	"strings"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/lifecycle"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
)

// route is one line of the API. The mux, the metrics, the description in openapi.json and its test are made of the table.
type route struct {
	method string
	path   string
	do     func(*Gateway, http.ResponseWriter, *http.Request) error
	about  string // one sentence
	query  string // names of the query's parameters, separated by blanks
	in     any    // a value of the body's type; nil: no body
	code   int    // of success
	out    any    // a value of the answer's type; nil: none
	media  string // of the answer, when it is not JSON
}

const (
	ndjson = "application/x-ndjson"
	tarred = "application/x-tar"

	apps    = "/v1/apps"
	app     = apps + "/{app}"
	fleet   = app + "/machines"
	one     = fleet + "/{id}"
	disks   = app + "/volumes"
	disk    = disks + "/{volume}"
	sealed  = app + "/secrets"
	souk    = "/v1/souk"
	soukOne = souk + "/apps/{app}/machines/{id}"
)

// routes lists the API.
func routes() []route {
	return slices.Concat(appRoutes(), machineRoutes(), verbRoutes(), volumeRoutes(), platformRoutes(), soukRoutes(), policyRoutes(), marketRoutes(), jobRoutes(), budgetRoutes(), quotaRoutes(), nodeRoutes())
}

func appRoutes() []route {
	return []route{
		{"POST", apps, (*Gateway).createApp, "Make an app.", "wait", newApp{}, 201, App{}, ""},
		{"GET", apps, (*Gateway).listApps, "List apps.", "org_slug app_role", nil, 200, appList{}, ""},
		{"GET", app, (*Gateway).getApp, "Tell of an app.", "", nil, 200, App{}, ""},
		{"DELETE", app, (*Gateway).deleteApp, "Destroy an app's machines and volumes, and the app.", "", nil, 202, okay{}, ""},
		{"GET", sealed, (*Gateway).listSecrets, "List secrets, without their values.", "version show_secrets", nil, 200, secretList{}, ""},
		{"POST", sealed, (*Gateway).updateSecrets, "Set secrets; null deletes one.", "", secretsBody{}, 200, secretList{}, ""},
		{"GET", sealed + "/{name}", (*Gateway).getSecret, "Tell of a secret, without its value.", "version show_secrets", nil, 200, AppSecret{}, ""},
		{"POST", sealed + "/{name}", (*Gateway).setSecret, "Set a secret.", "", valueBody{}, 200, secretSet{}, ""},
		{"DELETE", sealed + "/{name}", (*Gateway).deleteSecret, "Delete a secret.", "", nil, 200, secretVersion{}, ""},
		{"GET", app + "/ip_assignments", (*Gateway).listIPs, "List an app's addresses: souk gives none.", "", nil, 200, ipList{}, ""},
	}
}

func machineRoutes() []route {
	return []route{
		{"POST", fleet, (*Gateway).createMachine, "Make a machine, and start it unless skip_launch is set.", "", machine.Launch{}, 200, machine.Machine{}, ""},
		{"GET", fleet, (*Gateway).listMachines, "List an app's machines; metadata.KEY=VALUE filters.", "include_deleted region state summary", nil, 200, []machine.Machine{}, ""},
		{"GET", one, (*Gateway).getMachine, "Tell of a machine.", "", nil, 200, machine.Machine{}, ""},
		{"POST", one, (*Gateway).updateMachine, "Replace a machine's config: a new instance.", "", machine.Launch{}, 200, machine.Machine{}, ""},
		{"DELETE", one, (*Gateway).destroyMachine, "Destroy a machine; a running one only with kill.", "kill force", nil, 200, okay{}, ""},
		{"GET", one + "/wait", (*Gateway).waitMachine, "Answer when the machine is in one of the states.", "state* timeout version instance_id from_event_id", nil, 200, waited{}, ""},
		{"GET", one + "/events", (*Gateway).listEvents, "List a machine's events, newest first.", "limit", nil, 200, []machine.Event{}, ""},
		{"GET", one + "/versions", (*Gateway).listVersions, "List the configs a machine has had, newest first.", "", nil, 200, []machine.Version{}, ""},
		{"GET", one + "/ps", (*Gateway).listProcesses, "List a machine's processes.", "sort_by order", nil, 200, []machine.Process{}, ""},
		{"GET", one + "/metadata", (*Gateway).getMetadata, "Give a machine's metadata.", "", nil, 200, map[string]string{}, ""},
		{"PUT", one + "/metadata", (*Gateway).putMetadata, "Replace a machine's metadata.", "", map[string]string{}, 204, nil, ""},
		{"PATCH", one + "/metadata", (*Gateway).patchMetadata, "Change keys of a machine's metadata; null deletes one.", "", map[string]*string{}, 204, nil, ""},
		{"POST", one + "/metadata/{key}", (*Gateway).setMetadataKey, "Set one key of a machine's metadata.", "", valueBody{}, 204, nil, ""},
		{"DELETE", one + "/metadata/{key}", (*Gateway).deleteMetadataKey, "Delete one key of a machine's metadata.", "", nil, 204, nil, ""},
		{"GET", one + "/lease", (*Gateway).getLease, "Give the lease in force.", "", nil, 200, leaseAnswer{}, ""},
		{"POST", one + "/lease", (*Gateway).acquireLease, "Take a lease, or refresh it with its nonce.", "ttl", leaseBody{}, 201, leaseAnswer{}, ""},
		{"DELETE", one + "/lease", (*Gateway).releaseLease, "Release a lease with its nonce.", "", nil, 200, okay{}, ""},
		{"GET", "/v1/orgs/{org}/machines", (*Gateway).listOrgMachines, "List the machines of an organization's apps.", "updated_after cursor limit include_deleted", nil, 200, orgMachines{}, ""},
		{"GET", "/v1/orgs/{org}/volumes", (*Gateway).listOrgVolumes, "List the volumes of an organization's apps.", "", nil, 200, orgVolumes{}, ""},
	}
}

func verbRoutes() []route {
	return []route{
		{"POST", one + "/start", (*Gateway).startMachine, "Start a machine.", "", nil, 200, startAnswer{}, ""},
		{"POST", one + "/stop", (*Gateway).stopMachine, "Stop a machine: signal, wait, kill.", "", stopBody{}, 200, okay{}, ""},
		{"POST", one + "/restart", (*Gateway).restartMachine, "Stop and start a machine.", "force_stop timeout signal", nil, 200, okay{}, ""},
		{"POST", one + "/suspend", plain(lifecycle.Suspend), "Suspend a machine.", "", nil, 200, okay{}, ""},
		{"POST", one + "/signal", (*Gateway).signalMachine, "Send a signal to a machine's main process.", "", signalBody{}, 200, okay{}, ""},
		{"POST", one + "/cordon", plain(lifecycle.Cordon), "Keep traffic from a machine.", "", nil, 200, okay{}, ""},
		{"POST", one + "/uncordon", plain(lifecycle.Uncordon), "Let traffic to a machine again.", "", nil, 200, okay{}, ""},
		{"POST", one + "/exec", (*Gateway).execMachine, "Run a command in a machine and answer when it ends.", "", execBody{}, 200, execAnswer{}, ""},
	}
}

func volumeRoutes() []route {
	return []route{
		{"GET", disks, (*Gateway).listVolumes, "List an app's volumes.", "", nil, 200, []machine.Volume{}, ""},
		{"POST", disks, (*Gateway).createVolume, "Make a volume.", "", newVolume{}, 200, machine.Volume{}, ""},
		{"GET", disk, (*Gateway).getVolume, "Tell of a volume.", "", nil, 200, machine.Volume{}, ""},
		{"PUT", disk, (*Gateway).updateVolume, "Change how a volume's snapshots are kept.", "", volumeUpdate{}, 200, machine.Volume{}, ""},
		{"DELETE", disk, (*Gateway).deleteVolume, "Delete a volume that no machine has.", "", nil, 200, machine.Volume{}, ""},
		{"PUT", disk + "/extend", (*Gateway).extendVolume, "Make a volume larger.", "", extendBody{}, 200, extendAnswer{}, ""},
		{"GET", disk + "/snapshots", (*Gateway).listSnapshots, "List a volume's snapshots.", "", nil, 200, []machine.Snapshot{}, ""},
		{"POST", disk + "/snapshots", (*Gateway).createSnapshot, "Copy a volume as it is now.", "", nil, 200, machine.Snapshot{}, ""},
	}
}

func platformRoutes() []route {
	return []route{
		{"GET", "/v1/platform/regions", (*Gateway).listRegions, "List the regions that have workers.", "size", nil, 200, regionList{}, ""},
		{"POST", "/v1/platform/placements", (*Gateway).simulatePlacements, "Say where machines would go now; nothing is reserved.", "", placementsBody{}, 200, placementsAnswer{}, ""},
	}
}

func soukRoutes() []route {
	return []route{
		{"GET", souk + "/version", (*Gateway).getVersion, "Tell which souk this is.", "", nil, 200, versionInfo{}, ""},
		{"GET", souk + "/openapi.json", (*Gateway).getOpenAPI, "Describe this API.", "", nil, 200, map[string]any{}, ""},
		{"GET", souk + "/workers", (*Gateway).listWorkers, "Give what each worker says of itself.", "", nil, 200, workerList{}, ""},
		{"GET", souk + "/members", (*Gateway).listMembers, "List the members of the cluster, as this one knows them.", "", nil, 200, memberList{}, ""},
		{"GET", souk + "/doctor", (*Gateway).examine, "Say what each worker's host has and lacks.", "", nil, 200, doctorList{}, ""},
		{"GET", souk + "/events", (*Gateway).streamEvents, "Stream events from now on.", "app", nil, 200, machine.EventOf{}, ndjson},
		{"POST", souk + "/apps/{app}/gangs", (*Gateway).createGang, "Make several machines that start together, or none.", "", gangBody{}, 200, gangAnswer{}, ""},
		{"GET", soukOne + "/logs", (*Gateway).streamLogs, "Stream a machine's output.", "tail follow cursor", nil, 200, runtime.LogLine{}, ndjson},
		{"GET", soukOne + "/files", (*Gateway).copyOut, "Read a machine's files as a tar stream.", "path", nil, 200, nil, tarred},
		{"PUT", soukOne + "/files", (*Gateway).copyIn, "Write a tar stream into a machine's files.", "path", nil, 204, nil, ""},
		{"GET", soukOne + "/explain", (*Gateway).explain, "Say why a machine is where it is, or was, and what each worker would say now.", "decision", nil, 200, explanation{}, ""},
		{"GET", souk + "/decisions", (*Gateway).listDecisions, "List decisions, newest first, those that placed nothing too.", "app machine outcome since limit cursor", nil, 200, decisionPage{}, ""},
		{"GET", souk + "/decisions/{decision}", (*Gateway).getDecision, "Give one decision and its explanation.", "", nil, 200, decisionAnswer{}, ""},
		{"GET", souk + "/view", (*Gateway).getView, "Give the fleet as a buyer sees it, with the age of each record.", "", nil, 200, fleetView{}, ""},
		{"POST", souk + "/apps/{app}/plan", (*Gateway).planLaunch, "Say what a launch would meet now, and what would help; nothing is reserved.", "", machine.Launch{}, 200, planAnswer{}, ""},
		{"POST", soukOne + "/exec", (*Gateway).streamExec, "Run a command in a machine, with streams both ways.", "", nil, 200, execFrame{}, ndjson},
		{"GET", "/livez", (*Gateway).livez, "Say that the process serves; needs no token.", "", nil, 200, nil, "text/plain"},
		{"GET", "/readyz", (*Gateway).readyz, "Say whether a worker answers; needs no token.", "", nil, 200, nil, "text/plain"},
		{"GET", "/metrics", (*Gateway).serveMetrics, "Give metrics as Prometheus reads them.", "", nil, 200, nil, "text/plain"},
	}
}

// unimplemented lists the parts of the Machines API that souk does not serve, each with what to do instead.
func unimplemented() map[string]string {
	return map[string]string{
		app + "/ip_assignments/{rest...}": "souk does not hand out addresses; use those of its workers",
		app + "/secretkeys/{rest...}":     "souk does not keep keys that it computes with; keep the key as a secret and compute in the machine",
		app + "/certificates/{rest...}":   "souk does not get certificates; put a proxy that does in front",
		"/v1/postgres/{rest...}":          "souk does not run databases of its own; run one as a machine with a volume",
	}
}

// mux registers the routes, and behind each path an answer for methods it does not know.
func (g *Gateway) mux() *http.ServeMux {
	mux := http.NewServeMux()
	allow := map[string][]string{}
	for _, rt := range routes() {
		mux.Handle(rt.method+" "+rt.path, g.handle(rt.path, rt.do))
		allow[rt.path] = append(allow[rt.path], rt.method)
		if rt.method == http.MethodGet {
			allow[rt.path] = append(allow[rt.path], http.MethodHead)
		}
	}
	for path, sentence := range unimplemented() {
		bare := strings.TrimSuffix(path, "/{rest...}")
		do := func(*Gateway, http.ResponseWriter, *http.Request) error {
			return fault.New(fault.Unimplemented, "unimplemented", "%s", sentence)
		}
		mux.Handle(path, g.handle(path, do))
		if allow[bare] == nil {
			mux.Handle(bare, g.handle(bare, do))
		} else {
			mux.Handle("POST "+bare, g.handle(bare, do))
			allow[bare] = append(allow[bare], http.MethodPost)
		}
	}
	for path, methods := range allow {
		mux.Handle(path, g.handle(path, func(_ *Gateway, w http.ResponseWriter, r *http.Request) error {
			slices.Sort(methods)
			w.Header().Set("Allow", strings.Join(methods, ", "))
			return fault.New(fault.Invalid, "method", "%s is not possible here; use %s", clip(r.Method, 20), strings.Join(methods, " or "))
		}))
	}
	mux.Handle("/", g.handle("unmatched", func(*Gateway, http.ResponseWriter, *http.Request) error { return noSuchPath() }))
	return mux
}

// handle makes an HTTP handler of a route's function, which returns its error instead of answering it.
func (g *Gateway) handle(path string, do func(*Gateway, http.ResponseWriter, *http.Request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		of(r).route = path
		if err := do(g, w, r); err != nil {
			g.fail(w, r, err)
		}
	})
}

type ipList struct {
	IPs []string `json:"ips"`
}

func (g *Gateway) listIPs(w http.ResponseWriter, r *http.Request) error {
	if _, err := g.catalog.App(r.PathValue("app")); err != nil {
		return err
	}
	answer(w, http.StatusOK, ipList{IPs: []string{}})
	return nil
}

// orgMachines is a page of an organization's machines, by id.
type orgMachines struct {
	Machines      []*machine.Machine `json:"machines"`
	NextCursor    string             `json:"next_cursor,omitempty"`
	LastMachineID string             `json:"last_machine_id,omitempty"`
	LastUpdatedAt string             `json:"last_updated_at,omitempty"`
}

type orgVolumes struct {
	Volumes []machine.Volume `json:"volumes"`
}

// workerList is the fleet. Unreachable workers are told, not left out.
type workerList struct {
	Workers     []cluster.Record `json:"workers"`
	Unreachable []unreachable    `json:"unreachable"`
}

type unreachable struct {
	Worker cluster.WorkerID `json:"worker"`
	Error  string           `json:"error"`
}
