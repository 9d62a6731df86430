package cli

import (
	"runtime/debug"
	"testing"
)

// TestBuildOf: what is said of a build, by what Go notes in it.
func TestBuildOf(t *testing.T) {
	const commit = "7c24b53e5678901234567890123456789012abcd"
	vcs := func(changed string) []debug.BuildSetting {
		return []debug.BuildSetting{{Key: "vcs", Value: "git"}, {Key: "vcs.revision", Value: commit},
			{Key: "vcs.time", Value: "2026-11-27T19:07:24Z"}, {Key: "vcs.modified", Value: changed}}
	}
	for _, c := range []struct {
		version  string
		settings []debug.BuildSetting
		want     string
		text     string
	}{
		{"(devel)", nil, "devel",
			`devel, built without its commit: "make build" in a git checkout notes it, "go run" does not`},
		{"", nil, "devel", `devel, built without its commit: "make build" in a git checkout notes it, "go run" does not`},
		{"(devel)", vcs("false"), "devel-7c24b53e5678",
			"devel-7c24b53e5678, commit " + commit + " of 2026-11-27T19:07:24Z"},
		{"v0.0.0-20261127190724-7c24b53e5678", vcs("false"), "v0.0.0-20261127190724-7c24b53e5678",
			"v0.0.0-20261127190724-7c24b53e5678, commit " + commit + " of 2026-11-27T19:07:24Z"},
		{"v1.2.3+dirty", vcs("true"), "v1.2.3+dirty",
			"v1.2.3+dirty, commit " + commit + " of 2026-11-27T19:07:24Z, with changes that are not committed"},
		{"v1.2.3", nil, "v1.2.3", "v1.2.3"},
	} {
		b := buildOf(&debug.BuildInfo{Main: debug.Module{Version: c.version}, Settings: c.settings})
		if b.Version != c.want || b.Text() != c.text {
			t.Errorf("%q: %q, %q", c.version, b.Version, b.Text())
		}
	}
}
