package gateway

import (
	"net/http"
	"time"

	"github.com/soukhq/souk/api"
)

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
		h := headAnswer(x.Head)
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
	app := r.PathValue("app")
	s, groups, err := a.catalog.ForeseeSecrets(app, in.Values, caller(r), in.Parent, time.Now())
	if err != nil {
		return err
	}
	if len(groups) == 0 {
		answer(w, http.StatusOK, api.ReleasePlan{App: app, Fits: api.FitsNow, Help: []api.PlanHelp{},
			Groups: []api.PlannedGroup{}})
		return nil
	}
	answer(w, http.StatusOK, a.try(r.Context(), &s, nil).answer(app))
	return nil
}
