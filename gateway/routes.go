package gateway

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/lifecycle"
)

// handler serves a route. It returns its error instead of answering it.
type handler func(http.ResponseWriter, *http.Request) error

// handlers are what one noun serves.
type handlers map[api.Op]handler

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
	for _, rt := range api.Routes() {
		do, path := served[rt.Op], rt.Op.Pattern()
		if do == nil {
			return nil, fault.New(fault.Internal, "routes", "nothing serves %s", rt.Op)
		}
		delete(served, rt.Op)
		mux.Handle(string(rt.Op), g.handle(path, do))
		allow[path] = append(allow[path], rt.Op.Method())
		if rt.Op.Method() == http.MethodGet {
			allow[path] = append(allow[path], http.MethodHead)
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
	for path, sentence := range api.Unimplemented() {
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
