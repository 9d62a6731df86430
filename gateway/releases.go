package gateway

import (
	"net/http"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/services/releases"
	"github.com/soukhq/souk/store/catalog"
)

// releasesAPI serves the releases of apps and their state.
type releasesAPI struct {
	catalog  releaseCatalog
	releases *releases.Releases
}

// releaseCatalog is what releasesAPI needs of the catalog.
type releaseCatalog interface {
	OpenApp(name string) (catalog.App, error)
	RollSecrets(app string, values map[string]*string, by string, parent *string, now time.Time) (catalog.Rolled, error)
}

func (a *releasesAPI) opHandlers() handlers {
	return handlers{
		api.CreateRelease:   a.create,
		api.PlanRelease:     a.plan,
		api.HoldRelease:     a.planAndHold,
		api.ListReleases:    a.list,
		api.GetRelease:      a.get,
		api.ScaleService:    changeHandler[api.Scale](a, release.WhyScale),
		api.RestartService:  changeHandler[api.RolloutChange](a, release.WhyRestart),
		api.RollbackService: changeHandler[api.ServiceRollback](a, release.WhyBack),
		api.PauseRollout:    changeHandler[api.RolloutChange](a, release.WhyPause),
		api.ResumeRollout:   changeHandler[api.RolloutChange](a, release.WhyResume),
		api.PromoteRollout:  changeHandler[api.Promotion](a, release.WhyPromote),
		api.TriggerJob:      a.trigger,
		api.GetService:      a.status,
		api.WhyService:      a.why,
		api.RollSecrets:     a.rollSecrets,
		api.PlanSecrets:     a.planSecrets,
	}
}

func (a *releasesAPI) create(w http.ResponseWriter, r *http.Request) error {
	app, err := a.catalog.OpenApp(r.PathValue("app"))
	if err != nil {
		return err
	}
	var in api.NewRelease
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	made, err := a.releases.Deploy(r.Context(), &app, &in, askerOf(r))
	return answerOrFail(w, http.StatusCreated, made, err)
}

// plan says what a new release would do, and whether there is room for its first step. It changes nothing.
func (a *releasesAPI) plan(w http.ResponseWriter, r *http.Request) error {
	return a.foreseeRelease(w, r, false)
}

// planAndHold is plan, and asks the workers to hold that room for a while.
func (a *releasesAPI) planAndHold(w http.ResponseWriter, r *http.Request) error {
	return a.foreseeRelease(w, r, true)
}

func (a *releasesAPI) foreseeRelease(w http.ResponseWriter, r *http.Request, hold bool) error {
	app, err := a.catalog.OpenApp(r.PathValue("app"))
	switch {
	case fault.CodeOf(err) == fault.CodeAppNotFound:
		app = catalog.App{Name: r.PathValue("app")} // a deploy would create the app
	case err != nil:
		return err
	}
	var in api.NewRelease
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	plan, err := a.releases.Plan(r.Context(), &app, &in, askerOf(r), hold)
	return answerOrFail(w, http.StatusOK, plan, err)
}

// askerOf describes the sender of a request.
func askerOf(r *http.Request) releases.Asker {
	return releases.Asker{Name: callerName(r),
		Deploys: mayDo(r, api.Route{Op: api.CreateRelease, Verb: api.VerbCreate, Kind: api.KindService})}
}

// callerName returns the name of a request's token.
func callerName(r *http.Request) string {
	for _, t := range of(r).who {
		if t.Name != "" {
			return t.Name
		}
	}
	return ""
}

// answerOrFail answers with a value, or returns the error.
func answerOrFail(w http.ResponseWriter, code int, value any, err error) error {
	if err == nil {
		answerJSON(w, code, value)
	}
	return err
}

func (a *releasesAPI) list(w http.ResponseWriter, r *http.Request) error {
	list, err := a.releases.List(r.PathValue("app"))
	return answerOrFail(w, http.StatusOK, list, err)
}

func (a *releasesAPI) get(w http.ResponseWriter, r *http.Request) error {
	release, err := a.releases.Get(r.PathValue("app"), r.PathValue("release"))
	return answerOrFail(w, http.StatusOK, release, err)
}

func (a *releasesAPI) status(w http.ResponseWriter, r *http.Request) error {
	_, status, err := a.releases.Status(r.PathValue("app"))
	return answerOrFail(w, http.StatusOK, status, err)
}

func (a *releasesAPI) why(w http.ResponseWriter, r *http.Request) error {
	why, err := a.releases.Why(r.Context(), r.PathValue("app"))
	return answerOrFail(w, http.StatusOK, why, err)
}

// trigger runs a job now.
func (a *releasesAPI) trigger(w http.ResponseWriter, r *http.Request) error {
	app, err := a.catalog.OpenApp(r.PathValue("app"))
	if err != nil {
		return err
	}
	var in api.Trigger
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	run, err := a.releases.Trigger(r.Context(), &app, in.Group)
	return answerOrFail(w, http.StatusCreated, run, err)
}

// changeHandler returns a handler that changes a service as the body says.
func changeHandler[T interface{ Change() release.Change }](a *releasesAPI, why string) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		var in T
		if err := readJSON(w, r, &in, why != release.WhyScale); err != nil {
			return err
		}
		want := in.Change()
		want.Why, want.By, want.At = why, callerName(r), time.Now()
		out, err := a.releases.Change(r.PathValue("app"), want)
		return answerOrFail(w, http.StatusOK, out, err)
	}
}

// rollSecrets sets secrets, and replaces the machines of the service that read them.
func (a *releasesAPI) rollSecrets(w http.ResponseWriter, r *http.Request) error {
	var in api.SecretsRoll
	if err := readJSON(w, r, &in, true); err != nil {
		return err
	}
	x, err := a.catalog.RollSecrets(r.PathValue("app"), in.Values, callerName(r), in.Parent, time.Now())
	if err != nil {
		return err
	}
	out := api.SecretsRolled{Secrets: appSecrets(x.Set), Version: x.Version, Groups: append([]string{}, x.Groups...)}
	if x.Head != nil {
		h := releases.HeadAnswer(x.Head)
		out.Head = &h
	}
	answerJSON(w, http.StatusOK, out)
	return nil
}

// planSecrets says what rollSecrets would do. It changes nothing.
func (a *releasesAPI) planSecrets(w http.ResponseWriter, r *http.Request) error {
	var in api.SecretsRoll
	if err := readJSON(w, r, &in, true); err != nil {
		return err
	}
	plan, err := a.releases.PlanSecrets(r.Context(), r.PathValue("app"), &in, callerName(r))
	return answerOrFail(w, http.StatusOK, plan, err)
}
