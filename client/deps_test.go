package client_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// A program that talks to souk links what describes the API and the standard library, and nothing of what serves it.
func TestClientLinksOnlyAPIAndStandardLibrary(t *testing.T) {
	allowed := []string{
		"client", "api", "fault", "machine", "cluster", // the API and its nouns
		"internal/unixsock",
		// pure: what it answers with
		"core/auction", "core/backfill", "internal/backoff",
		"core/decision", "core/jobs", "core/quota", "core/market", "core/placement",
		"core/policy/whatif", "core/fsm",
		"core/scheduler", "core/scheduler/shell", // tokens of tasks, in the messages of package jobs
		"core/quota/offers", "core/release", "core/cron", "core/accounts", "core/eta", "core/share", "core/trial",
	}
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for pkg := range strings.FieldsSeq(string(out)) {
		name, ours := strings.CutPrefix(pkg, "github.com/soukhq/souk/")
		if !ours || !slices.Contains(allowed, name) {
			t.Errorf("client links %s", pkg)
		}
	}
}
