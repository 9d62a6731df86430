package release

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/soukhq/souk/machine"
)

// TestSpecHashesMatchVersion010: ids and specs of releases are what they are in version 0.1.0.
func TestSpecHashesMatchVersion010(t *testing.T) {
	at := time.Date(2026, 11, 26, 8, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		keys map[string]time.Time
		want [3]string
	}{
		{map[string]time.Time{}, [3]string{
			"95ac4c8a97431499373e0854624f1cc1", "08df971c8230cfdc14280389a6b8501e",
			"223b9b76e8a8d8530eb462540efe1886"}},
		{map[string]time.Time{"A": at}, [3]string{
			"1b2330a80eeca4a7bc236e5a40bfbedf", "a22c649b154058e374e9997ed26c4fbe",
			"14be8106ebb234f11deb8d2f36624a8a"}},
	} {
		r := &Release{Schema: Schema, Secrets: 7, Keys: tt.keys, By: "ann", At: at,
			Groups: []Group{{Name: "web", Replicas: 2, Config: &machine.Config{Image: "nginx:1.29"}}}}
		g := &r.Groups[0]
		if got := [3]string{r.ID(), r.Spec(g, 0), r.Spec(g, 3)}; got != tt.want {
			t.Errorf("with secrets %v: %q, not %q", tt.keys, got, tt.want)
		}
	}
}

// TestSpecDependsOnTheSecretsItReads: a spec depends on the secrets that the group reads, and on no others.
func TestSpecDependsOnTheSecretsItReads(t *testing.T) {
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
