package fake_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/fake"
	"github.com/soukhq/souk/runtime/runtimetest"
)

func TestFakeConformsToRuntime(t *testing.T) {
	runtimetest.Run(t, func(t *testing.T) runtimetest.Subject {
		f := fake.New(fake.Options{})
		return runtimetest.Subject{Runtime: f, Reopen: func(*testing.T) runtime.Runtime { f = f.Reopen(); return f }}
	})
}

// TestHooksFailCallsBeforeOrAfterTheEffect: a call fails before its effect or after it, and only effects are listed.
func TestHooksFailCallsBeforeOrAfterTheEffect(t *testing.T) {
	broken := errors.New("broken")
	var before, after error
	f := fake.New(fake.Options{
		Before: func(c fake.Call) error {
			if c.Op == "start" {
				return before
			}
			return nil
		},
		After: func(c fake.Call) error {
			if c.Op == "start" {
				return after
			}
			return nil
		},
	})
	s := runtime.Spec{Machine: "m", Attempt: 1, Argv: []string{"sleep", "1000"}}
	if err := f.Prepare(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	before = broken
	if _, err := f.Start(t.Context(), s); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
	before, after = nil, broken
	if _, err := f.Start(t.Context(), s); !errors.Is(err, broken) { // it runs, but the answer is lost
		t.Errorf("%v", err)
	}
	after = nil
	f = f.Reopen()
	st, err := f.Start(t.Context(), s)
	if err != nil || !st.Running {
		t.Errorf("%+v, %v", st, err)
	}
	if err := f.End("m", 7); err != nil {
		t.Error(err)
	}
	f = f.Reopen()
	if x := <-f.Exits(); x.Code != 7 {
		t.Errorf("%+v", x)
	}
	s.Attempt = 2
	if _, err := f.Start(t.Context(), s); err != nil {
		t.Error(err)
	}
	f.CrashHost()
	if x := <-f.Exits(); !x.Lost || x.Code != -1 || x.Attempt != 2 {
		t.Errorf("%+v", x)
	}
	var got []string
	for _, e := range f.Effects() {
		got = append(got, fmt.Sprint(e.Op, e.Attempt))
	}
	if want := []string{"prepare0", "start1", "start2"}; !slices.Equal(got, want) {
		t.Errorf("effects %q, want %q", got, want)
	}
}

func BenchmarkStartToExit(b *testing.B) {
	f := fake.New(fake.Options{})
	s := runtime.Spec{Machine: "m", Argv: []string{"true"}}
	if err := f.Prepare(b.Context(), s); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		s.Attempt++
		if _, err := f.Start(b.Context(), s); err != nil {
			b.Fatal(err)
		}
		<-f.Exits()
		if err := f.Ack(b.Context(), "m", s.Attempt); err != nil {
			b.Fatal(err)
		}
	}
}

// TestFakeKeepsDirectoryAndFiles: a test sees what a machine was started with, and can refuse a directory.
func TestFakeKeepsDirectoryAndFiles(t *testing.T) {
	no := errors.New("no")
	f := fake.New(fake.Options{Dir: func(as *runtime.As, dir string) error {
		if as != nil && dir == "/none" {
			return no
		}
		return nil
	}})
	s := runtime.Spec{Machine: "m", Attempt: 1, Fresh: true, Argv: []string{"sleep", "1000"}, Dir: "/srv",
		Stdio: runtime.Stdio{Out: "out", Append: true}}
	if _, err := f.Start(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if dir, files := f.Reopen().Stdio("m"); dir != s.Dir || files != s.Stdio {
		t.Errorf("%s, %+v", dir, files)
	}
	if err := f.FindDir(t.Context(), new(runtime.As), "/none"); !errors.Is(err, no) {
		t.Errorf("%v", err)
	}
	if err := f.FindDir(t.Context(), nil, "/none"); err != nil {
		t.Error(err)
	}
}
