package machine_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/machine"
)

// Lines are written as encoding/json writes them, and read as it reads them.
func TestLineTextMatchesEncodingJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.StringMatching(`[ -~]{0,8}`), rapid.Just("a\"\\<>&\x00\x7f\xff\u2028é"))
		line := rapid.Custom(func(t *rapid.T) machine.Line {
			return machine.Line{ID: text.Draw(t, "id"), Name: text.Draw(t, "name"), App: text.Draw(t, "app"),
				State: machine.State(text.Draw(t, "state")), Worker: cluster.WorkerID(text.Draw(t, "worker")),
				Region: text.Draw(t, "region"), HostStatus: text.Draw(t, "host"), CreatedAt: text.Draw(t, "created"),
				CPUKind: text.Draw(t, "kind"), CPUs: rapid.Int().Draw(t, "cpus"),
				MemoryMB: rapid.IntRange(0, 1<<20).Draw(t, "memory"), Command: text.Draw(t, "command"),
				ExitCode: rapid.Ptr(rapid.IntRange(0, 255), true).Draw(t, "exit"), OOM: rapid.Bool().Draw(t, "oom"),
				Returns: rapid.Bool().Draw(t, "returns"), SilentMS: rapid.Int64Range(0, 1<<40).Draw(t, "silent"),
				Failing:  rapid.Bool().Draw(t, "failing"),
				Restarts: rapid.IntRange(0, 99).Draw(t, "restarts"), Tries: rapid.IntRange(0, 99).Draw(t, "tries"),
				NextTry: text.Draw(t, "next"), Replica: text.Draw(t, "replica")}
		})
		l := line.Draw(t, "line")
		want, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		if got := l.AppendJSON(nil); string(got) != string(want) {
			t.Fatalf("written %s, encoding/json has %s", got, want)
		}
		var back machine.Line
		if err := json.Unmarshal(want, &back); err != nil {
			t.Fatal(err)
		}
		list := "[" + string(want) + "," + string(want) + "]"
		lines, rest, ok := machine.ParseLines([]byte(list + "rest"))
		if ok != (l.CPUs >= 0) {
			t.Fatalf("read: %v", ok)
		}
		if d := cmp.Diff([]machine.Line{back, back}, lines); ok && (d != "" || string(rest) != "rest") {
			t.Fatalf("rest %q (-want +got):\n%s", rest, d)
		}
	})
}

// What ParseLines reads is valid and means what encoding/json says; the rest it leaves alone.
func FuzzParseLinesAgreesWithEncodingJSON(f *testing.F) {
	for _, s := range []string{`[]`, `[{"id":"a","cpus":1}]`, `[{"id":"a\u0041"},{"cpus":0}]x`, `[{"cpus":01}]`,
		`[{"id":"a",}]`, `[{}]`, `[{"ID":"a"}]`, `[{"id":null}]`, `[ ]`, `[{"id":"\x"}]`, `[{"id":"` + "\n" + `"}]`,
		`[{"cpus":-1}]`, `[{"cpus":}]`, `[{"cpus":99999999999999999999}]`, `[{"id":"a"}`, `[{"id":"a\`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		lines, rest, ok := machine.ParseLines([]byte(s))
		if !ok {
			return
		}
		text, cut := strings.CutSuffix(s, string(rest))
		var want []machine.Line
		if err := json.Unmarshal([]byte(text), &want); err != nil || !cut {
			t.Fatalf("%q was read: %v", text, err)
		}
		if d := cmp.Diff(want, lines); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	})
}

func BenchmarkParseLines(b *testing.B) {
	l := machine.Line{ID: "0013346ecc99cb", Name: "amber-canal-3606", App: "default", State: machine.Started,
		Worker: "w1-r4omge", Region: "local", HostStatus: "ok", CreatedAt: "2026-01-02T03:04:05.686777853Z",
		CPUKind: "shared", CPUs: 1, MemoryMB: 256, Command: "/bin/sleep 100000"}
	text := []byte("[" + strings.Repeat(string(l.AppendJSON(nil))+",", 999) + string(l.AppendJSON(nil)) + "]")
	b.Run("souk", func(b *testing.B) {
		for b.Loop() {
			if lines, _, ok := machine.ParseLines(text); !ok || len(lines) != 1000 {
				b.Fatal(ok, len(lines))
			}
		}
	})
	b.Run("encoding-json", func(b *testing.B) {
		for b.Loop() {
			var lines []machine.Line
			if err := json.Unmarshal(text, &lines); err != nil || len(lines) != 1000 {
				b.Fatal(err, len(lines))
			}
		}
	})
}
