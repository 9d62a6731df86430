package cli

import (
	"runtime/debug"
)

// Build is what Go recorded of the build of a program.
type Build struct {
	Version string `json:"version"`               // a tag, else a pseudo-version with the commit and its date, else devel
	Commit  string `json:"commit,omitempty"`      // "": it was built without
	At      string `json:"commit_time,omitempty"` // RFC 3339
	Changed bool   `json:"changed,omitempty"`     // the checkout had changes that were not committed
}

// unversioned is the version of a build that says nothing of its source.
const unversioned = "devel"

// Version returns the version of this program.
func Version() string { return ThisBuild().Version }

// ThisBuild returns what is known of this program.
func ThisBuild() Build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return Build{Version: unversioned}
	}
	return buildOf(info)
}

func buildOf(info *debug.BuildInfo) (b Build) {
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
	const short = 12
	switch v := info.Main.Version; {
	case v != "" && v != "(devel)":
		b.Version = v
	case len(b.Commit) >= short: // of a checkout in which Go finds no version
		b.Version = unversioned + "-" + b.Commit[:short]
	default:
		b.Version = unversioned
	}
	return b
}

// Source says of which commit a build is, or why that is not known.
func (b Build) Source() string {
	switch {
	case b.Commit == "" && b.Version == unversioned:
		return `built without its commit, which "make build" in a git checkout notes, and "go run" does not, nor Go in a ` +
			"worktree of git"
	case b.Commit == "": // installed with go install, or built of a module
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
