package complete

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestUsageNounsAreParsedFromUsageLines(t *testing.T) {
	for _, tc := range []struct {
		use  string
		want []place
	}{
		{"ps", nil},
		{"wait JOB...", []place{{noun: "JOB", many: true}}},
		{"events [MACHINE...]", []place{{noun: "MACHINE", many: true}}},
		{"exec [-i] MACHINE -- CMD [ARG...]", []place{{noun: "MACHINE"}}},
		{"update MACHINE [flags] [-- CMD [ARG...]]", []place{{noun: "MACHINE"}}},
		{"plan [flags] [FILE | -- CMD [ARG...]]", []place{{noun: "FILE"}}},
		{"budget APP [MAX[/WINDOW]]", []place{{noun: "APP"}, {noun: "MAX[/WINDOW"}}},
		{"disconnect APP [never|fast]", []place{{noun: "APP"}, {either: []string{"never", "fast"}}}},
		{"set NAME[=VALUE]...", []place{{noun: "NAME", many: true}}},
		{"explain MACHINE | DECISION", []place{{noun: "MACHINE"}}},
	} {
		if diff := cmp.Diff(tc.want, usageNouns(tc.use), cmp.AllowUnexported(place{})); diff != "" {
			t.Errorf("%s: %s", tc.use, diff)
		}
	}
}
