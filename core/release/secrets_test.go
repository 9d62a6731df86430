package release

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/machine"
)

// TestAnUpgradeRestartsNothing: ids and specs of releases that an earlier souk made are what they were there.
func TestAnUpgradeRestartsNothing(t *testing.T) {
	for secrets, want := range map[uint64][3]string{
		0: {"f1ecf8ee57dacf425726851f25a23d44", "9bb4665eb2818454837bc3eb63d6a78d", "72a061ca731cc77133bec263aa9c0cdf"},
		7: {"aae1e9da4e191766abb5d25b5b89f7e6", "18ba1aec92246299b977e8d8971bf27c", "7a00d5063b2b77f488cdd26a20f7a34a"},
	} {
		r := &Release{Schema: Schema, Secrets: secrets, By: "ann", At: time.Date(2026, 11, 26, 8, 0, 0, 0, time.UTC),
			Groups: []Group{{Name: "web", Replicas: 2, Config: &machine.Config{Image: "nginx:1.29"}}}}
		g := &r.Groups[0]
		if got := [3]string{r.ID(), r.Spec(g, 0), r.Spec(g, 3)}; got != want {
			t.Errorf("with secrets %d: %q, not %q", secrets, got, want)
		}
		r.Keys = map[string]time.Time{} // an app without secrets: its machines stay as the first souk made them
		if secrets == 0 && r.Spec(g, 0) != want[1] {
			t.Error("a release without a key has other machines")
		}
		if raw, err := json.Marshal(r); err != nil || !strings.Contains(string(raw), `"keys":{}`) {
			t.Errorf("%s, %v", raw, err)
		}
	}
}

// TestWhoReadsASecret: a spec depends on the secrets that the group reads, and on no others.
func TestWhoReadsASecret(t *testing.T) {
	name := "A"
	r := &Release{Schema: Schema}
	for group, c := range map[string]*machine.Config{
		"all": {},
		"a":   {Processes: []machine.ProcessConfig{{Secrets: []machine.SecretRef{{EnvVar: "X", Name: "A"}}}}},
		"file": {Files: []machine.File{{GuestPath: "/a", SecretName: &name}},
			Processes: []machine.ProcessConfig{{IgnoreAppSecrets: true}}},
		"b":    {Processes: []machine.ProcessConfig{{Secrets: []machine.SecretRef{{EnvVar: "B"}}}}},
		"none": {Processes: []machine.ProcessConfig{{IgnoreAppSecrets: true}}},
	} {
		r.Groups = append(r.Groups, Group{Name: group, Replicas: 1, Config: c})
	}
	at := time.Date(2026, 11, 26, 8, 0, 0, 0, time.UTC)
	keys := map[string]time.Time{"A": at, "B": at}
	before, lacking := r.Keyed(keys)
	if len(lacking) > 0 || len(before.Keys) != 2 {
		t.Fatal(before.Keys, lacking)
	}
	for _, tt := range []struct {
		edit func(map[string]time.Time)
		want []string
	}{
		{func(map[string]time.Time) {}, nil},
		{func(k map[string]time.Time) { k["A"] = at.Add(1) }, []string{"a", "all", "file"}},
		{func(k map[string]time.Time) { k["B"] = at.Add(1) }, []string{"all", "b"}},
		{func(k map[string]time.Time) { k["C"] = at }, []string{"all"}},
	} {
		next := maps.Clone(keys)
		tt.edit(next)
		after, _ := r.Keyed(next)
		var other []string
		for i := range r.Groups {
			if g := &r.Groups[i]; before.Spec(g, 0) != after.Spec(g, 0) {
				other = append(other, g.Name)
			}
		}
		slices.Sort(other)
		if got := after.Reread(before); !slices.Equal(got, tt.want) || !slices.Equal(other, tt.want) {
			t.Errorf("%v: %v, specs %v, not %v", next, got, other, tt.want)
		}
	}
	_, lacking = r.Keyed(map[string]time.Time{"B": at})
	if len(lacking) != 2 || lacking["a"][0] != "A" || lacking["file"][0] != "A" {
		t.Error(lacking)
	}
}
