package policy

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/soukhq/souk/fault"
)

// The codes of this package's errors.
const (
	CodePolicyNotFound  fault.Code = "policy_not_found"  // no policy has this name
	CodePolicyVersion   fault.Code = "policy_version"    // the policy has no such version
	codeTooManyPolicies fault.Code = "too_many_policies" // the limit of policies is reached
)

// Bounds of a VersionStore: 64 MiB of text at most.
const (
	MaxPolicies = 64
	MaxVersions = 16 // kept of each policy; the oldest goes first
)

// Version is one version of a policy as it was applied. Versions of a policy are numbered from 1 and never change.
type Version struct {
	Policy string    `json:"policy"`
	Number int       `json:"version"`
	Text   string    `json:"text"`
	At     time.Time `json:"at"`
	Of     int       `json:"of,omitempty"` // of a rollback: the version that has the text
}

// VersionStore keeps the versions of policies. The zero VersionStore is empty. Next and Rollback return the version
// that would come next and change nothing; Put adds it, so its owner can make it durable in between.
type VersionStore struct {
	versions map[string][]Version // oldest first
}

// Put adds a version that was loaded, or that Next or Rollback returned. It replaces one of the same number.
func (s *VersionStore) Put(v Version) {
	if s.versions == nil {
		s.versions = map[string][]Version{}
	}
	list := slices.DeleteFunc(slices.Clone(s.versions[v.Policy]),
		func(old Version) bool { return old.Number == v.Number })
	list = append(list, v)
	slices.SortFunc(list, func(a, b Version) int { return a.Number - b.Number })
	s.versions[v.Policy] = list
}

// Excess returns the oldest versions of a policy, which must be removed before another is put, so that MaxVersions are
// kept.
func (s *VersionStore) Excess(name string) []Version {
	list := s.versions[name]
	return slices.Clone(list[:max(0, len(list)+1-MaxVersions)])
}

// Remove removes one version of a policy, and the policy with its last version.
func (s *VersionStore) Remove(name string, number int) {
	list := slices.DeleteFunc(slices.Clone(s.versions[name]), func(v Version) bool { return v.Number == number })
	if s.versions[name] = list; len(list) == 0 {
		delete(s.versions, name)
	}
}

// Names lists the policies in order.
func (s *VersionStore) Names() []string { return slices.Sorted(maps.Keys(s.versions)) }

// Versions returns the kept versions of a policy, oldest first.
func (s *VersionStore) Versions(name string) []Version { return slices.Clone(s.versions[name]) }

// Live returns the newest version of a policy.
func (s *VersionStore) Live(name string) (Version, bool) {
	list := s.versions[name]
	if len(list) == 0 {
		return Version{}, false
	}
	return list[len(list)-1], true
}

// Get returns one version of a policy, 0 for the newest. The error is fault.NotFound.
func (s *VersionStore) Get(name string, number int) (Version, error) {
	list := s.versions[name]
	for _, v := range slices.Backward(list) {
		if number == 0 || v.Number == number {
			return v, nil
		}
	}
	if len(list) == 0 {
		return Version{}, fault.New(fault.NotFound, CodePolicyNotFound,
			"there is no policy %q; \"souk policy ls\" lists them", clipText(name))
	}
	return Version{}, fault.New(fault.NotFound, CodePolicyVersion, "policy %s has no version %d; kept are %d to %d",
		name, number, list[0].Number, list[len(list)-1].Number)
}

// Next returns the version that applying a source makes. isNew is false if the live version has the same content.
func (s *VersionStore) Next(src *Source, at time.Time) (v Version, isNew bool, err error) {
	live, there := s.Live(src.Name)
	if there && live.Text == src.Text {
		return live, false, nil
	}
	if !there && len(s.versions) >= MaxPolicies {
		return v, false, &fault.Error{Kind: fault.Exhausted, Code: codeTooManyPolicies, Scope: fault.ScopeQuota,
			Text: fmt.Sprintf("there are %d policies, the most that are kept; apply a new version of one of them "+
				"instead", MaxPolicies)}
	}
	return Version{Policy: src.Name, Number: live.Number + 1, Text: src.Text, At: at}, true, nil
}

// Rollback returns a new version with the text of version to, 0 for the one before the live one. Numbers only grow;
// rolling back again goes further back.
func (s *VersionStore) Rollback(name string, to int, at time.Time) (Version, error) {
	live, err := s.Get(name, 0)
	if err != nil {
		return live, err
	}
	target := Version{}
	if to != 0 {
		if target, err = s.Get(name, to); err != nil {
			return target, err
		}
	}
	for _, v := range s.versions[name] {
		if to == 0 && v.Of == 0 && v.Number < live.firstApplied() {
			target = v // the last match wins
		}
	}
	if target.Number == 0 {
		return target, fault.New(fault.Precondition, fault.CodeNoEarlierVersion,
			"policy %s is at version %d, and no earlier one is kept", name, live.Number)
	}
	return Version{Policy: name, Number: live.Number + 1, Text: target.Text, At: at, Of: target.firstApplied()}, nil
}

// firstApplied returns the version in which the text was first applied.
func (v Version) firstApplied() int {
	if v.Of != 0 {
		return v.Of
	}
	return v.Number
}
