package machines

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

func TestKeyValuesParsePairs(t *testing.T) {
	lookup := func(k string) (string, bool) {
		if k == "EMPTY" {
			return "", true
		}
		return "looked up " + k, k != "UNSET"
	}
	got, err := KeyValues("--env", []string{"A=1", "B=x=y", "C", "D=", "EMPTY", "UNSET"}, lookup)
	if _, has := got["EMPTY"]; err != nil || len(got) != 5 || !has || got["A"] != "1" || got["B"] != "x=y" ||
		got["C"] != "looked up C" || got["D"] != "" {
		t.Errorf("got %v, %v", got, err)
	}
	for _, bad := range []string{"=x", "X"} {
		if _, err := KeyValues("--metadata", []string{bad}, nil); cli.ExitCode(err) != cli.ExitUsage {
			t.Errorf("%q gave %v", bad, err)
		}
	}
}

func TestSplitPathTellsMachinePathsFromLocalOnes(t *testing.T) {
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
		"dots":     {{Name: "../../escaped", Typeflag: tar.TypeReg}},
		"absolute": {{Name: filepath.Join(outside, "escaped"), Typeflag: tar.TypeReg}},
		"through a link": {
			{Name: "l", Typeflag: tar.TypeSymlink, Linkname: outside},
			{Name: "l/escaped", Typeflag: tar.TypeReg},
		},
		"through a dir link": {
			{Name: "l", Typeflag: tar.TypeSymlink, Linkname: outside},
			{Name: "l/escaped/", Typeflag: tar.TypeDir, Mode: 0o755},
		},
		"onto a link": {
			{Name: "l", Typeflag: tar.TypeSymlink, Linkname: filepath.Join(outside, "escaped")},
			{Name: "l", Typeflag: tar.TypeReg},
		},
		"device": {{Name: "escaped", Typeflag: tar.TypeChar}},
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
			_, err = (&untarring{root: root}).all(&b, "top", "")
			t.Log(err)
			for _, d := range []string{outside, parent} {
				if _, err := os.Lstat(filepath.Join(d, "escaped")); err == nil {
					t.Errorf("it wrote outside, into %s", d)
				}
			}
		})
	}
}

