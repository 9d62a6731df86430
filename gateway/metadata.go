package gateway

import (
	"net/http"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/lifecycle"
	"github.com/soukhq/souk/machine"
)

// metadataAPI serves the metadata of machines.
type metadataAPI struct {
	directory *directory
}

// handlers returns what it serves.
func (g *metadataAPI) handlers() handlers {
	return handlers{
		"GET /v1/apps/{app}/machines/{id}/metadata":          g.getMetadata,
		"PUT /v1/apps/{app}/machines/{id}/metadata":          g.putMetadata,
		"PATCH /v1/apps/{app}/machines/{id}/metadata":        g.patchMetadata,
		"POST /v1/apps/{app}/machines/{id}/metadata/{key}":   g.setMetadataKey,
		"DELETE /v1/apps/{app}/machines/{id}/metadata/{key}": g.deleteMetadataKey,
	}
}

func (g *metadataAPI) getMetadata(w http.ResponseWriter, r *http.Request) error {
	f, err := g.directory.find(r.Context(), r.PathValue("app"), r.PathValue("id"))
	if err != nil {
		return err
	}
	out := map[string]string{}
	if c := f.machine.Config; c != nil && c.Metadata != nil {
		out = c.Metadata
	}
	answer(w, http.StatusOK, out)
	return nil
}

func (g *metadataAPI) setMetadataKey(w http.ResponseWriter, r *http.Request) error {
	var in api.SetValue
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	if in.Value == nil {
		return fault.New(fault.Invalid, "value", "no value was sent; send {\"value\": \"...\"}, or DELETE the key")
	}
	return g.changeMetadata(w, r, map[string]*string{r.PathValue("key"): in.Value}, false)
}

func (g *metadataAPI) deleteMetadataKey(w http.ResponseWriter, r *http.Request) error {
	return g.changeMetadata(w, r, map[string]*string{r.PathValue("key"): nil}, false)
}

func (g *metadataAPI) patchMetadata(w http.ResponseWriter, r *http.Request) error {
	var in map[string]*string
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	return g.changeMetadata(w, r, in, false)
}

func (g *metadataAPI) putMetadata(w http.ResponseWriter, r *http.Request) error {
	var in map[string]*string
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	for k, v := range in {
		if v == nil {
			return fault.New(fault.Invalid, "value", "the key %q has no value; in a whole map every key has one", clip(k, 80))
		}
	}
	return g.changeMetadata(w, r, in, true)
}

func (g *metadataAPI) changeMetadata(w http.ResponseWriter, r *http.Request, values map[string]*string, whole bool) error {
	for k, v := range values {
		value := ""
		set(&value, v)
		if err := machine.CheckMetadata(k, value); err != nil {
			return err
		}
	}
	c := command(r, lifecycle.SetMetadata)
	c.Metadata, c.ReplaceMetadata = values, whole
	if _, err := g.directory.do(r, c); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
