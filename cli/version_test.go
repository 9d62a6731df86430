package cli

import (
	"os"
	"runtime/debug"
	"strings"
	"testing"
)

// TestBuildTextFollowsGoBuildInfo: what is said of a build, by what Go notes in it.
func TestBuildTextFollowsGoBuildInfo(t *testing.T) {
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
		released bool
		settings []debug.BuildSetting
		want     string
		source   string
	}{
		{"(devel)", false, nil, Release + "-dev", none},
		{"", false, nil, Release + "-dev", none},
		{"(devel)", false, vcs("false"), Release + "-dev+7c24b53e5678", of},
		{"v0.0.0-20261127190724-7c24b53e5678", false, vcs("false"), Release + "-dev+7c24b53e5678", of},
		{"v" + Release + "+dirty", false, vcs("true"), Release + "-dev+7c24b53e5678",
			of + ", with changes that are not committed"},
		{"v" + Release, false, nil, Release, ""},
		{"v" + Release, false, vcs("false"), Release, of},
		{"v0.0.0-20261127190724-7c24b53e5678", true, vcs("false"), Release, of},
	} {
		b := buildOf(&debug.BuildInfo{Main: debug.Module{Version: c.version}, Settings: c.settings}, c.released)
		if b.String() != c.want || SourceOf(b) != c.source {
			t.Errorf("%q: %q, %q", c.version, b, SourceOf(b))
		}
	}
}

// TestChangelogTopSectionIsThisRelease: the newest section of CHANGELOG.md is of this source's release.
func TestChangelogTopSectionIsThisRelease(t *testing.T) {
	raw, err := os.ReadFile("../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	_, newest, _ := strings.Cut(string(raw), "\n## ")
	if version, _, _ := strings.Cut(newest, ","); version != Release {
		t.Errorf("its newest section is of %s, and this is %s", version, Release)
	}
}