func TestPackUntarRoundTripsFilesAndModes(t *testing.T) {
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
	k := &packing{out: tar.NewWriter(&b)}
	if err := k.all(filepath.Join(from, "tree"), "top"); err != nil || k.count != 2 {
		t.Fatalf("packed %d, %v", k.count, err)
	}
	to := t.TempDir()
	root, err := os.OpenRoot(to)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if n, err := (&untarring{root: root}).all(&b, "top", "renamed"); err != nil || n != 2 {
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

func TestPickVolumeByNameOrIDPrefix(t *testing.T) {
	used := "m1"
	vs := []machine.Volume{
		{ID: "vol_1", Name: "data", AttachedMachine: &used},
		{ID: "vol_2", Name: "data"},
		{ID: "vol_3", Name: "twice"},
		{ID: "vol_4", Name: "twice"},
	}
	for ref, want := range map[string]string{"vol_1": "vol_1", "data": "vol_2"} {
		if v, err := PickVolume(vs, ref, "a"); err != nil || v.ID != want {
			t.Errorf("%s: got %v, %v", ref, v.ID, err)
		}
	}
	if _, err := PickVolume(vs, "twice", "a"); !fault.Is(err, fault.Conflict) {
		t.Errorf("an ambiguous name gave %v", err)
	}
	if _, err := PickVolume(vs, "vol_", "a"); !fault.Is(err, fault.NotFound) {
		t.Errorf("the beginning of an id gave %v", err)
	}
}

func TestExitOfTakesTheNewestExitCode(t *testing.T) {
	exit := func(x machine.ExitEvent) machine.Event {
		return machine.Event{Type: "exit", Request: &machine.EventRequest{ExitEvent: &x}}
	}
	m := &machine.Machine{
		Events: []machine.Event{{Type: "stop"}, exit(machine.ExitEvent{ExitCode: 7}),
			exit(machine.ExitEvent{ExitCode: 1})},
	}
	if code := exitOf(m); code == nil || *code != 7 {
		t.Errorf("got %v, want the newest: 7", code)
	}
	m.Events = []machine.Event{exit(machine.ExitEvent{ExitCode: -1, Lost: true})}
	if code := exitOf(m); code != nil {
		t.Errorf("an end that nobody saw has no code, got %d", *code)
	}
	if err := codeError(m, nil); cli.ExitCode(err) != cli.ExitError {
		t.Errorf("got %v", err)
	}
}

// A wait that the server answers with 408 is asked again until the limit.
func TestWaitRepeatsAfter408UntilItsLimit(t *testing.T) {
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
	c := &cli.Env{Out: io.Discard, Err: io.Discard, Getenv: func(string) string { return "" }}
	m, err := waitEnded(context.Background(), c, client.New(s.Listener.Addr().String(), "t"),
		&machine.Machine{ID: "m", App: "a"}, 0)
	if err != nil || m.State != machine.Stopped || asked != 3 {
		t.Errorf("got %v, %v after %d asks", m, err, asked)
	}
}

// TestFirstLaunchOfAnAppSendsAFreshKey: the create after the app was made is sent with a key of its own, and as new as the first was:
// it is not refused for a member that is down.
func TestFirstLaunchOfAnAppSendsAFreshKey(t *testing.T) {
	keys, app := map[string]bool{}, false
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/machines"):
			key, age := r.Header.Get(api.IdempotencyHeader), r.Header.Get(api.KeyAgeHeader)
			if r.Header.Get(api.NewKeyHeader) == "" || key == "" || keys[key] || age == "" {
				t.Errorf("key %q of age %q is sent as %q", key, age, r.Header.Get(api.NewKeyHeader))
			}
			keys[key] = true
			if app {
				_, _ = io.WriteString(w, `{"id":"m","state":"started","events":[]}`)
				return
			}
		case r.Method == http.MethodPost:
			app = true
		}
		if app {
			_, _ = io.WriteString(w, `{}`)
			return
		}
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"error":"app not found","souk":{"kind":"notfound","code":"app_not_found"}}`)
	}))
	defer s.Close()
	c := &cli.Env{Out: io.Discard, Err: io.Discard, Getenv: func(string) string { return "" }}
	_, err := launch(t.Context(), c, client.New(s.Listener.Addr().String(), "t"), "a",
		&machine.Launch{Config: &machine.Config{}})
	if err != nil || len(keys) != 2 {
		t.Errorf("%d creates: %v", len(keys), err)
	}
}

// Each event is shown once, however a worker's clock stands and however many happen within a millisecond.
func TestEventsAreShownOnce(t *testing.T) {
	from := time.UnixMilli(1000)
	s := &seenEvents{from: from, newest: map[string]string{}}
	event := func(m, id string, at int64) machine.EventOf {
		return machine.EventOf{Machine: m, Event: machine.Event{ID: id, Timestamp: at, Type: "start"}}
	}
	for i, x := range []struct {
		e     machine.EventOf
		first bool
	}{
		{event("a", "02", 2000), true},
		{event("a", "02", 2000), false},
		{event("a", "03", 2000), true}, // the same in all but its id
		{event("a", "01", 2000), false},
		{event("b", "01", 2000), true}, // ids are of a machine
		{event("a", "04", 900), true},  // the worker's clock was set back
	} {
		if got := s.first(x.e); got != x.first {
			t.Errorf("%d: first is %v, want %v", i, got, x.first)
		}
	}
	for i := range mostSeen {
		s.first(event(fmt.Sprint(i), "01", 3000))
	}
	if len(s.newest) > mostSeen || !s.from.After(from) {
		t.Errorf("%d machines are remembered, from %s", len(s.newest), s.from)
	}
}
