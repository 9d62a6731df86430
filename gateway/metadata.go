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
func (a *metadataAPI) handlers() handlers {
	return handlers{
		"GET /v1/apps/{app}/machines/{id}/metadata":          a.getMetadata,
		"PUT /v1/apps/{app}/machines/{id}/metadata":          a.putMetadata,
		"PATCH /v1/apps/{app}/machines/{id}/metadata":        a.patchMetadata,
		"POST /v1/apps/{app}/machines/{id}/metadata/{key}":   a.setMetadataKey,
		"DELETE /v1/apps/{app}/machines/{id}/metadata/{key}": a.deleteMetadataKey,
	}
}

func (a *metadataAPI) getMetadata(w http.ResponseWriter, r *http.Request) error {
	f, err := a.directory.find(r.Context(), r.PathValue("app"), r.PathValue("id"))
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

func (a *metadataAPI) setMetadataKey(w http.ResponseWriter, r *http.Request) error {
	var in api.SetValue
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	if in.Value == nil {
		return fault.New(fault.Invalid, "value", "no value was sent; send {\"value\": \"...\"}, or DELETE the key")
	}
	return a.changeMetadata(w, r, map[string]*string{r.PathValue("key"): in.Value}, false)
}

func (a *metadataAPI) deleteMetadataKey(w http.ResponseWriter, r *http.Request) error {
	return a.changeMetadata(w, r, map[string]*string{r.PathValue("key"): nil}, false)
}

func (a *metadataAPI) patchMetadata(w http.ResponseWriter, r *http.Request) error {
	var in map[string]*string
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	return a.changeMetadata(w, r, in, false)
}

func (a *metadataAPI) putMetadata(w http.ResponseWriter, r *http.Request) error {
	var in map[string]*string
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	for k, v := range in {
		if v == nil {
			return fault.New(fault.Invalid, "value", "the key %q has no value; in a whole map every key has one",
				clip(k, 80))
		}
	}
	return a.changeMetadata(w, r, in, true)
}

func (a *metadataAPI) changeMetadata(w http.ResponseWriter, r *http.Request, values map[string]*string,
	whole bool) error {
	for k, v := range values {
		value := ""
		set(&value, v)
		if err := machine.CheckMetadata(k, value); err != nil {
			return err
		}
	}
	c := command(r, lifecycle.SetMetadata)
	c.Metadata, c.ReplaceMetadata = values, whole
	if _, err := a.directory.do(r, c); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
