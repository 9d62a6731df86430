package machines

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spf13/pflag"
	"pgregory.net/rapid"

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

func TestLaunchFlagsOverrideTheFile(t *testing.T) {
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
						machine.Init{Entrypoint: []string{"/bin/old"}, Cmd: []string{"new", "-v"}},
						machine.Scheduling{Band: "service", Policy: "pack"}}
			}},
		{"more CPUs leave the memory as it is", map[string]string{"l.json": file},
			[]string{"-f", "l.json", "--cpus", "8"},
			func(l *machine.Launch) (any, any) {
				return config(l).Guest, &machine.Guest{CPUKind: "shared", CPUs: 8, MemoryMB: 1024}
			}},
		{"CPU in cores, in the place of CPUs", map[string]string{"l.json": file},
			[]string{"-f", "l.json", "--cpu", "0.3"},
			func(l *machine.Launch) (any, any) {
				return config(l).Guest, &machine.Guest{CPUKind: "shared", CPUMilli: 300, MemoryMB: 1024}
			}},
		{"CPU in cores is a limit, unless it is said to be shared", nil, []string{"--cpu", "2", "--", "true"},
			func(l *machine.Launch) (any, any) {
				return config(l).Guest, &machine.Guest{CPUKind: "performance", CPUMilli: 2000, MemoryMB: 256}
			}},
		{"a whole shape", nil, []string{"--cpu", "0.125", "--cpu-kind", "shared", "--memory", "40m", "--disk", "2g",
			"--gpus", "a10:1", "--extra", "licence=2", "--", "true"},
			func(l *machine.Launch) (any, any) {
				g := &machine.Guest{CPUKind: "shared", CPUMilli: 125, MemoryMB: 40, GPUs: 1, GPUKind: "a10",
					Extras: map[string]int64{"licence": 2}}
				return []any{config(l).Guest, config(l).Rootfs.SizeGB}, []any{g, uint64(2)}
			}},
		{"a file of variables", map[string]string{"env": "# these\nA=1\n\nexport B='x=y z' # so\n"},
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
		{"no entrypoint", nil, []string{"--image", "app", "--entrypoint", "", "--", "/bin/echo", "hi"},
			func(l *machine.Launch) (any, any) {
				return config(l).Init, machine.Init{Entrypoint: []string{""}, Cmd: []string{"/bin/echo", "hi"}}
			}},
		{"no grace", nil, []string{"--stop-grace", "0s", "--", "true"}, func(l *machine.Launch) (any, any) {
			return config(l).StopConfig, &machine.StopConfig{Timeout: new(machine.Duration)}
		}},
		{"empty flags take back what the file says", map[string]string{"l.json": `{"name": "web", "region": "fra",
			"config": {"image": "app", "schedule": "daily", "runtime": "runsc", "processes": [{"user": "alice"}],
			"stop_config": {"signal": "SIGTERM"}}, "scheduling": {"priority": 9}}`},
			[]string{"-f", "l.json", "--name", "", "--region", "", "--schedule", "", "--runtime", "", "--user", "",
				"--stop-signal", "", "--priority", "0"},
			func(l *machine.Launch) (any, any) {
				g := config(l)
				return []any{l.Name, l.Region, g.Schedule, g.Runtime, g.Processes[0].User, g.StopConfig.Signal == nil,
					l.Scheduling.Priority}, []any{"", "", "", "", "", true, 0}
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

func TestLaunchRefusesBadFilesAndFlags(t *testing.T) {
	for _, c := range []struct {
		files map[string]string
		flags []string
		says  string
	}{
		{nil, []string{"-f", "none.json"}, "none.json cannot be read as a file with a launch"},
		{map[string]string{"l.json": `{"config": {"imag": ""}}`}, []string{"-f", "l.json"}, `did you mean "image"`},
		{map[string]string{"l.toml": "a = \n"}, []string{"-f", "l.toml"}, "l.toml cannot be read:\n1|"},
		{map[string]string{"l.toml": "[config]\nimag = ''\n"}, []string{"-f", "l.toml"}, `did you mean "image"`},
		{map[string]string{"env": "A=1\nB\n"}, []string{"--env-file", "env", "--", "true"},
			"line 2 of env cannot be read: it is written NAME=VALUE, and there is no ="},
		{nil, []string{"--file", "etc=x", "--", "true"}, "--file is written /PATH=FILE"},
		{nil, []string{"--file", "/etc=x", "--", "true"}, "the file x cannot be read"},
		{map[string]string{"l.json": `{"config": {"size": "shared-cpu-1x"}}`}, []string{"-f", "l.json", "--cpus", "2"},
			`the size "shared-cpu-1x", which does not go with --cpu, --cpus`},
		{nil, []string{"--cpu", "1", "--cpus", "2", "--", "true"}, "--cpu and --cpus both say how much CPU"},
		{nil, []string{"--cpus", "0", "--", "true"}, "--cpus is 1 or more, not 0"},
		{nil, []string{"--disk", "500m", "--", "true"}, "--disk is whole GB, such as 10g, not 500 MB"},
		{nil, []string{"--extra", "licence", "--", "true"}, `--extra is written NAME=COUNT, with a whole number`},
	} {
		if _, err := launchWith(t, c.files, c.flags...); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v: %v, which does not say %q", c.flags, err, c.says)
		}
	}
}

// TestGetOutputIsAcceptedByRun: in both formats, and it is the same machine.
func TestGetOutputIsAcceptedByRun(t *testing.T) {
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

// TestPrintedMachineShapeIsAcceptedByRun: what any valid shape's machine is printed as makes a machine of that shape.
func TestPrintedMachineShapeIsAcceptedByRun(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := &machine.Guest{MemoryMB: rapid.IntRange(machine.MinMemoryMB, machine.MaxMemoryMB).Draw(t, "memory"),
			CPUKind: rapid.SampledFrom([]string{"", "shared", "performance"}).Draw(t, "kind"),
			GPUs:    rapid.IntRange(0, machine.MaxGPUs).Draw(t, "gpus"),
			GPUKind: rapid.SampledFrom([]string{"", "a10"}).Draw(t, "gpu kind"),
			Extras: rapid.MapOfN(rapid.StringMatching("[a-z][a-z0-9._-]{0,20}x"), rapid.Int64Range(1, machine.MaxExtra),
				0, machine.MaxExtras).Draw(t, "extras")}
		if rapid.Bool().Draw(t, "in thousandths") {
			g.CPUMilli = rapid.IntRange(machine.MinCPUMilli, machine.MaxCPUMilli).Draw(t, "cpu")
		} else {
			g.CPUs = rapid.IntRange(1, machine.MaxCPUs).Draw(t, "cpus")
		}
		taken := func(l *machine.Launch) *machine.Launch { // as the API does
			raw, err := json.Marshal(l)
			if err == nil {
				l, err = machine.DecodeLaunch(raw)
			}
			if err == nil {
				l.Normalize()
				err = l.Validate()
			}
			if err != nil {
				t.Fatalf("%s: %v", raw, err)
			}
			return l
		}
		l := taken(&machine.Launch{Config: &machine.Config{Image: "souk/host", Guest: g,
			Init: machine.Init{Exec: []string{"true"}}}})
		want := machine.Resources(l.Config)
		if !want.Valid() {
			t.Fatalf("it asks for %v", want)
		}
		for _, name := range []string{"l.json", "l.toml"} {
			raw, err := encodeLaunch(launchOf(&machine.Machine{Config: l.Config}), name == "l.toml")
			if err != nil {
				t.Fatal(err)
			}
			again, err := decodeLaunch(name, raw)
			if err != nil {
				t.Fatalf("%v\n%s", err, raw)
			}
			o := new(RunFlags)
			o.Shape(pflag.NewFlagSet("run", pflag.ContinueOnError))
			if err := o.applyShape(again.Config); err != nil {
				t.Fatal(err)
			}
			again = taken(again)
			if d := cmp.Diff(l.Config.Guest, again.Config.Guest, cmpopts.EquateEmpty()); d != "" {
				t.Fatalf("%s (-want +got):\n%s", name, d)
			}
			if d := cmp.Diff(want, machine.Resources(again.Config)); d != "" {
				t.Fatalf("%s asks for (-want +got):\n%s", name, d)
			}
		}
	})
}
