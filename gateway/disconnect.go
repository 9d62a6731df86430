package gateway

import (
	"cmp"
	"net/http"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/catalog"
)

func (g *appsAPI) getDisconnect(w http.ResponseWriter, r *http.Request) error {
	a, err := g.catalog.App(r.PathValue("app"))
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, api.AppDisconnect{Policy: cmp.Or(a.Disconnect, catalog.DisconnectNever)})
	return nil
}

func (g *appsAPI) setDisconnect(w http.ResponseWriter, r *http.Request) error {
	var in api.AppDisconnect
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	if err := g.catalog.SetDisconnect(r.PathValue("app"), in.Policy); err != nil {
		return err
	}
	return g.getDisconnect(w, r)
}
