package conformance_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	fly "github.com/superfly/fly-go"
	"github.com/superfly/fly-go/flaps"
)

// call sends a request that the client does not know, and wants a code.
func (s *market) call(t *testing.T, code int, method, path, body string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.url+"/v1"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != code {
		t.Errorf("%s %s: %d %s, want %d", method, path, resp.StatusCode, raw, code)
	}
	return string(raw)
}

// TestRoutesWithoutClientCallsWork goes through what the client has no call for, on a whole souk.
func TestRoutesWithoutClientCallsWork(t *testing.T) { each(t, beyondTheClient) }

func beyondTheClient(t *testing.T, u subject) {
	s := startSouk(t, u, "--workers", "2")
	if _, err := s.CreateApp(t.Context(), flaps.CreateAppRequest{Name: "a", Org: "acme"}); err != nil {
		t.Fatal(err)
	}
	c := s.script("echo to-the-log; trap 'exit 0' INT TERM; while :; do /bin/sleep 0.1; done")
	m := s.launch(t, "a", fly.LaunchMachineInput{Name: "m", Config: c})
	at := "/apps/a/machines/" + m.ID

	mustContain(t, s.call(t, 200, "GET", at+"/events?limit=1", ""), `"type":"start"`)
	mustContain(t, s.call(t, 200, "GET", at+"/versions", ""), m.InstanceID, `"user_config"`)
	mustContain(t, s.call(t, 200, "GET", at+"/ps?sort_by=pid&order=desc", ""), `"pid"`)
	s.call(t, 204, "PUT", at+"/metadata", `{"a":"1","b":"2"}`)
	s.call(t, 204, "PATCH", at+"/metadata", `{"a":null}`)
	mustContain(t, s.call(t, 200, "GET", at+"/metadata", ""), `{"b":"2"}`)
	mustContain(t, s.call(t, 200, "POST", at+"/exec", `{"command":["/bin/echo","a b"]}`), `"stdout":"a b\n"`)
	s.call(t, 200, "POST", at+"/signal", `{"signal":"SIGWINCH"}`)
	mustContain(t, s.call(t, 200, "GET", "/orgs/acme/machines", ""), m.ID)
	s.call(t, 200, "GET", "/orgs/acme/volumes", "")

	mustContain(t, s.call(t, 200, "GET", "/souk/workers", ""), `"worker":"w1-`, `"worker":"w2-`)
	s.call(t, 200, "GET", "/souk/version", "")
	s.call(t, 200, "GET", "/souk/doctor", "")
	mustContain(t, s.call(t, 200, "GET", "/souk"+at+"/explain", ""), `"placement":{"policy"`, `"candidates":[`,
		`"now":[`)
	mustContain(t, s.call(t, 200, "GET", "/souk/apps/a/machines/m/logs?tail=10", ""), `"text":"to-the-log"`)
	out := s.call(t, 200, "POST", "/souk/apps/a/machines/m/exec", "{\"command\":[\"/bin/cat\"]}\nfrom stdin")
	mustContain(t, out, `"stream":"stdout"`, `{"exit_code":0}`)

	s.call(t, 204, "PUT", "/souk/apps/a/machines/m/files?path=/in", tarOf(t, "note", "hello"))
	mustContain(t, s.call(t, 200, "GET", "/souk/apps/a/machines/m/files?path=/in/note", ""), "hello")
	for _, path := range []string{"../../etc/passwd", "/in/../../x"} {
		s.call(t, 400, "GET", "/souk/apps/a/machines/m/files?path="+path, "")
	}
	for _, name := range []string{"../escape", "/../escape"} {
		s.call(t, 400, "PUT", "/souk/apps/a/machines/m/files?path=/in", tarOf(t, name, "x"))
	}
	req, err := http.NewRequestWithContext(t.Context(), "GET", s.url+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if _ = resp.Body.Close(); resp.StatusCode != 401 {
		t.Errorf("/metrics without a token: %d", resp.StatusCode)
	}
}

func tarOf(t *testing.T, name, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text)),
		Typeflag: tar.TypeReg}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
