package api

import (
	"time"

	"github.com/soukhq/souk/core/policy/whatif"
)

// PolicyInfo is a placement policy as it is in force.
type PolicyInfo struct {
	Name        string    `json:"name"`
	Version     int       `json:"version"` // 0: built into souk
	Description string    `json:"description"`
	Summary     string    `json:"summary"` // its filters, and its scores with their weights
	Cost        uint64    `json:"cost"`    // greatest cost of its expressions per worker, in CEL's units
	Default     bool      `json:"default"`
	Shadow      bool      `json:"shadow"`
	Apps        []string  `json:"apps"` // apps that chose it
	At          time.Time `json:"at,omitzero"`
	Of          int       `json:"of,omitempty"` // after a rollback: the version that it restored
	Broken      string    `json:"broken,omitempty"`
}

// PolicyList lists policies.
type PolicyList struct {
	Policies []PolicyInfo `json:"policies"`
}

// PolicyFile is a policy with its file and its stored versions.
type PolicyFile struct {
	PolicyInfo
	Text     string          `json:"text"`
	Versions []PolicyVersion `json:"versions"`
}

// PolicyVersion is a stored version of a policy.
type PolicyVersion struct {
	Version int       `json:"version"`
	At      time.Time `json:"at"`
	Of      int       `json:"of,omitempty"`
}

// PolicyText is a policy file as its author wrote it.
type PolicyText struct {
	Text string `json:"text"`
}

// PolicyQuestion asks what a policy, from a file or an existing one, would place elsewhere. It considers the machines
// that use the policy; if none does, those of the default policy, as if this one were the default.
type PolicyQuestion struct {
	Text   string `json:"text,omitempty"`   // a file, or
	Policy string `json:"policy,omitempty"` // the name of an existing policy
	Back   *int   `json:"back,omitempty"`   // with policy: this version instead of the current one; 0: the previous one

	// at most one of these
	Chosen  bool   `json:"chosen,omitempty"`  // only about machines that it is chosen for
	Default bool   `json:"default,omitempty"` // as if it were the default
	App     string `json:"app,omitempty"`     // as if this app chose it
}

// PolicyApplied is what applying a policy file did.
type PolicyApplied struct {
	Policy  PolicyInfo `json:"policy"`
	Changed bool       `json:"changed"` // false: it was in force already
}

// Rollback is the request to put an earlier version of a policy in force again.
type Rollback struct {
	To int `json:"to,omitempty"` // a version; 0: the previous one
}

// PolicyChoice changes the default and the shadow policy: null leaves one unchanged, "" unsets it.
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
	Scope      string            `json:"scope"` // one sentence: which machines it considers
	Comparison whatif.Comparison `json:"comparison"`
	LeftOut    int               `json:"left_out,omitempty"` // machines beyond the limit, not compared

	// Recorded compares the recorded decisions of the last day; absent: none are recorded.
	Recorded *whatif.Comparison `json:"recorded,omitempty"`
}
