package process_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/runtime/process"
	"github.com/soukhq/souk/runtime/reaper"
)

func TestMain(m *testing.M) {
	process.ReaperHookAt(dieAt)
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil { // of each reaper, a second otherwise
		panic(err)
	}
	os.Exit(m.Run())
}

func options(dir string) process.Options {
	return process.Options{Dir: dir, ReaperCommand: []string{os.Args[0]}}
}

// open starts a runtime whose reaper ends with the test.
func open(t testing.TB, change func(*process.Options)) *process.Runtime {
	t.Helper()
	o := options(filepath.Join(t.TempDir(), "process"))
	if change != nil {
		change(&o)
	}
	t.Cleanup(func() { stopReaper(t, o) })
	return reopen(t, o)
}

func reopen(t testing.TB, o process.Options) *process.Runtime {
	t.Helper()
	r, err := process.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

func stopReaper(t testing.TB, o process.Options) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waittest.Patience)
	defer cancel()
	r, err := process.Open(o)
	if err != nil {
		t.Error(err)
		return
	}
	all, err := r.List(ctx)
	if err != nil {
		t.Error(err)
	}
	for _, s := range all {
		if err := r.Remove(ctx, s.Machine); err != nil {
			t.Error(err)
		}
	}
	if err := r.StopReaper(ctx); err != nil {
		t.Error(err)
	}
	said, err := os.ReadFile(filepath.Join(o.Dir, reaper.LogFile))
	if err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"DATA RACE", "panic", `"level":"ERROR"`} {
		if strings.Contains(string(said), bad) {
			t.Errorf("the reaper said:\n%s", said)
		}
	}
}

// TestExamineExplainsEachFinding: every finding has something to say, and what is lacking comes with advice.
func TestExamineExplainsEachFinding(t *testing.T) {
	for _, noCgroups := range []bool{false, true} {
		r := open(t, func(o *process.Options) { o.NoCgroups = noCgroups })
		names := map[string]bool{}
		for _, f := range r.Examine(t.Context()) {
			if f.Name == "" || f.Have == "" || f.OK == (f.Advice != "") || names[f.Name] {
				t.Errorf("%+v", f)
			}
			names[f.Name] = true
			if noCgroups && f.OK && strings.Contains(f.Name, "limit") {
				t.Errorf("without cgroups: %+v", f)
			}
		}
		if len(names) < 10 {
			t.Errorf("only %v", names)
		}
	}
}

func TestCanRunAcceptsHostImageOnly(t *testing.T) {
	r := open(t, nil)
	for _, image := range []string{"souk/host", "souk/host:latest", "docker.io/souk/host:1", "souk/host@sha256:00"} {
		if err := r.CanRun(image, ""); err != nil {
			t.Error(err)
		}
	}
	for _, image := range []string{"", "nginx", "souk/hosts", "evil/souk/host", "souk/host/x", "registry:5000/nginx"} {
		if err := r.CanRun(image, ""); !fault.Is(err, fault.Invalid) || fault.CodeOf(err) != "image" ||
			!strings.Contains(err.Error(), "souk/host") {
			t.Errorf("%q: %v", image, err)
		}
	}
}
