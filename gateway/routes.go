package gateway

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/lifecycle"
	"github.com/soukhq/souk/machine"
)

// handler serves a route. It returns its error instead of answering it.
type handler func(http.ResponseWriter, *http.Request) error

// handlers are what one noun serves, by method and path.
type handlers map[string]handler

// route is one line of the API. The mux, the metrics, the description in openapi.json and its test are made of the table.
type route struct {
	method string
	path   string
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
		{"POST", apps, "Make an app.", "wait", api.NewApp{}, 201, api.App{}, ""},
		{"GET", apps, "List apps.", "org_slug app_role", nil, 200, api.AppList{}, ""},
		{"GET", app, "Tell of an app.", "", nil, 200, api.App{}, ""},
		{"DELETE", app, "Destroy an app's machines and volumes, and the app.", "", nil, 202, api.OK{}, ""},
		{"GET", sealed, "List secrets, without their values.", "version show_secrets", nil, 200, api.SecretList{}, ""},
		{"POST", sealed, "Set secrets; null deletes one.", "", api.SecretValues{}, 200, api.SecretList{}, ""},
		{"GET", sealed + "/{name}", "Tell of a secret, without its value.", "version show_secrets", nil, 200, api.Secret{}, ""},
		{"POST", sealed + "/{name}", "Set a secret.", "", api.SetValue{}, 200, api.SecretSet{}, ""},
		{"DELETE", sealed + "/{name}", "Delete a secret.", "", nil, 200, api.SecretVersion{}, ""},
		{"GET", app + "/ip_assignments", "List an app's addresses: souk gives none.", "", nil, 200, api.AddressList{}, ""},
	}
}

func machineRoutes() []route {
	return []route{
		{"POST", fleet, "Make a machine, and start it unless skip_launch is set.", "", machine.Launch{}, 200, machine.Machine{}, ""},
		{"GET", fleet, "List an app's machines; metadata.KEY=VALUE filters.", "include_deleted region state summary", nil, 200, []machine.Machine{}, ""},
		{"GET", one, "Tell of a machine.", "", nil, 200, machine.Machine{}, ""},
		{"POST", one, "Replace a machine's config: a new instance.", "", machine.Launch{}, 200, machine.Machine{}, ""},
		{"DELETE", one, "Destroy a machine; a running one only with kill.", "kill force", nil, 200, api.OK{}, ""},
		{"GET", one + "/wait", "Answer when the machine is in one of the states.", "state* timeout version instance_id from_event_id", nil, 200, api.Waited{}, ""},
		{"GET", one + "/events", "List a machine's events, newest first.", "limit", nil, 200, []machine.Event{}, ""},
		{"GET", one + "/versions", "List the configs a machine has had, newest first.", "", nil, 200, []machine.Version{}, ""},
		{"GET", one + "/ps", "List a machine's processes.", "sort_by order", nil, 200, []machine.Process{}, ""},
		{"GET", one + "/metadata", "Give a machine's metadata.", "", nil, 200, map[string]string{}, ""},
		{"PUT", one + "/metadata", "Replace a machine's metadata.", "", map[string]string{}, 204, nil, ""},
		{"PATCH", one + "/metadata", "Change keys of a machine's metadata; null deletes one.", "", map[string]*string{}, 204, nil, ""},
		{"POST", one + "/metadata/{key}", "Set one key of a machine's metadata.", "", api.SetValue{}, 204, nil, ""},
		{"DELETE", one + "/metadata/{key}", "Delete one key of a machine's metadata.", "", nil, 204, nil, ""},
		{"GET", one + "/lease", "Give the lease in force.", "", nil, 200, api.LeaseAnswer{}, ""},
		{"POST", one + "/lease", "Take a lease, or refresh it with its nonce.", "ttl", api.LeaseRequest{}, 201, api.LeaseAnswer{}, ""},
		{"DELETE", one + "/lease", "Release a lease with its nonce.", "", nil, 200, api.OK{}, ""},
		{"GET", "/v1/orgs/{org}/machines", "List the machines of an organization's apps.", "updated_after cursor limit include_deleted", nil, 200, api.MachinePage{}, ""},
		{"GET", "/v1/orgs/{org}/volumes", "List the volumes of an organization's apps.", "", nil, 200, api.VolumeList{}, ""},
	}
}

