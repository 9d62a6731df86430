package api

import (
	"time"

	"github.com/soukhq/souk/core/policy/whatif"
)

// PolicyInfo is a placement policy as it is in force.
type PolicyInfo struct {
	Name        string    `json:"name"`
	Version     int       `json:"version"` // 0: it comes with souk
	Description string    `json:"description"`
	Summary     string    `json:"summary"` // its filters, and its scores with their weights
	Cost        uint64    `json:"cost"`    // of its expressions on one worker at most, in CEL's units
	Default     bool      `json:"default"`
	Shadow      bool      `json:"shadow"`
	Apps        []string  `json:"apps"` // that chose it
	At          time.Time `json:"at,omitzero"`
	Of          int       `json:"of,omitempty"` // of a rollback: the version that it went back to
	Broken      string    `json:"broken,omitempty"`
}

// PolicyList lists policies.
type PolicyList struct {
	Policies []PolicyInfo `json:"policies"`
}

// PolicyFile is a policy with its file and the versions that are kept.
type PolicyFile struct {
	PolicyInfo
	Text     string          `json:"text"`
	Versions []PolicyVersion `json:"versions"`
}

// PolicyVersion is a version of a policy that is kept.
type PolicyVersion struct {
	Version int       `json:"version"`
	At      time.Time `json:"at"`
	Of      int       `json:"of,omitempty"`
}

// PolicyText is a policy file as its author wrote it.
type PolicyText struct {
	Text string `json:"text"`
}

// PolicyQuestion asks what a policy would place elsewhere: that of a file, or one that is there. It is asked about the
// machines that it is chosen for; where nobody chose it, about those of the default, as if it were that.
type PolicyQuestion struct {
	Text   string `json:"text,omitempty"`   // a file; else
	Policy string `json:"policy,omitempty"` // the name of one that is there
	Back   *int   `json:"back,omitempty"`   // with policy: not the version in force but this one; 0: the one before

	// at most one of these
	Chosen  bool   `json:"chosen,omitempty"`  // only about machines that it is chosen for
	Default bool   `json:"default,omitempty"` // as if it were the default from now on
	App     string `json:"app,omitempty"`     // as if this app chose it
}

// PolicyApplied is what applying a policy file did.
type PolicyApplied struct {
	Policy  PolicyInfo `json:"policy"`
	Changed bool       `json:"changed"` // false: it was in force already
}

// Rollback is the request to put an earlier version of a policy in force again.
type Rollback struct {
	To int `json:"to,omitempty"` // a version; 0: the one before
}

// PolicyChoice changes the default and the shadow policy: null leaves one as it is, "" gives it up.
type PolicyChoice struct {
	Default *string `json:"default,omitempty"`
	Shadow  *string `json:"shadow,omitempty"`
}

// AppPolicy is the policy that an app chose.
type AppPolicy struct {
	Policy string `json:"policy"` // "": the default
}

// PolicyPlan is what a policy would place elsewhere.
type PolicyPlan struct {
	Policy     string            `json:"policy"`
	Scope      string            `json:"scope"` // one sentence: which machines it was asked about
	Comparison whatif.Comparison `json:"comparison"`
	LeftOut    int               `json:"left_out,omitempty"` // machines beyond the most that are compared

	// Recorded is the same for the decisions of the last day; absent where none is recorded.
	Recorded *whatif.Comparison `json:"recorded,omitempty"`
}
