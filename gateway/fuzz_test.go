package gateway

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
)

// sound wants of any answer that it is JSON, with a code that is no fault of souk's own.
func sound(t *testing.T, s *shop, method, path, body string) {
	t.Helper()
	r := s.do(method, path, body)
	if r.code >= 500 && r.code != 501 {
		t.Errorf("%s %q: %d %s", method, path, r.code, r.raw)
	}
	if r.code >= 400 {
		if f := r.failure(t); f.Error == "" || strings.ContainsAny(f.Error, "\x00") {
			t.Errorf("%s %q: the sentence is %q", method, path, f.Error)
		}
	}
}

func FuzzLaunchKeepsTheListValid(f *testing.F) {
	for _, c := range badRequests() {
		if strings.HasSuffix(c.request, "/machines") {
			f.Add(c.body)
		}
	}
	f.Add(hostLaunch)
	f.Add(`{"name":"m","region":"us,any","lease_ttl":5,"config":{"image":"a","services":[{"internal_port":80}],"schedule":"daily"}}`)
	f.Fuzz(func(t *testing.T, body string) {
		s := newShop(t).open()
		sound(t, s, "POST", "/v1/apps/a/machines", body)
		r := s.want(200, "GET", "/v1/apps/a/machines", nil)
		if !json.Valid([]byte(r.raw)) {
			t.Errorf("the list is %q", r.raw)
		}
	})
}

func FuzzQueriesNeverPanic(f *testing.F) {
	for _, c := range badRequests() {
		if _, query, ok := strings.Cut(c.request, "?"); ok {
			f.Add(query, "x")
		}
	}
	f.Add("region=%00&metadata.%ff=1&summary=1", "%2e%2e%2f")
	f.Fuzz(func(t *testing.T, query, name string) {
		if strings.ContainsAny(query, " #\r\n\t") || strings.Contains(query, "timeout") {
			return // no request line
		}
		if _, err := url.ParseRequestURI("/?" + query); err != nil {
			return
		}
		s := newShop(t).open()
		m := s.launch(`{"name":"m","config":{"image":"demo:1"}}`)
		for _, path := range []string{"/v1/apps", "/v1/apps/a/machines", "/v1/apps/a/machines/" + m.ID + "/events",
			"/v1/apps/a/machines/" + m.ID + "/ps",
			"/v1/apps/a/secrets", "/v1/platform/regions", "/v1/orgs/personal/machines",
			"/v1/souk/apps/a/machines/m/files", "/v1/apps/a/machines/" + url.PathEscape(name)} {
			sound(t, s, "GET", path+"?"+query, "")
		}
		sound(t, s, "POST", "/v1/apps/a/machines/"+m.ID+"/lease?"+query, "")
		sound(t, s, "POST", "/v1/apps/a/machines/"+m.ID+"/metadata/"+url.PathEscape(name), `{"value":"v"}`)
	})
}

func FuzzShellWordsInventsNoText(f *testing.F) {
	for _, s := range []string{`a 'b c' "d"`, `\`, `'`, `"\"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		words, err := shellWords(line)
		if err == nil && len(strings.Join(words, "")) > len(line)*3 {
			t.Errorf("%q became %q", line, words)
		}
	})
}