func verbRoutes() []route {
	return []route{
		{"POST", one + "/start", "Start a machine.", "", nil, 200, api.Started{}, ""},
		{"POST", one + "/stop", "Stop a machine: signal, wait, kill.", "", api.StopRequest{}, 200, api.OK{}, ""},
		{"POST", one + "/restart", "Stop and start a machine.", "force_stop timeout signal", nil, 200, api.OK{}, ""},
		{"POST", one + "/suspend", "Suspend a machine.", "", nil, 200, api.OK{}, ""},
		{"POST", one + "/signal", "Send a signal to a machine's main process.", "", api.SignalRequest{}, 200, api.OK{}, ""},
		{"POST", one + "/cordon", "Keep traffic from a machine.", "", nil, 200, api.OK{}, ""},
		{"POST", one + "/uncordon", "Let traffic to a machine again.", "", nil, 200, api.OK{}, ""},
		{"POST", one + "/exec", "Run a command in a machine and answer when it ends.", "", api.ExecRequest{}, 200, api.ExecResult{}, ""},
	}
}

func volumeRoutes() []route {
	return []route{
		{"GET", disks, "List an app's volumes.", "", nil, 200, []machine.Volume{}, ""},
		{"POST", disks, "Make a volume.", "", api.NewVolume{}, 200, machine.Volume{}, ""},
		{"GET", disk, "Tell of a volume.", "", nil, 200, machine.Volume{}, ""},
		{"PUT", disk, "Change how a volume's snapshots are kept.", "", api.VolumeUpdate{}, 200, machine.Volume{}, ""},
		{"DELETE", disk, "Delete a volume that no machine has.", "", nil, 200, machine.Volume{}, ""},
		{"PUT", disk + "/extend", "Make a volume larger.", "", api.ExtendRequest{}, 200, api.Extended{}, ""},
		{"GET", disk + "/snapshots", "List a volume's snapshots.", "", nil, 200, []machine.Snapshot{}, ""},
		{"POST", disk + "/snapshots", "Copy a volume as it is now.", "", nil, 200, machine.Snapshot{}, ""},
	}
}

func platformRoutes() []route {
	return []route{
		{"GET", "/v1/platform/regions", "List the regions that have workers.", "size", nil, 200, api.RegionList{}, ""},
		{"POST", "/v1/platform/placements", "Say where machines would go now; nothing is reserved.", "", api.PlacementsRequest{}, 200, api.Placements{}, ""},
	}
}

func soukRoutes() []route {
	return []route{
		{"GET", souk + "/version", "Tell which souk this is.", "", nil, 200, api.ServerInfo{}, ""},
		{"GET", souk + "/openapi.json", "Describe this API.", "", nil, 200, map[string]any{}, ""},
		{"GET", souk + "/workers", "Give what each worker says of itself.", "", nil, 200, api.WorkerList{}, ""},
		{"GET", souk + "/members", "List the members of the cluster, as this one knows them.", "", nil, 200, api.MemberList{}, ""},
		{"GET", souk + "/doctor", "Say what each worker's host has and lacks.", "", nil, 200, api.Examinations{}, ""},
		{"GET", souk + "/events", "Stream events from now on.", "app", nil, 200, machine.EventOf{}, ndjson},
		{"POST", souk + "/apps/{app}/gangs", "Make several machines that start together, or none.", "", api.GangRequest{}, 200, api.Gang{}, ""},
		{"GET", soukOne + "/logs", "Stream a machine's output.", "tail follow cursor", nil, 200, machine.LogLine{}, ndjson},
		{"GET", soukOne + "/files", "Read a machine's files as a tar stream.", "path", nil, 200, nil, tarred},
		{"PUT", soukOne + "/files", "Write a tar stream into a machine's files.", "path", nil, 204, nil, ""},
		{"GET", soukOne + "/explain", "Say why a machine is where it is, or was, and what each worker would say now.", "decision", nil, 200, api.Explanation{}, ""},
		{"GET", souk + "/decisions", "List decisions, newest first, those that placed nothing too.", "app machine outcome since limit cursor", nil, 200, api.DecisionPage{}, ""},
		{"GET", souk + "/decisions/{decision}", "Give one decision and its explanation.", "", nil, 200, api.ExplainedDecision{}, ""},
		{"GET", souk + "/view", "Give the fleet as a buyer sees it, with the age of each record.", "", nil, 200, api.FleetView{}, ""},
		{"POST", souk + "/apps/{app}/plan", "Say what a launch would meet now, and what would help; nothing is reserved.", "", machine.Launch{}, 200, api.Plan{}, ""},
		{"POST", soukOne + "/exec", "Run a command in a machine, with streams both ways.", "", nil, 200, api.ExecFrame{}, ndjson},
		{"GET", "/livez", "Say that the process serves; needs no token.", "", nil, 200, nil, "text/plain"},
		{"GET", "/readyz", "Say whether a worker answers; needs no token.", "", nil, 200, nil, "text/plain"},
		{"GET", "/metrics", "Give metrics as Prometheus reads them.", "", nil, 200, nil, "text/plain"},
	}
}

