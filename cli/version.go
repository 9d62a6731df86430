package cli

import (
	"runtime/debug"

	"github.com/soukhq/souk/cluster"
)

// Release is the version of this source: the release that it is, or will become. CHANGELOG.md says what is new in it.
const Release = "0.1.0"

// released is not "" in builds by "make dist".
var released string //nolint:gochecknoglobals // set by the linker

// Version returns the version of this program, and its commit if it is not a release.
func Version() string { return ThisBuild().String() }

// ThisBuild returns what is known of this program.
func ThisBuild() cluster.Build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return buildOf(info, released != "")
}

// buildOf converts Go's build info. A build of the release's tag counts as the release, even by "go install".
func buildOf(info *debug.BuildInfo, released bool) cluster.Build {
	b := cluster.Build{Version: cluster.Unreleased(Release)}
	if released || info.Main.Version == "v"+Release {
		b.Version = Release
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.At = s.Value
		case "vcs.modified":
			b.Changed = s.Value == "true"
		}
	}
	return b
}

// SourceOf returns a build's commit, or why it is unknown; "": nothing to say.
func SourceOf(b cluster.Build) string {
	switch {
	case b.Commit == "" && !b.Released():
		return `built without its commit, which "make build" in a git checkout notes, and "go run" does not, nor Go in a ` +
			"worktree of git"
	case b.Commit == "": // installed with go install
		return ""
	}
	text := "commit " + b.Commit
	if b.At != "" {
		text += " of " + b.At
	}
	if b.Changed {
		text += ", with changes that are not committed"
	}
	return text
}
