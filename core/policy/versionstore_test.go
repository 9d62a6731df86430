package policy_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/core/policy"
	"github.com/soukhq/souk/fault"
)

func source(t testing.TB, text string) *policy.Source {
	t.Helper()
	s, err := policy.Load([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// numbered is a policy that differs from others by n only.
func numbered(t testing.TB, n int) *policy.Source {
	return source(t, fmt.Sprintf("name = 'p'\n[[score]]\nname = 's'\nweight = %d\nbuiltin = 'region'\n", n))
}

func TestVersionStoreNumbersAndRollsBackPolicies(t *testing.T) {
	var s policy.VersionStore
	at := time.Unix(1, 0)
	weight := func() string {
		live, _ := s.Live("p")
		return strings.Fields(strings.Split(live.Text, "weight = ")[1])[0]
	}
	put := func(v policy.Version) {
		for _, old := range s.Excess(v.Policy) {
			s.Remove(old.Policy, old.Number)
		}
		s.Put(v)
	}
	apply := func(n int) int {
		t.Helper()
		v, isNew, err := s.Next(numbered(t, n), at)
		if err != nil {
			t.Fatal(err)
		}
		if isNew {
			put(v)
		}
		return v.Number
	}
	back := func(to int) (policy.Version, error) {
		v, err := s.Rollback("p", to, at)
		if err == nil {
			put(v)
		}
		return v, err
	}
	if _, err := back(0); !fault.Is(err, fault.NotFound) {
		t.Errorf("rolling back nothing gave %v", err)
	}
	if a, b, c := apply(1), apply(2), apply(2); a != 1 || b != 2 || c != 2 {
		t.Errorf("versions %d %d %d: the same text makes no new version", a, b, c)
	}
	apply(3)
	for want, number := 2, 4; want >= 1; want, number = want-1, number+1 { // rolling back twice goes back twice
		if v, err := back(0); err != nil || v.Number != number || v.Of != want || weight() != fmt.Sprint(want) {
			t.Errorf("got %+v, %v, want version %d of %d", v, err, number, want)
		}
	}
	if _, err := back(0); fault.CodeOf(err) != "no_earlier_version" {
		t.Errorf("rolling back the first gave %v", err)
	}
	if v, err := back(3); err != nil || v.Number != 6 || v.Of != 3 || weight() != "3" {
		t.Errorf("back to 3 gave %+v, %v", v, err)
	}
	if _, err := back(99); fault.CodeOf(err) != "policy_version" {
		t.Errorf("back to a version that never was gave %v", err)
	}
	for i := range 40 {
		apply(i)
	}
	if list := s.Versions("p"); len(list) != policy.MaxVersions ||
		list[0].Number != list[len(list)-1].Number-policy.MaxVersions+1 {
		t.Errorf("%d versions are kept", len(list))
	}
	for i := range policy.MaxPolicies + 1 {
		src := source(t, fmt.Sprintf("name = 'p%d'\n[[score]]\nname = 's'\nbuiltin = 'region'\n", i))
		v, _, err := s.Next(src, at)
		if full := i >= policy.MaxPolicies-1; full != fault.Is(err, fault.Exhausted) {
			t.Errorf("policy %d: %v", i, err)
		}
		if err == nil {
			s.Put(v)
		}
	}
}

func TestDiffShowsChangedTerms(t *testing.T) {
	from := source(t, "name = 'p'\nsample = 10\n[[filter]]\nname = 'zone'\nexpr = 'worker.region == "+
		"\"a\"'\n[[score]]\nname = 's'\nweight = 2\nbuiltin = 'region'\n")
	to := source(t, "name = 'p'\n# a comment\nstrategy = 'race'\n[[score]]\nname = 's'\nweight = 3\nbuiltin = "+
		"'region'\n[[score]]\nname = 'new'\nexpr = '1'\n")
	var got []string
	for _, c := range policy.Changes(from, to) {
		got = append(got, c.String())
	}
	want := "- filter zone: worker.region == \"a\"\n~ score s: 2 * region -> 3 * region\n+ score new: 1 * (1)\n~ " +
		"sample: 10 -> 0\n~ strategy: direct -> race"
	if s := strings.Join(got, "\n"); s != want {
		t.Errorf("got\n%s", s)
	}
	golden(t, filepath.Join("testdata", "diff.txt"), policy.TextDiff("p version 1", from.Text, "p version 2", to.Text))
	if policy.TextDiff("a", "x", "a", "x") != "" || len(policy.Changes(to, to)) != 0 {
		t.Error("a policy differs from itself")
	}
}
