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
	const none = `built without its commit, which "make build" in a git checkout notes, and "go run" does not, nor Go in a ` +
		"worktree of git"
	of := "commit " + commit + " of 2026-11-27T19:07:24Z"
	for _, c := range []struct {
		version  string
		settings []debug.BuildSetting
		want     string
		source   string
	}{
		{"(devel)", nil, "devel", none},
		{"", nil, "devel", none},
		{"(devel)", vcs("false"), "devel-7c24b53e5678", of},
		{"v0.0.0-20261127190724-7c24b53e5678", vcs("false"), "v0.0.0-20261127190724-7c24b53e5678", of},
		{"v1.2.3+dirty", vcs("true"), "v1.2.3+dirty", of + ", with changes that are not committed"},
		{"v1.2.3", nil, "v1.2.3", ""},
	} {
		b := buildOf(&debug.BuildInfo{Main: debug.Module{Version: c.version}, Settings: c.settings})
		if b.Version != c.want || b.Source() != c.source {
			t.Errorf("%q: %q, %q", c.version, b.Version, b.Source())
		}
	}
}
