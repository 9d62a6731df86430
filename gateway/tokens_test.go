package gateway

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
)

// roleTokens are tokens that are called as their roles are.
type roleTokens struct{}

func (roleTokens) Judge(secret string) (api.Token, error) {
	switch secret {
	case testToken:
		secret = string(api.RoleAdmin)
	case "gone":
		return api.Token{}, fault.New(fault.Denied, "token_revoked", "the token is no longer accepted")
	case "unknown":
		return api.Token{}, fault.New(fault.Denied, "unauthenticated", "the token is not valid here")
	}
	secret, user, _ := strings.Cut(secret, "+") // ROLE@APP+USER
	role, app, _ := strings.Cut(secret, "@")
	t := api.Token{Name: "t", Role: api.Role(role), App: app}
	if user != "" {
		t.UnixUser = &cluster.UnixUser{Name: user, UID: uint32(1000 + len(user))}
	}
	return t, nil
}

func (roleTokens) Digest(string) (string, error) { return "d", nil }

func (roleTokens) EndingWith(id cluster.WorkerID) []api.Token {
	if id != "w2" {
		return nil
	}
	return []api.Token{{ID: "1", Name: "ci", Role: api.RoleOperator, App: "a", Member: id, State: api.TokenGood}}
}

func (roleTokens) List() []api.Token { return nil }

func (roleTokens) Make(by api.Token, in api.NewToken) (api.MadeToken, error) {
	return api.MadeToken{Token: api.Token{ID: "1", Name: in.Name, By: by.Name, State: api.TokenGood}, Secret: "s"}, nil
}

func (roleTokens) Revoke(string, string, string) ([]api.Token, error) { return nil, nil }

// TestEveryRouteEnforcesItsRole: each request is sent with each role: without the right it is refused before anything
// is done, with it it is not.
func TestEveryRouteEnforcesItsRole(t *testing.T) {
	s := newShop(t).open()
	s.with(func(o *Options) { o.Tokens = roleTokens{} })
	for _, rt := range api.Routes() {
		if rt.Op == api.StreamEvents { // it has no end
			continue
		}
		path := regexp.MustCompile(`{.*?}`).ReplaceAllString(rt.Op.Pattern(), "x")
		for _, role := range api.Roles() {
			r := s.send(rt.Op.Method(), path, nil, "Authorization: Bearer "+string(role))
			refused := r.code == 403 && r.failure(t).Souk.Code == "role"
			if refused == role.May(rt) {
				t.Errorf("%s as %s: %d %s", rt.Op, role, r.code, r.raw)
			}
		}
	}
	for role, code := range map[api.Role]int{api.RoleViewer: 403, api.RoleOperator: 404} { // a program waits for it
		r := s.send("GET", "/v1/souk/apps/x/machines/x/logs?hold=true", nil, "Authorization: Bearer "+string(role))
		if r.code != code {
			t.Errorf("hold as %s: %d %s", role, r.code, r.raw)
		}
	}
	if r := s.send("GET", "/v1/apps", nil, "Authorization: Bearer gone"); r.code != 401 ||
		r.failure(t).Souk.Code != "token_revoked" {
		t.Errorf("%d %s", r.code, r.raw)
	}
	for _, several := range []string{"unknown,gone", "gone,unknown"} {
		r := s.send("GET", "/v1/apps", nil, "Authorization: Bearer "+several)
		if r.failure(t).Souk.Code != "token_revoked" {
			t.Errorf("%s: %d %s", several, r.code, r.raw)
		}
	}
	if r := s.send("POST", "/v1/apps", `{"name":"b"}`, "Authorization: Bearer viewer,operator"); r.code != 201 {
		t.Errorf("the right of one of several tokens does not count: %d %s", r.code, r.raw)
	}
	if r := s.send("POST", "/v1/souk/tokens", `{"name":"ci"}`, "Authorization: Bearer "+testToken); r.code != 201 {
		t.Errorf("%d %s", r.code, r.raw)
	}
	s.with(func(o *Options) { o.Tokens = nil })
	if r := s.send("GET", "/v1/souk/tokens", nil, "Authorization: Bearer "+testToken); r.code != 412 {
		t.Errorf("%d %s", r.code, r.raw)
	}
}

