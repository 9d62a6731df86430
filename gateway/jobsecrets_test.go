package gateway

import (
	"strings"
	"testing"

	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
)

// TestJobNamesSecretsThatItsAppHas: others are refused, and the gateway alone says which version of them it knows.
func TestJobNamesSecretsThatItsAppHas(t *testing.T) {
	s, _ := jobShop(t)
	s.open()
	const body = `{"app":"letters","command":["/bin/true"],"secrets":[{"name":"KEY","env_var":"K"}],"secrets_version":99}`
	if r := s.do("POST", "/v1/souk/jobs", body); r.code != 404 || r.failure(t).Souk.Code != fault.CodeAppNotFound {
		t.Errorf("without the app: %d %s", r.code, r.raw)
	}
	s.want(201, "POST", "/v1/apps", `{"name":"letters"}`)
	if r := s.do("POST", "/v1/souk/jobs", body); r.failure(t).Souk.Code != fault.CodeSecret {
		t.Errorf("without the secret: %d %s", r.code, r.raw)
	}
	s.want(200, "POST", "/v1/apps/letters/secrets/KEY", `{"value":"hush-hush"}`)
	var j jobs.Job
	r := s.want(201, "POST", "/v1/souk/jobs", body)
	if r.into(t, &j); j.Spec.SecretsVersion != 1 || len(j.Spec.Secrets) != 1 || strings.Contains(r.raw, "hush") {
		t.Errorf("got %s", r.raw)
	}
}
