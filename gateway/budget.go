package gateway

import (
	"net/http"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/machine"
)

func (g *appsAPI) getAppBudget(w http.ResponseWriter, r *http.Request) error {
	a, err := g.catalog.App(r.PathValue("app"))
	if err != nil {
		return err
	}
	b := a.Budget
	answer(w, http.StatusOK, api.AppBudget{Budget: machine.Scheduling{EvictionBudget: b}.Budget(), Default: b == nil})
	return nil
}

func (g *appsAPI) setAppBudget(w http.ResponseWriter, r *http.Request) error {
	var in api.AppBudget
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	b := &in.Budget
	if in.Default {
		b = nil
	}
	if err := g.catalog.SetEvictionBudget(r.PathValue("app"), b); err != nil {
		return err
	}
	return g.getAppBudget(w, r)
}
