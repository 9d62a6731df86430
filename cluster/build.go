package cluster

import "strings"

// Build says from which source a souk program was built.
type Build struct {
	Version string `json:"version"`               // the release, or with -dev: what will become that release
	Commit  string `json:"commit,omitempty"`      // "": unknown
	At      string `json:"commit_time,omitempty"` // RFC 3339
	Changed bool   `json:"changed,omitempty"`     // the checkout had uncommitted changes
}

// String returns the version, and for unreleased builds the commit: 0.1.0-dev+7c24b53e5678.
func (b Build) String() string {
	const short = 12
	if b.Released() || len(b.Commit) < short {
		return b.Version
	}
	return b.Version + "+" + b.Commit[:short]
}

// unreleased ends the versions of builds that are not a release's.
const unreleased = "-dev"

// Released reports whether the build is that of a release.
func (b Build) Released() bool { return !strings.HasSuffix(b.Version, unreleased) }

// Unreleased returns the version of builds that lead up to a release.
func Unreleased(release string) string { return release + unreleased }
