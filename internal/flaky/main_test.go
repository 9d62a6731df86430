package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFindReportsTestsThatFailedThenPassed(t *testing.T) {
	events := func(list ...event) string {
		var b strings.Builder
		for _, e := range list {
			if e.Package == "" {
				e.Package = "p"
			}
			if err := json.NewEncoder(&b).Encode(e); err != nil {
				t.Fatal(err)
			}
		}
		return b.String()
	}
	for _, tt := range []struct {
		name, in, want string
	}{
		{"passed at once", events(event{Action: "run", Test: "A"}, event{Action: "pass", Test: "A"}), ""},
		{"failed for good", events(
			event{Action: "run", Test: "A"}, event{Action: "fail", Test: "A"},
			event{Action: "run", Test: "A"}, event{Action: "fail", Test: "A"}), ""},
		{"the first of two failures is told", events(
			event{Action: "run", Test: "A"}, event{Action: "output", Test: "A", Output: "one\n"},
			event{Action: "fail", Test: "A"},
			event{Action: "run", Test: "A"}, event{Action: "output", Test: "A", Output: "two\n"},
			event{Action: "fail", Test: "A"},
			event{Action: "run", Test: "A"}, event{Action: "pass", Test: "A"}), "p A: one\n"},
		{"only the subtests that failed are told", events(
			event{Action: "run", Test: "A"}, event{Action: "run", Test: "A/x"}, event{Action: "run", Test: "A/y"},
			event{Action: "output", Test: "A/x", Output: "x broke\n"},
			event{Action: "output", Test: "A/y", Output: "y is well\n"},
			event{Action: "fail", Test: "A/x"}, event{Action: "pass", Test: "A/y"}, event{Action: "fail", Test: "A"},
			event{Action: "run", Test: "A"}, event{Action: "pass", Test: "A"}), "p A: x broke\n"},
		{"a test of the same name elsewhere is another", events(
			event{Action: "fail", Test: "A"}, event{Action: "pass", Test: "A", Package: "q"}), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			found, err := find(strings.NewReader(tt.in))
			if err != nil {
				t.Fatal(err)
			}
			var got string
			for _, f := range found {
				got += f.pkg + " " + f.name + ": " + f.output
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestReportIsWrittenEvenIfEmpty: the report is written also when nothing is flaky, so that an old one does not stay.
func TestReportIsWrittenEvenIfEmpty(t *testing.T) {
	dir := t.TempDir()
	report, in := filepath.Join(dir, "flaky.txt"), filepath.Join(dir, "a.json")
	for path, text := range map[string]string{report: "old\n", in: ""} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out strings.Builder
	if err := run(report, []string{in}, &out); err != nil {
		t.Fatal(err)
	}
	if raw, err := os.ReadFile(report); err != nil || len(raw) != 0 || out.Len() != 0 {
		t.Errorf("the report says %q, %v; printed was %q", raw, err, out.String())
	}
}
