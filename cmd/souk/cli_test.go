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

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/cli"
)

// invoke runs a command line in this process.
func invoke(t *testing.T, env map[string]string, argv ...string) (code int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	c := &cli.Env{In: strings.NewReader(""), Out: &o, Err: &e, Getenv: func(k string) string { return env[k] }}
	code = c.Run(t.Context(), rootFor(c, argv), argv)
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

// A command that is made alone is the one that stands in the whole command line, help and all.
func TestACommandMadeAloneIsTheSame(t *testing.T) {
	for _, s := range sections() {
		for _, e := range s.commands {
			var alone, among bytes.Buffer
			argv := []string{e.name, "--help"}
			for out, root := range map[*bytes.Buffer]func(*cli.Env) *cobra.Command{
				&alone: func(c *cli.Env) *cobra.Command { return rootFor(c, argv) }, &among: root,
			} {
				c := &cli.Env{Out: out, Err: io.Discard, Getenv: func(string) string { return "" }}
				cmd := root(c)
				if code := c.Run(t.Context(), cmd, argv); code != 0 {
					t.Errorf("souk %s --help ended with %d", e.name, code)
				}
				if n := len(cmd.Commands()); out == &alone && n > 2 {
					t.Errorf("souk %s made %d commands", e.name, n)
				}
			}
			if alone.String() != among.String() || !strings.Contains(alone.String(), "souk "+e.name) {
				t.Errorf("souk %s --help says alone:\n%s\namong all:\n%s", e.name, alone.String(), among.String())
			}
		}
	}
}

// What needs all commands has them: no command, help, completion, an alias, a flag before the command, a mistake.
func TestTheWholeCommandLineIsThereWhereItIsAskedFor(t *testing.T) {
	for _, c := range []struct {
		argv []string
		code int
		says string
	}{
		{nil, 0, "volumes"},
		{[]string{"help"}, 0, "volumes"},
		{[]string{"help", "ps"}, 0, "List the machines"},
		{[]string{"__complete", "vol"}, 0, "volumes"},
		{[]string{"ls", "--help"}, 0, "List the machines"},
		{[]string{"--json", "ps", "--help"}, 0, "List the machines"},
		{[]string{"volumns"}, 2, `did you mean "volumes"`},
	} {
		code, out, errs := invoke(t, nil, c.argv...)
		if code != c.code || !strings.Contains(out+errs, c.says) {
			t.Errorf("souk %q: code %d, which does not say %q:\n%s%s", c.argv, code, c.says, out, errs)
		}
	}
}
