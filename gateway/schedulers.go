package gateway

import (
	"cmp"
	"net/http"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/core/defaults"
	"github.com/soukhq/souk/core/scheduler"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/store/catalog"
)

// schedulersAPI serves the default schedulers of the cluster and its namespaces. The namespace "" stands for the cluster.
type schedulersAPI struct {
	catalog schedulerCatalog
}

// schedulerCatalog is what schedulersAPI needs of the catalog.
type schedulerCatalog interface {
	AllNamespaces() []catalog.Namespace
	Namespace(name string) (catalog.Namespace, error)
	SchedulerRows(namespace string) defaults.Rows
	SetScheduler(namespace, name string) error
}

func (a *schedulersAPI) opHandlers() handlers {
	return handlers{
		"GET /v1/souk/schedulers":                          a.listDefaults,
		"GET /v1/souk/scheduler":                           a.getDefault,
		"PUT /v1/souk/scheduler":                           a.setDefault,
		"DELETE /v1/souk/scheduler":                        a.unsetDefault,
		"GET /v1/souk/namespaces/{namespace}/scheduler":    a.getDefault,
		"PUT /v1/souk/namespaces/{namespace}/scheduler":    a.setDefault,
		"DELETE /v1/souk/namespaces/{namespace}/scheduler": a.unsetDefault,
	}
}

// defaultOf returns the default scheduler of a namespace, or of the cluster.
func (a *schedulersAPI) defaultOf(namespace string) api.SchedulerDefault {
	rows := a.catalog.SchedulerRows(namespace)
	if namespace == "" {
		rows.Namespace = defaults.Row{}
	}
	name, of := rows.Scheduler()
	return api.SchedulerDefault{Namespace: namespace, Scheduler: name, From: cmp.Or(of, "souk")}
}

func (a *schedulersAPI) listDefaults(w http.ResponseWriter, _ *http.Request) error {
	list := []api.SchedulerDefault{a.defaultOf("")}
	for _, n := range a.catalog.AllNamespaces() {
		list = append(list, a.defaultOf(n.Name))
	}
	answerJSON(w, http.StatusOK, api.SchedulerDefaultList{Defaults: list})
	return nil
}

func (a *schedulersAPI) getDefault(w http.ResponseWriter, r *http.Request) error {
	namespace := r.PathValue("namespace")
	if namespace != "" {
		if _, err := a.catalog.Namespace(namespace); err != nil {
			return err
		}
	}
	answerJSON(w, http.StatusOK, a.defaultOf(namespace))
	return nil
}

func (a *schedulersAPI) setDefault(w http.ResponseWriter, r *http.Request) error {
	var in api.SchedulerChoice
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	if in.Scheduler == "" {
		return fault.New(fault.Invalid, scheduler.CodeScheduler,
			"the scheduler is not named; name one of \"souk schedulers\", or unset the default with DELETE")
	}
	if err := a.catalog.SetScheduler(r.PathValue("namespace"), in.Scheduler); err != nil {
		return err
	}
	return a.getDefault(w, r)
}

func (a *schedulersAPI) unsetDefault(w http.ResponseWriter, r *http.Request) error {
	if err := a.catalog.SetScheduler(r.PathValue("namespace"), ""); err != nil {
		return err
	}
	return a.getDefault(w, r)
}
