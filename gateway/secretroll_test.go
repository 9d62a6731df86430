package gateway

import (
	"slices"
	"strings"
	"testing"

	"github.com/soukhq/souk/api"
)

// TestSettingSecretsReleasesTheGroupsReadingThem sets secrets of a service, so that a release is made of the groups that read them; no answer and no log
// tells a value.
func TestSettingSecretsReleasesTheGroupsReadingThem(t *testing.T) {
	s := newShop(t).open()
	const at, value = "/v1/souk/apps/a", "hush-hush"
	said := ""
	post := func(code int, path, body string) reply {
		r := s.want(code, "POST", at+path, body)
		said += r.raw
		return r
	}
	var x api.SecretsRolled
	r := post(200, "/secrets", `{"values":{"A":"`+value+`0"}}`)
	if r.into(t, &x); x.Head != nil || x.Version != 1 || len(x.Secrets) != 1 || len(x.Groups) != 0 {
		t.Fatalf("of no service: %+v", x)
	}
	post(201, "/releases", `{"groups":[{"name":"web","config":{"image":"demo:1"}},`+
		`{"name":"job","config":{"image":"demo:1","processes":[{"ignore_app_secrets":true}]}}]}`)
	var p api.ReleasePlan
	r = post(200, "/plan-secrets", `{"values":{"A":"`+value+`1"}}`)
	if r.into(t, &p); len(p.Groups) != 2 || p.Fits != api.FitsNow {
		t.Fatalf("%+v", p)
	}
	if service, _ := s.catalog.Services.Service("a"); service.Head.Number != 1 {
		t.Fatal("a plan was carried out")
	}
	r = post(200, "/secrets", `{"values":{"A":"`+value+`1"}}`)
	if r.into(t, &x); x.Head == nil || x.Head.Why != "secrets" || !slices.Equal(x.Groups, []string{"web"}) {
		t.Fatalf("%+v", x)
	}
	r = post(200, "/secrets", `{"values":{"A":"`+value+`1"}}`)
	x = api.SecretsRolled{}
	if r.into(t, &x); x.Head != nil {
		t.Fatalf("the same value makes a release: %+v", x)
	}
	r = post(409, "/secrets", `{"values":{"A":"`+value+`2"},"parent":"other"}`)
	if r.failure(t).Souk.Code != "head_moved" {
		t.Error(r.raw)
	}
	post(200, "/secrets", `{}`)
	post(412, "/releases", `{"groups":[{"name":"web","config":{"image":"demo:1",`+
		`"processes":[{"secrets":[{"env_var":"NO"}]}]}}]}`)
	for _, path := range []string{"/service", "/releases"} {
		said += s.want(200, "GET", at+path, nil).raw
	}
	service, _ := s.catalog.Services.Service("a")
	said += s.want(200, "GET", at+"/releases/"+service.Head.Release, nil).raw
	if strings.Contains(said, value) || strings.Contains(s.log.String(), value) {
		t.Error("a value is told")
	}
}
