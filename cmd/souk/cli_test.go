package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/api"
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

// taken is a program that has taken a port, and notes what it is sent. With knows it proves that it knows that token.
type taken struct {
	*httptest.Server
	knows string
	at    string // where it says it is; "": its own address

	mu   sync.Mutex
	seen []string
}

func takePort(t *testing.T, knows string) *taken {
	return takeAt(t, knows, "127.0.0.1:0")
}

func takeAt(t *testing.T, knows, addr string) *taken {
	x := &taken{knows: knows}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	x.Server = httptest.NewUnstartedServer(x)
	_ = x.Listener.Close()
	x.Listener = ln
	x.Start()
	t.Cleanup(x.Close)
	return x
}

// ServeHTTP answers any request, as far as it can.
func (x *taken) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if r.URL.Path == api.Prove.Path() && x.knows != "" {
		at := x.at
		if at == "" {
			at = x.Listener.Addr().String()
		}
		_ = json.NewEncoder(w).Encode(api.ProofOf(api.TokenDigest(x.knows), at, r.URL.Query().Get("nonce")))
		return
	}
	raw, _ := httputil.DumpRequest(r, true)
	x.seen = append(x.seen, string(raw))
	_, _ = io.WriteString(w, `{"apps":[]}`)
}

// saw reports whether a text was in anything that it was sent.
func (x *taken) saw(text string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return strings.Contains(strings.Join(x.seen, "\n"), text)
}

// A server sees the token only once it has proved that it knows it: whoever has taken the port of a souk that is down,
// or of one that was moved, learns nothing (security H7).
func TestTokenIsSentOnlyToItsOwnSouk(t *testing.T) {
	own, thief, relay := takePort(t, "secret-token"), takePort(t, ""), takePort(t, "secret-token")
	other := takePort(t, "another-token")
	_, port, _ := net.SplitHostPort(own.Listener.Addr().String())
	beside := takeAt(t, "secret-token", "127.0.0.2:"+port)
	relay.at, beside.at = own.Listener.Addr().String(), own.Listener.Addr().String() // they pass on what they are asked
	for _, c := range []struct {
		name string
		at   *taken
		code int
		says string
		sees bool
	}{
		{"its own", own, 0, "", true},
		{"another program", thief, 77, "the token was not sent", false},
		{"another souk", other, 77, "could not prove that it knows the token", false},
		{"one that asks its own", relay, 77, "listens at " + relay.at, false},
		{"one at the same port of another address", beside, 77, "listens at " + relay.at, false},
	} {
		addr := c.at.Listener.Addr().String()
		env := map[string]string{"SOUK_ADDR": addr, "SOUK_TOKEN": "secret-token", "HTTP_PROXY": thief.URL}
		code, _, errs := invoke(t, env, "apps")
		if code != c.code || !strings.Contains(errs, c.says) {
			t.Errorf("%s: code %d, %s", c.name, code, errs)
		}
		if c.at.saw("secret-token") != c.sees || c.at.saw("GET /v1/apps") != c.sees {
			t.Errorf("%s saw %q", c.name, c.at.seen)
		}
	}
}

// The token in the directory of souk dev is sent to the address that is written there, and nowhere else.
func TestDevTokenIsSentOnlyToItsAddress(t *testing.T) {
	own, other := takePort(t, "dev-token"), takePort(t, "dev-token")
	home := t.TempDir()
	dir := filepath.Join(home, "souk", "dev")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"addr": own.Listener.Addr().String(), "token": "dev-token"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range []*taken{own, other} {
		env := map[string]string{"XDG_STATE_HOME": home, "SOUK_ADDR": x.Listener.Addr().String()}
		if code, _, errs := invoke(t, env, "apps"); code != 0 {
			t.Fatalf("code %d: %s", code, errs)
		}
	}
	if !own.saw("dev-token") || other.saw("dev-token") {
		t.Errorf("its own saw %q, another %q", own.seen, other.seen)
	}
	if code, _, errs := invoke(t, map[string]string{"XDG_STATE_HOME": home}, "apps"); code != 69 ||
		!strings.Contains(errs, "no souk runs on this host") {
		t.Errorf("code %d: %s", code, errs)
	}
}

// A command that is made alone is the one that stands in the whole command line, help and all.
func TestCommandBuiltAloneMatchesTheFullTree(t *testing.T) {
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
func TestFullCommandTreeIsBuiltForHelpAndMistakes(t *testing.T) {
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
		{[]string{"--version"}, 0, "souk "},
		{[]string{"ssh", "web"}, 2, `souk has no command "ssh"; what does that here is "souk exec -it MACHINE -- /bin/sh"`},
	} {
		code, out, errs := invoke(t, nil, c.argv...)
		if code != c.code || !strings.Contains(out+errs, c.says) {
			t.Errorf("souk %q: code %d, which does not say %q:\n%s%s", c.argv, code, c.says, out, errs)
		}
	}
}

// TestVerbsOfOtherToolsSuggestSoukCommands: a verb of another tool is answered with souk's own command for it, which
// exists.
func TestVerbsOfOtherToolsSuggestSoukCommands(t *testing.T) {
	for _, verb := range []string{"machines", "list", "inspect", "describe", "create", "apply",
		"delete", "remove", "kill", "ssh", "shell", "console", "log", "tail", "stats", "nodes",
		"hosts", "drain",
		"clone", "volume", "secret", "app", "srun", "salloc", "squeue", "scancel", "sinfo",
		"sacct", "qsub", "qstat", "qdel", "login", "rmi", "server", "up",
		"down", "build", "compose", "backup", "restore", "uninstall"} {
		code, _, says := invoke(t, nil, verb, "web")
		_, here, told := strings.Cut(says, `what does that here is "souk `)
		if code != cli.ExitUsage || !told {
			t.Errorf("souk %s: code %d, and it says no other command: %s", verb, code, says)
			continue
		}
		name := strings.FieldsFunc(here, func(r rune) bool { return r == ' ' || r == '"' || r == ',' })[0]
		if cmd, _, err := root(new(cli.Env)).Find([]string{name}); err != nil || cmd.Name() != name {
			t.Errorf("souk %s: there is no souk %s: %s", verb, name, says)
		}
	}
}
