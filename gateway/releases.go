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

// releasesAPI serves what is wanted of apps, and what there is of it.
type releasesAPI struct {
	catalog  releaseCatalog
	releases *releases.Releases
}

// releaseCatalog is what it needs of the catalog.
type releaseCatalog interface {
	OpenApp(name string) (catalog.App, error)
	RollSecrets(app string, values map[string]*string, by string, parent *string, now time.Time) (catalog.Rolled, error)
}

// handlers returns what it serves.
func (a *releasesAPI) handlers() handlers {
	return handlers{
		api.CreateRelease:   a.create,
		api.PlanRelease:     a.plan,
		api.HoldRelease:     a.planAndHold,
		api.ListReleases:    a.list,
		api.GetRelease:      a.get,
		api.ScaleService:    changes[api.Scale](a, release.WhyScale),
		api.RestartService:  changes[api.RolloutChange](a, release.WhyRestart),
		api.RollbackService: changes[api.ServiceRollback](a, release.WhyBack),
		api.PauseRollout:    changes[api.RolloutChange](a, release.WhyPause),
		api.ResumeRollout:   changes[api.RolloutChange](a, release.WhyResume),
		api.PromoteRollout:  changes[api.Promotion](a, release.WhyPromote),
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
	made, err := a.releases.Deploy(r.Context(), &app, &in, asker(r))
	return answered(w, http.StatusCreated, made, err)
}

// plan says what a new release would do, and whether there is room for its first step. It changes nothing.
func (a *releasesAPI) plan(w http.ResponseWriter, r *http.Request) error {
	return a.foresee(w, r, false)
}

// planAndHold is plan, and has workers hold that room for a while.
func (a *releasesAPI) planAndHold(w http.ResponseWriter, r *http.Request) error {
	return a.foresee(w, r, true)
}

func (a *releasesAPI) foresee(w http.ResponseWriter, r *http.Request, hold bool) error {
	app, err := a.catalog.OpenApp(r.PathValue("app"))
	switch {
	case fault.CodeOf(err) == fault.CodeAppNotFound:
		app = catalog.App{Name: r.PathValue("app")} // a deploy would make it
	case err != nil:
		return err
	}
	var in api.NewRelease
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	plan, err := a.releases.Plan(r.Context(), &app, &in, asker(r), hold)
	return answered(w, http.StatusOK, plan, err)
}

// asker tells of who sent a request.
func asker(r *http.Request) releases.Asker {
	return releases.Asker{Name: caller(r),
		Deploys: may(r, api.Route{Op: api.CreateRelease, Verb: api.VerbCreate, Kind: api.KindService})}
}

// caller returns the name of the token that a request came with.
func caller(r *http.Request) string {
	for _, t := range of(r).who {
		if t.Name != "" {
			return t.Name
		}
	}
	return ""
}

// answered answers with a value, or returns the error.
func answered(w http.ResponseWriter, code int, value any, err error) error {
	if err == nil {
		answer(w, code, value)
	}
	return err
}

func (a *releasesAPI) list(w http.ResponseWriter, r *http.Request) error {
	list, err := a.releases.List(r.PathValue("app"))
	return answered(w, http.StatusOK, list, err)
}

func (a *releasesAPI) get(w http.ResponseWriter, r *http.Request) error {
	release, err := a.releases.Get(r.PathValue("app"), r.PathValue("release"))
	return answered(w, http.StatusOK, release, err)
}

func (a *releasesAPI) status(w http.ResponseWriter, r *http.Request) error {
	_, status, err := a.releases.Status(r.PathValue("app"))
	return answered(w, http.StatusOK, status, err)
}

func (a *releasesAPI) why(w http.ResponseWriter, r *http.Request) error {
	why, err := a.releases.Why(r.Context(), r.PathValue("app"))
	return answered(w, http.StatusOK, why, err)
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
	return answered(w, http.StatusCreated, run, err)
}

// changes returns what has a service changed by a verb, as a body says.
func changes[T interface{ Change() release.Change }](a *releasesAPI, why string) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		var in T
		if err := readJSON(w, r, &in, why != release.WhyScale); err != nil {
			return err
		}
		want := in.Change()
		want.Why, want.By, want.At = why, caller(r), time.Now()
		out, err := a.releases.Change(r.PathValue("app"), want)
		return answered(w, http.StatusOK, out, err)
	}
}

// rollSecrets sets secrets, and replaces the machines of the service that read them.
func (a *releasesAPI) rollSecrets(w http.ResponseWriter, r *http.Request) error {
	var in api.SecretsRoll
	if err := readJSON(w, r, &in, true); err != nil {
		return err
	}
	x, err := a.catalog.RollSecrets(r.PathValue("app"), in.Values, caller(r), in.Parent, time.Now())
	if err != nil {
		return err
	}
	out := api.SecretsRolled{Secrets: appSecrets(x.Set), Version: x.Version, Groups: append([]string{}, x.Groups...)}
	if x.Head != nil {
		h := releases.HeadAnswer(x.Head)
		out.Head = &h
	}
	answer(w, http.StatusOK, out)
	return nil
}

// planSecrets says what that would do. It changes nothing.
func (a *releasesAPI) planSecrets(w http.ResponseWriter, r *http.Request) error {
	var in api.SecretsRoll
	if err := readJSON(w, r, &in, true); err != nil {
		return err
	}
	plan, err := a.releases.PlanSecrets(r.Context(), r.PathValue("app"), &in, caller(r))
	return answered(w, http.StatusOK, plan, err)
}
