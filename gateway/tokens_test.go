package gateway

import (
	"regexp"
	"testing"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/fault"
)

// roleTokens are tokens that are called as their roles are.
type roleTokens struct{}

func (roleTokens) Judge(secret string) (api.Token, error) {
	switch secret {
	case testToken:
		secret = string(api.RoleAdmin)
	case "gone":
		return api.Token{}, fault.New(fault.Denied, "token_revoked", "the token is let in no more")
	case "unknown":
		return api.Token{}, fault.New(fault.Denied, "unauthenticated", "the token is not valid here")
	}
	return api.Token{Name: "t", Role: api.Role(secret)}, nil
}

func (roleTokens) Digest(string) (string, error) { return "d", nil }

func (roleTokens) List() []api.Token { return nil }

func (roleTokens) Make(by api.Token, in api.NewToken) (api.MadeToken, error) {
	return api.MadeToken{Token: api.Token{ID: "1", Name: in.Name, By: by.Name, State: api.TokenGood}, Secret: "s"}, nil
}

func (roleTokens) Revoke(string, string, string) ([]api.Token, error) { return nil, nil }

// TestEveryRouteAsksForTheRole sends every request with every role: who may not is refused before anything is done, and
// who may is not.
func TestEveryRouteAsksForTheRole(t *testing.T) {
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
