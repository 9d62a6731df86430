package gateway

import (
	"net/http"
	"strconv"
	"time"

	"github.com/soukhq/souk/catalog"
	"github.com/soukhq/souk/fault"
)

// AppSecret tells of a secret all but its value.
type AppSecret struct {
	Name      string    `json:"name"`
	Digest    string    `json:"digest"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

func appSecrets(of []catalog.Secret) []AppSecret {
	out := make([]AppSecret, len(of))
	for i, s := range of {
		out[i] = AppSecret(s)
	}
	return out
}

type secretList struct {
	Secrets []AppSecret `json:"secrets"`
	Version uint64      `json:"version"`
}

type secretSet struct {
	AppSecret
	Version uint64 `json:"version"`
}

type secretVersion struct {
	Version uint64 `json:"version"`
}

type secretsBody struct {
	Values map[string]*string `json:"values"`
}

// secretsReach refuses a version of an app's secrets that is not there yet.
func (g *Gateway) secretsReach(app string, version uint64) error {
	_, now, err := g.catalog.Secrets(app)
	if err == nil && version > now {
		err = fault.New(fault.Precondition, "secrets_version", "failed_precondition: the app's secrets are at version %d, and version %d is wanted; set them first", now, version)
	}
	return err
}

// readableSecrets serves what every read of secrets must check.
func (g *Gateway) readableSecrets(r *http.Request) (secretList, error) {
	app := r.PathValue("app")
	show, err := queryBool(r, "show_secrets")
	if err != nil {
		return secretList{}, err
	}
	list, version, err := g.catalog.Secrets(app)
	switch {
	case err != nil:
		return secretList{}, err
	case show:
		return secretList{}, fault.New(fault.Denied, "show_secrets", "the values of secrets are never told, only given to machines; ask without show_secrets")
	}
	if s := r.URL.Query().Get("version"); s != "" {
		want, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			return secretList{}, fault.New(fault.Invalid, "query", "version=%q is not a whole number", clip(s, 40))
		}
		if err := g.secretsReach(app, want); err != nil {
			return secretList{}, err
		}
	}
	return secretList{appSecrets(list), version}, nil
}

func (g *Gateway) listSecrets(w http.ResponseWriter, r *http.Request) error {
	list, err := g.readableSecrets(r)
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, list)
	return nil
}

func (g *Gateway) getSecret(w http.ResponseWriter, r *http.Request) error {
	list, err := g.readableSecrets(r)
	if err != nil {
		return err
	}
	for _, s := range list.Secrets {
		if s.Name == r.PathValue("name") {
			answer(w, http.StatusOK, s)
			return nil
		}
	}
	return noSecret()
}

func noSecret() error { return fault.New(fault.NotFound, "secret_not_found", "secret not found") }

func (g *Gateway) updateSecrets(w http.ResponseWriter, r *http.Request) error {
	var in secretsBody
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	if len(in.Values) == 0 {
		return fault.New(fault.Invalid, "values", "no secret was named; send {\"values\": {\"NAME\": \"value\"}}")
	}
	version, set, err := g.catalog.SetSecrets(r.PathValue("app"), in.Values)
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, secretList{appSecrets(set), version})
	return nil
}

func (g *Gateway) setSecret(w http.ResponseWriter, r *http.Request) error {
	var in valueBody
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	if in.Value == nil {
		return fault.New(fault.Invalid, "value", "no value was sent; send {\"value\": \"...\"}")
	}
	version, set, err := g.catalog.SetSecrets(r.PathValue("app"), map[string]*string{r.PathValue("name"): in.Value})
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, secretSet{AppSecret(set[0]), version})
	return nil
}

func (g *Gateway) deleteSecret(w http.ResponseWriter, r *http.Request) error {
	app, name := r.PathValue("app"), r.PathValue("name")
	list, _, err := g.catalog.Secrets(app)
	if err != nil {
		return err
	}
	for _, s := range list {
		if s.Name == name {
			version, _, err := g.catalog.SetSecrets(app, map[string]*string{name: nil})
			if err != nil {
				return err
			}
			answer(w, http.StatusOK, secretVersion{version})
			return nil
		}
	}
	return noSecret()
}
