package main

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// invoke runs a command line in this process.
func invoke(t *testing.T, env map[string]string, argv ...string) (code int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	c := &cli{in: strings.NewReader(""), out: &o, err: &e, getenv: func(k string) string { return env[k] }}
	code = c.run(t.Context(), argv)
	return code, o.String(), e.String()
}

func TestExitCode(t *testing.T) {
	tests := []struct {
		err  error
		want int
	}{
		{nil, 0},
		{errors.New("x"), 1},
		{fault.New(fault.Internal, "", "x"), 1},
		{usagef("x"), 2},
		{fault.New(fault.Conflict, "", "x"), 65},
		{fault.New(fault.Precondition, "", "x"), 65},
		{fault.New(fault.NotFound, "", "x"), 66},
		{fault.New(fault.Unavailable, "", "x"), 69},
		{fault.New(fault.Exhausted, "no_capacity", "x"), 75},
		{fault.New(fault.Exhausted, "never_fits", "x"), 78},
		{fault.New(fault.Denied, "", "x"), 77},
		{fault.New(fault.Invalid, "", "x"), 78},
		{fault.New(fault.Unimplemented, "", "x"), 78},
		{fault.New(fault.Timeout, "", "x"), 124},
		{interrupted{syscall.SIGINT}, 130},
		{taskCode(3), 3},
		{taskCode(256), 0},
		{several{[]error{fault.New(fault.NotFound, "", "x"), fault.New(fault.Conflict, "", "x")}}, 66},
	}
	for _, tt := range tests {
		if got := exitCode(tt.err); got != tt.want {
			t.Errorf("exit code of %v is %d, want %d", tt.err, got, tt.want)
		}
	}
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

func TestOwnCores(t *testing.T) {
	for _, c := range []struct{ cores, workers, want int }{
		{1, 1, 1}, {2, 1, 1}, {2, 3, 2}, {4, 1, 2}, {4, 3, 3}, {64, 1, 32}, {64, 64, 64}, {3, 1, 1},
	} {
		if got := ownCores(c.cores, c.workers); got != c.want {
			t.Errorf("of %d cores %d workers get %d, want %d", c.cores, c.workers, got, c.want)
		}
	}
}

func TestKeyValues(t *testing.T) {
	lookup := func(k string) string { return "looked up " + k }
	got, err := keyValues("--env", []string{"A=1", "B=x=y", "C", "D="}, lookup)
	if err != nil || len(got) != 4 || got["A"] != "1" || got["B"] != "x=y" || got["C"] != "looked up C" || got["D"] != "" {
		t.Errorf("got %v, %v", got, err)
	}
	for _, bad := range []string{"=x", "X"} {
		if _, err := keyValues("--metadata", []string{bad}, nil); exitCode(err) != exitUsage {
			t.Errorf("%q gave %v", bad, err)
		}
	}
}

func TestSplitPath(t *testing.T) {
	tests := []struct {
		in, ref, path string
		is            bool
	}{
		{"web:/etc/x", "web", "/etc/x", true},
		{"web:x", "web", "x", true},
		{"/a:b", "", "/a:b", false},
		{"./a:b", "", "./a:b", false},
		{"plain", "plain", "", false},
		{":x", "", "x", false},
		{"web:", "web", "", false},
	}
	for _, tt := range tests {
		ref, p, is := splitPath(tt.in)
		if is != tt.is || (is && (ref != tt.ref || p != tt.path)) {
			t.Errorf("splitPath(%q) = %q, %q, %v", tt.in, ref, p, is)
		}
	}
}

// What a machine sends must not be written outside the directory it is copied to, by no name and by no link.
func TestUntarStaysInside(t *testing.T) {
	outside := t.TempDir()
	tests := map[string][]tar.Header{
		"dots":               {{Name: "../../escaped", Typeflag: tar.TypeReg}},
		"absolute":           {{Name: filepath.Join(outside, "escaped"), Typeflag: tar.TypeReg}},
		"through a link":     {{Name: "l", Typeflag: tar.TypeSymlink, Linkname: outside}, {Name: "l/escaped", Typeflag: tar.TypeReg}},
		"through a dir link": {{Name: "l", Typeflag: tar.TypeSymlink, Linkname: outside}, {Name: "l/escaped/", Typeflag: tar.TypeDir, Mode: 0o755}},
		"onto a link":        {{Name: "l", Typeflag: tar.TypeSymlink, Linkname: filepath.Join(outside, "escaped")}, {Name: "l", Typeflag: tar.TypeReg}},
		"device":             {{Name: "escaped", Typeflag: tar.TypeChar}},
	}
	for name, headers := range tests {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			tw := tar.NewWriter(&b)
			for _, h := range headers {
				if h.Typeflag == tar.TypeReg {
					h.Size, h.Mode = 1, 0o644
				}
				if err := tw.WriteHeader(&h); err != nil {
					t.Fatal(err)
				}
				if h.Typeflag == tar.TypeReg {
					if _, err := tw.Write([]byte("x")); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := tw.Close(); err != nil {
				t.Fatal(err)
			}
			parent := t.TempDir()
			dir := filepath.Join(parent, "in")
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			root, err := os.OpenRoot(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			_, err = untar(&b, root, "top", "")
			t.Log(err)
			for _, d := range []string{outside, parent} {
				if _, err := os.Lstat(filepath.Join(d, "escaped")); err == nil {
					t.Errorf("it wrote outside, into %s", d)
				}
			}
		})
	}
}

func TestPackUntar(t *testing.T) {
	from := t.TempDir()
	if err := os.MkdirAll(filepath.Join(from, "tree", "deep"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(from, "tree", "deep", "f"), []byte("content"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("deep/f", filepath.Join(from, "tree", "l")); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if n, err := pack(&b, filepath.Join(from, "tree"), "top"); err != nil || n != 1 {
		t.Fatalf("packed %d, %v", n, err)
	}
	to := t.TempDir()
	root, err := os.OpenRoot(to)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if n, err := untar(&b, root, "top", "renamed"); err != nil || n != 2 {
		t.Fatalf("unpacked %d, %v", n, err)
	}
	got, err := os.ReadFile(filepath.Join(to, "renamed", "l"))
	if err != nil || string(got) != "content" {
		t.Errorf("got %q, %v", got, err)
	}
	if st, err := os.Stat(filepath.Join(to, "renamed", "deep", "f")); err != nil || st.Mode().Perm() != 0o640 {
		t.Errorf("the mode is lost: %v, %v", st, err)
	}
}

func TestPickVolume(t *testing.T) {
	used := "m1"
	vs := []machine.Volume{{ID: "vol_1", Name: "data", AttachedMachine: &used}, {ID: "vol_2", Name: "data"}, {ID: "vol_3", Name: "twice"}, {ID: "vol_4", Name: "twice"}}
	for ref, want := range map[string]string{"vol_1": "vol_1", "data": "vol_2"} {
		if v, err := pickVolume(vs, ref, "a"); err != nil || v.ID != want {
			t.Errorf("%s: got %v, %v", ref, v.ID, err)
		}
	}
	if _, err := pickVolume(vs, "twice", "a"); !fault.Is(err, fault.Conflict) {
		t.Errorf("an ambiguous name gave %v", err)
	}
	if _, err := pickVolume(vs, "vol_", "a"); !fault.Is(err, fault.NotFound) {
		t.Errorf("the beginning of an id gave %v", err)
	}
}

func TestExitOf(t *testing.T) {
	exit := func(x machine.ExitEvent) machine.Event {
		return machine.Event{Type: "exit", Request: &machine.EventRequest{ExitEvent: &x}}
	}
	m := &machine.Machine{Events: []machine.Event{{Type: "stop"}, exit(machine.ExitEvent{ExitCode: 7}), exit(machine.ExitEvent{ExitCode: 1})}}
	if code := exitOf(m); code == nil || *code != 7 {
		t.Errorf("got %v, want the newest: 7", code)
	}
	m.Events = []machine.Event{exit(machine.ExitEvent{ExitCode: -1, Lost: true})}
	if code := exitOf(m); code != nil {
		t.Errorf("an end that nobody saw has no code, got %d", *code)
	}
	if err := codeError(m, nil); exitCode(err) != exitError {
		t.Errorf("got %v", err)
	}
}

func TestQuantile(t *testing.T) {
	var ds []time.Duration
	for i := 100; i >= 1; i-- {
		ds = append(ds, time.Duration(i)*time.Millisecond)
	}
	if p50, p99 := quantile(ds, 0.5), quantile(ds, 0.99); p50 != 50 || p99 != 99 {
		t.Errorf("p50 %v, p99 %v", p50, p99)
	}
	if one := quantile([]time.Duration{time.Millisecond}, 0.99); one != 1 {
		t.Errorf("of one: %v", one)
	}
}

// The keys of a row of launches are fixed: programs read them.
func TestBenchRowKeys(t *testing.T) {
	raw, err := json.Marshal(timedRow("x", []time.Duration{2}, []time.Duration{1}))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	dec := json.NewDecoder(bytes.NewReader(raw))
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			t.Fatal(err)
		}
		if s, is := tok.(string); is && s != "x" {
			got = append(got, s)
		}
	}
	want := "name n p50_ms p99_ms floor_p50_ms ratio_p50 ratio_p99 per_second floor_per_second"
	if strings.Join(got, " ") != want {
		t.Errorf("keys are %v, want %s", got, want)
	}
}

// Nobody's config may move the cursor of who lists machines.
func TestNoControlCharacters(t *testing.T) {
	m := &machine.Machine{Config: &machine.Config{Init: machine.Init{Exec: []string{"x\x1b[2J", "a\nb\u009b"}}}}
	if got := command(m.Config, 100); strings.ContainsAny(got, "\x1b\n\u009b") {
		t.Errorf("got %q", got)
	}
}

// A wait that the server answers with 408 is asked again until the limit.
func TestWaitRepeats(t *testing.T) {
	asked := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/wait") {
			if asked++; asked < 3 {
				w.WriteHeader(http.StatusRequestTimeout)
				_, _ = io.WriteString(w, `{"error":"not yet"}`)
				return
			}
			_, _ = io.WriteString(w, `{"ok":true}`)
			return
		}
		_, _ = io.WriteString(w, `{"id":"m","state":"stopped","events":[]}`)
	}))
	defer s.Close()
	c := &cli{out: io.Discard, err: io.Discard, getenv: func(string) string { return "" }}
	m, err := c.waitEnded(context.Background(), client.New(s.Listener.Addr().String(), "t"), &machine.Machine{ID: "m", App: "a"}, 0)
	if err != nil || m.State != machine.Stopped || asked != 3 {
		t.Errorf("got %v, %v after %d asks", m, err, asked)
	}
}
