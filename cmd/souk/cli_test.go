package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/soukhq/souk/cli"
)

// invoke runs a command line in this process.
func invoke(t *testing.T, env map[string]string, argv ...string) (code int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	c := &cli.Env{In: strings.NewReader(""), Out: &o, Err: &e, Getenv: func(k string) string { return env[k] }}
	code = c.Run(t.Context(), root(c), argv)
	return code, o.String(), e.String()
}

// The token that souk dev wrote down is for its own address: another server must never see it.
func TestTokenGoesToItsOwnSoukOnly(t *testing.T) {
	var seen []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Header.Get("Authorization"))
		_, _ = io.WriteString(w, `{"apps":[]}`)
	}))
	defer s.Close()
	addr := s.Listener.Addr().String()
	home := t.TempDir()
	dir := filepath.Join(home, "souk", "dev")
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("addr", "127.0.0.1:1")
	write("token", "dev-token")
	env := map[string]string{"XDG_STATE_HOME": home, "SOUK_ADDR": addr}
	if code, _, errs := invoke(t, env, "apps"); code != 0 {
		t.Fatalf("code %d: %s", code, errs)
	}
	write("addr", addr)
	delete(env, "SOUK_ADDR")
	if code, _, errs := invoke(t, env, "apps"); code != 0 {
		t.Fatalf("code %d: %s", code, errs)
	}
	env["SOUK_TOKEN"] = "own"
	if code, _, errs := invoke(t, env, "apps", "--addr", addr); code != 0 {
		t.Fatalf("code %d: %s", code, errs)
	}
	if got := strings.Join(seen, "|"); got != "|Bearer dev-token|Bearer own" {
		t.Errorf("the server saw %q", got)
	}
}
