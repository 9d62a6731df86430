package process_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/process"
)

func TestMain(m *testing.M) {
	process.ReaperHook()
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
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
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
}

func TestFirstLife(t *testing.T) {
	r := open(t, nil)
	ctx := t.Context()
	s := runtime.Spec{Machine: "m1", Attempt: 1, Argv: []string{"sh", "-c", "echo hello; exit 3"}, SwapMB: -1}
	s.Resources.CPU, s.Resources.Memory = 500, 64
	if err := r.Prepare(ctx, s); err != nil {
		t.Fatal(err)
	}
	st, err := r.Start(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", st)
	x := <-r.Exits()
	t.Logf("%+v", x)
	if x.Code != 3 {
		t.Errorf("code %d, want 3", x.Code)
	}
	if err := r.Logs(ctx, "m1", runtime.LogQuery{}, func(l runtime.LogLine) error { t.Logf("%+v", l); return nil }); err != nil {
		t.Fatal(err)
	}
	for _, f := range r.Examine(ctx) {
		t.Logf("%+v", f)
	}
}