// handlers returns what has no noun of its own yet.
func (g *Gateway) handlers() handlers {
	return handlers{
		"POST /v1/apps/{app}/machines":                   g.createMachine,
		"GET /v1/apps/{app}/machines":                    g.listMachines,
		"GET /v1/apps/{app}/machines/{id}":               g.getMachine,
		"POST /v1/apps/{app}/machines/{id}":              g.updateMachine,
		"DELETE /v1/apps/{app}/machines/{id}":            g.destroyMachine,
		"GET /v1/apps/{app}/machines/{id}/wait":          g.waitMachine,
		"GET /v1/apps/{app}/machines/{id}/events":        g.listEvents,
		"GET /v1/apps/{app}/machines/{id}/versions":      g.listVersions,
		"GET /v1/apps/{app}/machines/{id}/ps":            g.listProcesses,
		"POST /v1/apps/{app}/machines/{id}/start":        g.startMachine,
		"POST /v1/apps/{app}/machines/{id}/stop":         g.stopMachine,
		"POST /v1/apps/{app}/machines/{id}/restart":      g.restartMachine,
		"POST /v1/apps/{app}/machines/{id}/suspend":      g.plain(lifecycle.Suspend),
		"POST /v1/apps/{app}/machines/{id}/signal":       g.signalMachine,
		"POST /v1/apps/{app}/machines/{id}/cordon":       g.plain(lifecycle.Cordon),
		"POST /v1/apps/{app}/machines/{id}/uncordon":     g.plain(lifecycle.Uncordon),
		"GET /v1/apps/{app}/volumes":                     g.listVolumes,
		"POST /v1/apps/{app}/volumes":                    g.createVolume,
		"GET /v1/apps/{app}/volumes/{volume}":            g.getVolume,
		"PUT /v1/apps/{app}/volumes/{volume}":            g.updateVolume,
		"DELETE /v1/apps/{app}/volumes/{volume}":         g.deleteVolume,
		"PUT /v1/apps/{app}/volumes/{volume}/extend":     g.extendVolume,
		"GET /v1/apps/{app}/volumes/{volume}/snapshots":  g.listSnapshots,
		"POST /v1/apps/{app}/volumes/{volume}/snapshots": g.createSnapshot,
		"GET /v1/platform/regions":                       g.listRegions,
		"POST /v1/platform/placements":                   g.simulatePlacements,
		"GET /v1/souk/version":                           g.getVersion,
		"GET /v1/souk/openapi.json":                      g.getOpenAPI,
		"GET /v1/souk/workers":                           g.listWorkers,
		"GET /v1/souk/doctor":                            g.examine,
		"POST /v1/souk/apps/{app}/gangs":                 g.createGang,
		"GET /v1/souk/apps/{app}/machines/{id}/explain":  g.explain,
		"GET /v1/souk/decisions":                         g.listDecisions,
		"GET /v1/souk/decisions/{decision}":              g.getDecision,
		"GET /v1/souk/view":                              g.getView,
		"POST /v1/souk/apps/{app}/plan":                  g.planLaunch,
		"GET /livez":                                     g.livez,
		"GET /readyz":                                    g.readyz,
		"GET /metrics":                                   g.serveMetrics,
		"POST /v1/souk/jobs":                             g.submitJob,
		"GET /v1/souk/jobs":                              g.listJobs,
		"GET /v1/souk/jobs/{job}":                        g.getJob,
		"GET /v1/souk/jobs/{job}/wait":                   g.waitJob,
		"POST /v1/souk/jobs/{job}/cancel":                g.cancelJob,
		"GET /v1/souk/jobs/{job}/tasks":                  g.listTasks,
		"GET /v1/souk/jobs/{job}/tasks/{index}/logs":     g.taskLogs,
		"POST /v1/souk/workers/{worker}/quote":           g.quoteAt,
		"POST /v1/souk/workers/{worker}/holds":           g.holdAt,
		"DELETE /v1/souk/workers/{worker}/holds/{hold}":  g.releaseAt,
		"POST /v1/souk/workers/{worker}/machines":        g.grantAt,
		"GET /v1/souk/workers/{worker}/drain":            g.planDrain,
		"POST /v1/souk/apps/{app}/machines/{id}/move":    g.moveMachine,
		"GET /v1/souk/policies":                          g.listPolicies,
		"POST /v1/souk/policies":                         g.applyPolicy,
		"GET /v1/souk/policies/{policy}":                 g.getPolicy,
		"DELETE /v1/souk/policies/{policy}":              g.deletePolicy,
		"POST /v1/souk/policies/{policy}/rollback":       g.rollbackPolicy,
		"POST /v1/souk/policy-plan":                      g.planPolicy,
		"PUT /v1/souk/policy-choice":                     g.choosePolicies,
		"GET /v1/souk/apps/{app}/policy":                 g.getAppPolicy,
		"PUT /v1/souk/apps/{app}/policy":                 g.setAppPolicy,
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

// served returns what all nouns together serve.
func (g *Gateway) served() handlers {
	all := handlers{}
	for _, noun := range []interface{ handlers() handlers }{
		&appsAPI{g.catalog, g.directory}, &secretsAPI{g.catalog}, &namespacesAPI{g.catalog, g.directory, g.spent},
		&orgsAPI{g.catalog, g.directory}, &metadataAPI{g.directory}, &leasesAPI{g.directory}, &consoleAPI{g.directory, g.log},
		&membersAPI{g.cluster, g.members, g.directory}, &healthAPI{g.cluster, g.directory}, g,
	} {
		maps.Copy(all, noun.handlers())
	}
	return all
}

// mux registers the routes, and behind each path an answer for methods it does not know. Each route has a handler, and each
// handler a route.
func (g *Gateway) mux() (*http.ServeMux, error) {
	mux, served := http.NewServeMux(), g.served()
	allow := map[string][]string{}
	for _, rt := range routes() {
		do := served[rt.method+" "+rt.path]
		if do == nil {
			return nil, fault.New(fault.Internal, "routes", "nothing serves %s %s", rt.method, rt.path)
		}
		delete(served, rt.method+" "+rt.path)
		mux.Handle(rt.method+" "+rt.path, g.handle(rt.path, do))
		allow[rt.path] = append(allow[rt.path], rt.method)
		if rt.method == http.MethodGet {
			allow[rt.path] = append(allow[rt.path], http.MethodHead)
		}
	}
	for unlisted := range served {
		return nil, fault.New(fault.Internal, "routes", "%s is served, and is no route", unlisted)
	}
	g.refuseUnimplemented(mux, allow)
	for path, methods := range allow {
		mux.Handle(path, g.handle(path, func(w http.ResponseWriter, r *http.Request) error {
			slices.Sort(methods)
			w.Header().Set("Allow", strings.Join(methods, ", "))
			return fault.New(fault.Invalid, "method", "%s is not possible here; use %s", clip(r.Method, 20), strings.Join(methods, " or "))
		}))
	}
	mux.Handle("/", g.handle("unmatched", func(http.ResponseWriter, *http.Request) error { return noSuchPath() }))
	return mux, nil
}

// refuseUnimplemented registers the parts of the Machines API that souk does not serve.
func (g *Gateway) refuseUnimplemented(mux *http.ServeMux, allow map[string][]string) {
	for path, sentence := range unimplemented() {
		bare := strings.TrimSuffix(path, "/{rest...}")
		do := func(http.ResponseWriter, *http.Request) error {
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
}

// handle makes an HTTP handler of a route's function.
func (g *Gateway) handle(path string, do handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		of(r).route = path
		if err := do(w, r); err != nil {
			g.fail(w, r, err)
		}
	})
}

func (g *appsAPI) listIPs(w http.ResponseWriter, r *http.Request) error {
	if _, err := g.catalog.App(r.PathValue("app")); err != nil {
		return err
	}
	answer(w, http.StatusOK, api.AddressList{IPs: []string{}})
	return nil
}
