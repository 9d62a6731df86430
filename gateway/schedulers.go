package gateway

import (
	"cmp"
	"encoding/hex"
	"io"
	"net/http"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/core/defaults"
	"github.com/soukhq/souk/core/scheduler"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet/trials"
	"github.com/soukhq/souk/store/catalog"
)

// schedulersAPI serves the default schedulers of the cluster and its namespaces. The namespace "" stands for the cluster.
type schedulersAPI struct {
	catalog schedulerCatalog
	trials  *trials.Reader // nil: jobs are not taken
	rand    io.Reader
}

// schedulerCatalog is what schedulersAPI needs of the catalog.
type schedulerCatalog interface {
	AllNamespaces() []catalog.Namespace
	Namespace(name string) (catalog.Namespace, error)
	SchedulerRows(namespace string) defaults.Rows
	SetScheduler(namespace, name string) error
	Comparison(namespace string) (*defaults.Comparison, error)
	StartComparison(namespace string, c *defaults.Comparison) error
	StopComparison(namespace, id, why string, now time.Time) error
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

		"GET /v1/souk/scheduler/comparison":                           a.getComparison,
		"PUT /v1/souk/scheduler/comparison":                           a.startComparison,
		"DELETE /v1/souk/scheduler/comparison":                        a.stopComparison,
		"GET /v1/souk/namespaces/{namespace}/scheduler/comparison":    a.getComparison,
		"PUT /v1/souk/namespaces/{namespace}/scheduler/comparison":    a.startComparison,
		"DELETE /v1/souk/namespaces/{namespace}/scheduler/comparison": a.stopComparison,
	}
}

// defaultOf returns the default scheduler of a namespace, or of the cluster.
func (a *schedulersAPI) defaultOf(namespace string) api.SchedulerDefault {
	rows := a.catalog.SchedulerRows(namespace)
	if namespace == "" {
		rows.Namespace = defaults.Row{}
	}
	name, of := rows.Scheduler()
	d := api.SchedulerDefault{Namespace: namespace, Scheduler: name, From: cmp.Or(of, "souk")}
	if c, _ := rows.Running(); c != nil {
		d.Scheduler, d.Candidate, d.Share = c.A, c.B, c.Share
	}
	return d
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

func (a *schedulersAPI) getComparison(w http.ResponseWriter, r *http.Request) error {
	namespace := r.PathValue("namespace")
	c, err := a.catalog.Comparison(namespace)
	if err != nil {
		return err
	}
	if c == nil {
		return fault.New(fault.NotFound, defaults.CodeComparison,
			"no schedulers have been compared there; start with \"souk schedulers compare A B\"")
	}
	if a.trials == nil {
		return errNoJobs()
	}
	fared, silent, err := a.trials.Read(r.Context(), c)
	if err != nil {
		return err
	}
	out := api.SchedulerComparison{Namespace: namespace, ID: c.ID, Began: c.Began, Why: c.Why, Fared: fared,
		NewSchedulerComparison: api.NewSchedulerComparison{A: c.A, B: c.B, Share: c.Share, Margin: c.Margin},
		Verdict:                fared.Verdict(c.Margin), Says: fared.VerdictText(c.A, c.B, c.Margin)}
	if !c.Ended.IsZero() {
		out.Ended = &c.Ended
	}
	setMissing(w, workersOf(silent))
	answerJSON(w, http.StatusOK, out)
	return nil
}

func (a *schedulersAPI) startComparison(w http.ResponseWriter, r *http.Request) error {
	var in api.NewSchedulerComparison
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	if a.trials == nil {
		return errNoJobs()
	}
	var id [8]byte
	if _, err := io.ReadFull(a.rand, id[:]); err != nil {
		return fault.Wrap(err, fault.Internal, codeRandom, "no random id could be made for the comparison")
	}
	c, err := defaults.NewComparison(hex.EncodeToString(id[:]), in.A, in.B, in.Share, in.Margin, time.Now())
	if err != nil {
		return err
	}
	if err := a.catalog.StartComparison(r.PathValue("namespace"), c); err != nil {
		return err
	}
	return a.getComparison(w, r)
}

func (a *schedulersAPI) stopComparison(w http.ResponseWriter, r *http.Request) error {
	if err := a.catalog.StopComparison(r.PathValue("namespace"), "", "a user ended it", time.Now()); err != nil {
		return err
	}
	return a.getComparison(w, r)
}