// TestAppTokenReachesNoOtherApp sends every request with a token of app a, about app b, about no app, and about a with
// what is b's: nothing of b is told or changed.
func TestAppTokenReachesNoOtherApp(t *testing.T) {
	s := newShop(t).open()
	s.want(201, "POST", "/v1/apps", `{"name":"b"}`)
	s.want(200, "POST", "/v1/apps/b/secrets/KEY", `{"value":"of b"}`)
	id := regexp.MustCompile(`"id":"([0-9a-f]+)"`)
	m := id.FindStringSubmatch(s.want(200, "POST", "/v1/apps/b/machines", hostLaunch).raw)[1]
	v := s.want(200, "POST", "/v1/apps/b/volumes", `{"name":"data","size_gb":1}`)
	volume := regexp.MustCompile(`vol_[0-9a-z]+`).FindString(v.raw)
	s.with(func(o *Options) { o.Tokens = roleTokens{} })
	before := s.want(200, "GET", "/v1/apps/b/machines/"+m, nil).raw
	values := strings.NewReplacer("{id}", m, "{volume}", volume, "{name}", "KEY", "{port}", "80")
	rest := regexp.MustCompile(`{.*?}`)
	for _, rt := range api.Routes() {
		path := func(app string) string {
			return rest.ReplaceAllString(values.Replace(strings.Replace(rt.Op.Pattern(), "{app}", app, 1)), "x")
		}
		for _, role := range []api.Role{api.RoleOperator, api.RoleViewer} {
			send := func(path string) (int, string) {
				r := s.send(rt.Op.Method(), path, nil, fmt.Sprintf("Authorization: Bearer %s@a", role))
				if r.code == 403 {
					return r.code, string(r.failure(t).Souk.Code)
				}
				return r.code, r.raw
			}
			for _, query := range []string{"", "?app=b", "?app=a&app=b", "?app=b&app=a"} {
				if code, told := send(path("b") + query); code != 403 && !rt.OfNone() && !rt.OfJob() {
					t.Errorf("%s%s as %s of a: %d %s", rt.Op, query, role, code, told)
				}
			}
			its := strings.Contains(rt.Op.Pattern(), "{id}") || strings.Contains(rt.Op.Pattern(), "{volume}")
			if code, told := send(path("a")); its && code < 300 || strings.Contains(told, m) && code < 300 {
				t.Errorf("%s in a, of what is b's, as %s of a: %d %s", rt.Op, role, code, told)
			}
		}
	}
	for _, in := range []string{`{"name":"copy","size_gb":1,"source_volume_id":"` + volume + `"}`} {
		if r := s.send("POST", "/v1/apps/a/volumes", in, "Authorization: Bearer operator@a"); r.code < 400 {
			t.Errorf("a copy of the volume of b: %d %s", r.code, r.raw)
		}
	}
	two := "Authorization: Bearer operator@a,viewer"
	if r := s.send("POST", "/v1/apps/b/secrets/KEY", `{"value":"x"}`, two); r.code != 403 {
		t.Errorf("two tokens may together what neither may: %d %s", r.code, r.raw)
	}
	if after := s.want(200, "GET", "/v1/apps/b/machines/"+m, nil).raw; after != before {
		t.Errorf("the machine of b was\n%s\nand is\n%s", before, after)
	}
	// Of its own app it may what its role may, as it did above: it destroyed it.
	s.want(201, "POST", "/v1/apps", `{"name":"a"}`)
	for path, code := range map[string]int{"/v1/apps/a": 200, "/v1/apps/a/machines": 200,
		"/v1/souk/machines?app=a": 200,
		"/v1/souk/version":        200, "/v1/souk/doors": 200, "/v1/souk/machines": 403, "/v1/apps": 403} {
		if r := s.send("GET", path, nil, "Authorization: Bearer operator@a"); r.code != code {
			t.Errorf("GET %s as operator of a: %d %s", path, r.code, r.raw)
		}
	}
	admins := "Authorization: Bearer " + testToken
	if r := s.send("POST", "/v1/souk/tokens", `{"name":"ci","app":"nope"}`, admins); r.code != 404 {
		t.Errorf("a token of an app that is not there: %d %s", r.code, r.raw)
	}
}
