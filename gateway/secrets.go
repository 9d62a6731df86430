package gateway

import (
	"net/http"
	"strconv"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/store/catalog"
)

func appSecrets(of []catalog.Secret) []api.Secret {
	out := make([]api.Secret, len(of))
	for i, s := range of {
		out[i] = api.Secret(s)
	}
	return out
}

// secretsAPI serves the secrets of apps. It never returns a value.
type secretsAPI struct {
	catalog secretCatalog
}

// secretCatalog is what secretsAPI needs of the catalog.
type secretCatalog interface {
	SecretsOf(app string) ([]catalog.Secret, uint64, error)
	SetSecrets(app string, values map[string]*string) (uint64, []catalog.Secret, error)
	SecretsReach(app string, version uint64) error
}

func (a *secretsAPI) opHandlers() handlers {
	return handlers{
		"GET /v1/apps/{app}/secrets":           a.listSecrets,
		"POST /v1/apps/{app}/secrets":          a.updateSecrets,
		"GET /v1/apps/{app}/secrets/{name}":    a.getSecret,
		"POST /v1/apps/{app}/secrets/{name}":   a.setSecret,
		"DELETE /v1/apps/{app}/secrets/{name}": a.deleteSecret,
	}
}

// readableSecrets makes the checks of every read of secrets, and returns the list.
func (a *secretsAPI) readableSecrets(r *http.Request) (api.SecretList, error) {
	app := r.PathValue("app")
	show, err := queryBool(r, "show_secrets")
	if err != nil {
		return api.SecretList{}, err
	}
	list, version, err := a.catalog.SecretsOf(app)
	switch {
	case err != nil:
		return api.SecretList{}, err
	case show:
		return api.SecretList{}, fault.New(fault.Denied, codeShowSecrets,
			"souk never shows the values of secrets, it only gives them to machines; ask without show_secrets")
	}
	if s := r.URL.Query().Get("version"); s != "" {
		want, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			return api.SecretList{}, fault.New(fault.Invalid, codeQuery,
				"version=%q is not a whole number", clipText(s, 40))
		}
		if err := a.catalog.SecretsReach(app, want); err != nil {
			return api.SecretList{}, err
		}
	}
	return api.SecretList{Secrets: appSecrets(list), Version: version}, nil
}

func (a *secretsAPI) listSecrets(w http.ResponseWriter, r *http.Request) error {
	list, err := a.readableSecrets(r)
	if err != nil {
		return err
	}
	answerJSON(w, http.StatusOK, list)
	return nil
}

func (a *secretsAPI) getSecret(w http.ResponseWriter, r *http.Request) error {
	list, err := a.readableSecrets(r)
	if err != nil {
		return err
	}
	for _, s := range list.Secrets {
		if s.Name == r.PathValue("name") {
			answerJSON(w, http.StatusOK, s)
			return nil
		}
	}
	return noSecret()
}

func noSecret() error { return fault.New(fault.NotFound, codeSecretNotFound, "secret not found") }

func (a *secretsAPI) updateSecrets(w http.ResponseWriter, r *http.Request) error {
	var in api.SecretValues
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	if len(in.Values) == 0 {
		return fault.New(fault.Invalid, codeValues, "no secret was named; send {\"values\": {\"NAME\": \"value\"}}")
	}
	version, set, err := a.catalog.SetSecrets(r.PathValue("app"), in.Values)
	if err != nil {
		return err
	}
	answerJSON(w, http.StatusOK, api.SecretList{Secrets: appSecrets(set), Version: version})
	return nil
}

func (a *secretsAPI) setSecret(w http.ResponseWriter, r *http.Request) error {
	var in api.SetValue
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	if in.Value == nil {
		return fault.New(fault.Invalid, codeValue, "no value was sent; send {\"value\": \"...\"}")
	}
	version, set, err := a.catalog.SetSecrets(r.PathValue("app"), map[string]*string{r.PathValue("name"): in.Value})
	if err != nil {
		return err
	}
	answerJSON(w, http.StatusOK, api.SecretSet{Secret: api.Secret(set[0]), Version: version})
	return nil
}

func (a *secretsAPI) deleteSecret(w http.ResponseWriter, r *http.Request) error {
	app, name := r.PathValue("app"), r.PathValue("name")
	list, _, err := a.catalog.SecretsOf(app)
	if err != nil {
		return err
	}
	for _, s := range list {
		if s.Name == name {
			version, _, err := a.catalog.SetSecrets(app, map[string]*string{name: nil})
			if err != nil {
				return err
			}
			answerJSON(w, http.StatusOK, api.SecretVersion{Version: version})
			return nil
		}
	}
	return noSecret()
}
