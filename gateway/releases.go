package gateway

import (
	"net/http"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/core/rollout"
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
	Scale(app string, counts map[string]int, by string, parent *string, now time.Time) (*rollout.Head, error)
	Restart(app, by string, parent *string, now time.Time) (*rollout.Head, error)
	Rollback(app, release, by string, parent *string, now time.Time) (*rollout.Head, []string, error)
	RollSecrets(app string, values map[string]*string, by string, parent *string, now time.Time) (catalog.Rolled, error)
	Pause(app, by string, parent *string, now time.Time) (*rollout.Head, error)
	Resume(app, by string, parent *string, now time.Time) (*rollout.Head, error)
	Promote(app string, steps int, all bool, by string, parent *string, now time.Time) (*rollout.Head, error)
}

// handlers returns what it serves.
func (a *releasesAPI) handlers() handlers {
	return handlers{
		api.CreateRelease:   a.create,
		api.PlanRelease:     a.plan,
		api.HoldRelease:     a.planAndHold,
		api.ListReleases:    a.list,
		api.GetRelease:      a.get,
		api.ScaleService:    a.scale,
		api.RestartService:  a.restart,
		api.RollbackService: a.rollback,
		api.PauseRollout:    a.pause,
		api.ResumeRollout:   a.resume,
		api.PromoteRollout:  a.promote,
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
	case fault.CodeOf(err) == "app_not_found":
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

func (a *releasesAPI) scale(w http.ResponseWriter, r *http.Request) error {
	var in api.Scale
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	if len(in.Counts) == 0 {
		return fault.New(fault.Invalid, "counts", "no counts were sent; send {\"counts\": {\"GROUP\": N}}")
	}
	return answerHead(w)(a.catalog.Scale(r.PathValue("app"), in.Counts, caller(r), in.Parent, time.Now()))
}

func (a *releasesAPI) restart(w http.ResponseWriter, r *http.Request) error {
	var in api.ServiceRestart
	if err := readJSON(w, r, &in, true); err != nil {
		return err
	}
	return answerHead(w)(a.catalog.Restart(r.PathValue("app"), caller(r), in.Parent, time.Now()))
}

func (a *releasesAPI) rollback(w http.ResponseWriter, r *http.Request) error {
	var in api.ServiceRollback
	if err := readJSON(w, r, &in, true); err != nil {
		return err
	}
	app := r.PathValue("app")
	if in.Release != "" {
		e, err := a.releases.Find(app, in.Release)
		if err != nil {
			return err
		}
		in.Release = e.Release
	}
	head, renewed, err := a.catalog.Rollback(app, in.Release, caller(r), in.Parent, time.Now())
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, api.RolledBack{Head: releases.HeadAnswer(head), RenewedSecrets: renewed})
	return nil
}

func (a *releasesAPI) pause(w http.ResponseWriter, r *http.Request) error {
	var in api.RolloutChange
	if err := readJSON(w, r, &in, true); err != nil {
		return err
	}
	return answerHead(w)(a.catalog.Pause(r.PathValue("app"), caller(r), in.Parent, time.Now()))
}

func (a *releasesAPI) resume(w http.ResponseWriter, r *http.Request) error {
	var in api.RolloutChange
	if err := readJSON(w, r, &in, true); err != nil {
		return err
	}
	return answerHead(w)(a.catalog.Resume(r.PathValue("app"), caller(r), in.Parent, time.Now()))
}

func (a *releasesAPI) promote(w http.ResponseWriter, r *http.Request) error {
	var in api.Promotion
	if err := readJSON(w, r, &in, true); err != nil {
		return err
	}
	app := r.PathValue("app")
	return answerHead(w)(a.catalog.Promote(app, in.Steps, in.All, caller(r), in.Parent, time.Now()))
}

// answerHead returns what answers with a head, or returns the error.
func answerHead(w http.ResponseWriter) func(*rollout.Head, error) error {
	return func(h *rollout.Head, err error) error {
		if err == nil {
			answer(w, http.StatusOK, releases.HeadAnswer(h))
		}
		return err
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
