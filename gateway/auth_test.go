package gateway

import (
	"strings"
	"testing"
)

func TestRequestWithoutTokenIsUnauthorized(t *testing.T) {
	s := newShop(t).open()
	for _, c := range []struct {
		name    string
		headers []string
		code    int
	}{
		{"none", nil, 401},
		{"empty", []string{"Authorization: "}, 401},
		{"scheme only", []string{"Authorization: Bearer"}, 401},
		{"empty token", []string{"Authorization: Bearer "}, 401},
		{"wrong", []string{"Authorization: Bearer wrong"}, 401},
		{"a prefix", []string{"Authorization: Bearer " + testToken[:len(testToken)-1]}, 401},
		{"longer", []string{"Authorization: Bearer " + testToken + "x"}, 401},
		{"another case", []string{"Authorization: Bearer " + strings.ToUpper(testToken)}, 401},
		{"basic", []string{"Authorization: Basic " + testToken}, 401},
		{"in the query only", nil, 401},
		{"bearer", []string{"Authorization: Bearer " + testToken}, 200},
		{"lower case scheme", []string{"Authorization: bearer " + testToken}, 200},
		{"FlyV1", []string{"Authorization: FlyV1 " + testToken}, 200},
		{"one of several", []string{"Authorization: FlyV1 fm2_a, fm2_b," + testToken}, 200},
		{"several headers", []string{"Authorization: Bearer wrong", "Authorization: Bearer " + testToken}, 200},
		{"too many", []string{"Authorization: Bearer " + strings.Repeat("x,", maxTokens) + testToken}, 401},
	} {
		for _, path := range []string{"/v1/apps", "/v1/souk/workers", "/metrics", "/v1/souk/openapi.json"} {
			if c.name == "in the query only" {
				path += "?token=" + testToken + "&access_token=" + testToken
			}
			if r := s.send("GET", path, nil, c.headers...); r.code != c.code {
				t.Errorf("%s %s: %d, want %d", c.name, path, r.code, c.code)
			} else if c.code == 401 && r.header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s: no WWW-Authenticate", c.name)
			}
		}
	}
	for _, path := range []string{"/", "/v1/apps/a", "/nothing", "/livez/x", "/v1//apps", "/v1/apps/../../livez",
		"/livez/../v1/apps"} {
		if r := s.send("GET", path, nil); r.code != 401 {
			t.Errorf("%s without a token: %d, want 401", path, r.code)
		}
	}
	for _, path := range []string{"/livez", "/readyz"} {
		if r := s.send("GET", path, nil); r.code != 200 || r.raw != "ok\n" {
			t.Errorf("%s without a token: %d %q", path, r.code, r.raw)
		}
	}
	s.workers[0].set(func() { s.workers[0].down = unavailable() })
	if r := s.send("GET", "/readyz", nil); r.code != 503 {
		t.Errorf("/readyz without a worker: %d", r.code)
	}
}

func TestCrossOriginRequestsAreRefused(t *testing.T) {
	s := newShop(t)
	body := `{"name":"b"}`
	for _, headers := range [][]string{{"Origin: https://evil.example"}, {"Sec-Fetch-Site: cross-site"},
		{"Sec-Fetch-Site: same-site"}, {"Origin: null"}} {
		if r := s.do("POST", "/v1/apps", body, headers...); r.code != 403 {
			t.Errorf("%v: %d, want 403", headers, r.code)
		}
		if r := s.send("POST", "/v1/apps", body, headers...); r.code != 401 {
			t.Errorf("%v without a token: %d, want 401", headers, r.code)
		}
	}
	if r := s.do("OPTIONS", "/v1/apps", nil, "Origin: https://evil.example",
		"Access-Control-Request-Method: POST"); r.code != 405 || r.header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("a preflight is answered %d %v", r.code, r.header)
	}
	s.want(201, "POST", "/v1/apps", body, "Sec-Fetch-Site: same-origin")
}

func TestLogHoldsNoSecrets(t *testing.T) {
	s := newShop(t).open()
	s.want(200, "POST", "/v1/apps/a/secrets/PEPPER", `{"value":"hush-hush"}`)
	s.launch(`{"config":{"image":"demo:1","env":{"A":"hush-hush"}}}`)
	s.do("GET", "/v1/apps/a?token=hush-hush", nil, "Cookie: a=hush-hush")
	s.send("GET", "/v1/apps", nil, "Authorization: Bearer hush-hush")
	log := s.log.String()
	if strings.Contains(log, "hush-hush") || strings.Contains(log, testToken) {
		t.Errorf("a secret is in the log:\n%s", log)
	}
	for _, want := range []string{`"route":"/v1/apps/{app}/machines"`, `"code":401`, `"app":"a"`} {
		if !strings.Contains(log, want) {
			t.Errorf("the log lacks %s:\n%s", want, log)
		}
	}
}
