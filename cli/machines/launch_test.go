package machines

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/machine"
)

// launchWith makes the launch of a command line, in a directory with files.
func launchWith(t *testing.T, files map[string]string, flags ...string) (*machine.Launch, error) {
	t.Helper()
	t.Chdir(t.TempDir())
	for name, text := range files {
		if err := os.WriteFile(name, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	o := new(RunFlags)
	f := pflag.NewFlagSet("run", pflag.ContinueOnError)
	o.Shape(f)
	if err := f.Parse(flags); err != nil {
		t.Fatal(err)
	}
	c := &cli.Env{In: strings.NewReader(files["stdin"]), Getenv: func(string) string { return "" }}
	return LaunchOf(t.Context(), c, nil, "app", o, f.Args())
}

func TestLaunchOf(t *testing.T) {
	const file = `{"name": "web", "config": {"env": {"A": "1", "B": "2"}, "guest": {"cpu_kind": "shared", "cpus": 2,
		"memory_mb": 1024}, "init": {"entrypoint": ["/bin/old"]}, "restart": {"policy": "always"}},
		"scheduling": {"band": "batch", "policy": "pack"}}`
	config := func(l *machine.Launch) *machine.Config { return l.Config }
	for _, c := range []struct {
		name  string
		files map[string]string
		flags []string
		want  func(l *machine.Launch) (got, want any)
	}{
		{"flags alone", nil, []string{"--cpus", "2", "--", "true"}, func(l *machine.Launch) (any, any) {
			return config(l), &machine.Config{Image: "souk/host", Init: machine.Init{Exec: []string{"true"}},
				Guest: &machine.Guest{CPUKind: "shared", CPUs: 2, MemoryMB: 512}}
		}},
		{"a file alone", map[string]string{"l.json": file}, []string{"-f", "l.json"},
			func(l *machine.Launch) (any, any) {
				return []any{l.Name, config(l).Init.Entrypoint, config(l).Guest.MemoryMB},
					[]any{"web", []string{"/bin/old"}, 1024}
			}},
		{"stdin", map[string]string{"stdin": file}, []string{"-f", "-"}, func(l *machine.Launch) (any, any) {
			return l.Name, "web"
		}},
		{"flags before the file", map[string]string{"l.json": file},
			[]string{"-f", "l.json", "--name", "x", "-e", "B=3", "--memory", "2g", "--band", "service", "--", "new",
				"-v"},
			func(l *machine.Launch) (any, any) {
				return []any{l.Name, config(l).Env, config(l).Guest.MemoryMB, config(l).Init, *l.Scheduling},
					[]any{"x", map[string]string{"A": "1", "B": "3"}, 2048,
						machine.Init{Exec: []string{"new", "-v"}}, machine.Scheduling{Band: "service", Policy: "pack"}}
			}},
		{"more CPUs have the memory they need", map[string]string{"l.json": file},
			[]string{"-f", "l.json", "--cpus", "8"},
			func(l *machine.Launch) (any, any) { return config(l).Guest.MemoryMB, 2048 }},
		{"a file of variables", map[string]string{"env": "# these\nA=1\n\nB=x=y z\n"},
			[]string{"--env-file", "env", "-e", "A=2", "--", "true"},
			func(l *machine.Launch) (any, any) { return config(l).Env, map[string]string{"A": "2", "B": "x=y z"} }},
		{"a file for the machine", map[string]string{"conf": "hi"}, []string{"--file", "/etc/conf=conf", "--", "true"},
			func(l *machine.Launch) (any, any) {
				f := config(l).Files[0]
				return []any{f.GuestPath, *f.RawValue, f.Mode}, []any{"/etc/conf", "aGk=", uint32(0o640)}
			}},
		{"how it is stopped", nil,
			[]string{"--stop-signal", "SIGTERM", "--stop-grace", "3s", "--schedule", "daily", "--", "true"},
			func(l *machine.Launch) (any, any) {
				s := config(l).StopConfig
				return []any{*s.Signal, s.Timeout.Duration, config(l).Schedule},
					[]any{"SIGTERM", 3 * time.Second, "daily"}
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, err := launchWith(t, c.files, c.flags...)
			if err != nil {
				t.Fatal(err)
			}
			got, want := c.want(l)
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestLaunchOfRefuses(t *testing.T) {
	for _, c := range []struct {
		files map[string]string
		flags []string
		says  string
	}{
		{nil, []string{"-f", "none.json"}, "there is no launch in none.json"},
		{map[string]string{"l.json": `{"config": {"imag": ""}}`}, []string{"-f", "l.json"}, `did you mean "image"`},
		{map[string]string{"l.toml": "a = \n"}, []string{"-f", "l.toml"}, "l.toml cannot be read:\n1|"},
		{map[string]string{"l.toml": "[config]\nimag = ''\n"}, []string{"-f", "l.toml"}, `did you mean "image"`},
		{map[string]string{"env": "A=1\nB\n"}, []string{"--env-file", "env", "--", "true"},
			`env:2 is written NAME=VALUE, not "B"`},
		{nil, []string{"--file", "etc=x", "--", "true"}, "--file is written /PATH=FILE"},
		{nil, []string{"--file", "/etc=x", "--", "true"}, "the file x cannot be read"},
		{map[string]string{"l.json": `{"config": {"size": "shared-cpu-1x"}}`}, []string{"-f", "l.json", "--cpus", "2"},
			`the size "shared-cpu-1x", which does not go with --cpus`},
	} {
		if _, err := launchWith(t, c.files, c.flags...); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v: %v, which does not say %q", c.flags, err, c.says)
		}
	}
}

// TestWhatGetPrintsIsTaken: in both formats, and it is the same machine.
func TestWhatGetPrintsIsTaken(t *testing.T) {
	l, err := launchWith(t, map[string]string{"conf": "hi"}, "--name", "web", "--cpus", "2", "-e", "A=<1>", "--file",
		"/etc/conf=conf", "--stop-grace", "3s", "--require", "zone in a,b", "--evictions", "3/1h", "--", "a b", "c\nd")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"l.json", "l.toml"} {
		raw, err := encodeLaunch(l, filepath.Ext(name) == ".toml")
		if err != nil {
			t.Fatal(err)
		}
		got, err := decodeLaunch(name, raw)
		if err != nil {
			t.Fatalf("%v\n%s", err, raw)
		}
		want, _ := encodeLaunch(l, false)
		if again, _ := encodeLaunch(got, false); !bytes.Equal(want, again) {
			t.Errorf("%s is read as another launch (-want +got):\n%s", name, cmp.Diff(string(want), string(again)))
		}
	}
}
