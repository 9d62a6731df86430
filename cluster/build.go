package cluster

import "strings"

// Build is which souk a program is.
type Build struct {
	Version string `json:"version"`               // of the release; with -dev behind it: of what is to become it
	Commit  string `json:"commit,omitempty"`      // "": it was built without
	At      string `json:"commit_time,omitempty"` // RFC 3339
	Changed bool   `json:"changed,omitempty"`     // the checkout had changes that were not committed
}

// String returns the version, and of what is not released the commit: 0.1.0-dev+7c24b53e5678.
func (b Build) String() string {
	const short = 12
	if b.Released() || len(b.Commit) < short {
		return b.Version
	}
	return b.Version + "+" + b.Commit[:short]
}

// unreleased is how the versions end of builds that are no release's.
const unreleased = "-dev"

// Released reports whether the build is a release's.
func (b Build) Released() bool { return !strings.HasSuffix(b.Version, unreleased) }

// Unreleased returns the version of builds of what is to become a release.
func Unreleased(release string) string { return release + unreleased }
