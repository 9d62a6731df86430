package machine_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/soukhq/souk/machine"
)

func TestLineIsValidJSONOfTheMachine(t *testing.T) {
	long := strings.Repeat("ü", machine.MaxLineCommand)
	for name, c := range map[string]struct {
		config  *machine.Config
		command string
		cpus    int
	}{
		"none": {},
		"exec": {&machine.Config{Init: machine.Init{Exec: []string{"/bin/sleep", "60"}, Cmd: []string{"no"}}},
			"/bin/sleep 60", 0},
		"entrypoint": {&machine.Config{Init: machine.Init{Entrypoint: []string{"/bin/sh"}, Cmd: []string{"-c", "x"}}},
			"/bin/sh -c x", 0},
		"guest": {&machine.Config{Guest: &machine.Guest{CPUKind: "shared", CPUs: 2, MemoryMB: 512}}, "", 2},
		"cut": {&machine.Config{Init: machine.Init{Exec: []string{"a", long, "z"}}},
			"a " + long[:machine.MaxLineCommand-2], 0},
	} {
		t.Run(name, func(t *testing.T) {
			m := &machine.Machine{ID: "1", Name: "web", App: "shop", State: machine.Started, Worker: "w1",
				Region:     "local",
				HostStatus: "ok", CreatedAt: "then", Config: c.config}
			got := m.Line()
			want := machine.Line{ID: "1", Name: "web", App: "shop", State: machine.Started, Worker: "w1",
				Region:     "local",
				HostStatus: "ok", CreatedAt: "then", Command: c.command, CPUs: c.cpus}
			if c.cpus > 0 {
				want.CPUKind, want.MemoryMB = "shared", 512
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			if len(got.Command) > machine.MaxLineCommand || !utf8.ValidString(got.Command) {
				t.Errorf("%d bytes, valid: %v", len(got.Command), utf8.ValidString(got.Command))
			}
		})
	}
}
