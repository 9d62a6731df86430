package catalog

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// readers is a release of three groups: one reads all secrets, one names A, one reads none.
func readers(note string) *release.Release {
	group := func(name string, p machine.ProcessConfig) release.Group {
		return release.Group{Name: name, Replicas: 1,
			Config: &machine.Config{Image: "busybox:" + note, Processes: []machine.ProcessConfig{p}}}
	}
	return &release.Release{Schema: release.Schema, Note: note, Groups: []release.Group{
		group("all", machine.ProcessConfig{}),
		group("one", machine.ProcessConfig{Secrets: []machine.SecretRef{{EnvVar: "A"}}}),
		group("none", machine.ProcessConfig{IgnoreAppSecrets: true})}}
}

// plain is a machine that is no replica of a service, and reads all secrets.
func plain(app string) *machine.Machine { return &machine.Machine{App: app, Config: &machine.Config{}} }

// replica is a machine of a group as a release has it.
func replica(r *release.Release, group string, restarted uint64) *machine.Machine {
	g := r.Group(group)
	return &machine.Machine{App: "shop", Config: g.Config,
		Replica: &machine.Replica{Group: group, Release: r.ID(), Spec: r.Spec(g, restarted)}}
}

// vault is a service at two members, and what the machines of each of its releases are to read.
type vault struct {
	all    []*teller
	newest map[string]string
	of     map[string]map[string]string // by release
	at     time.Time
	values int
}

func (v *vault) head(t *rapid.T) *release.Head {
	s, there := v.all[0].Services.Service("shop")
	if !there || s.Head == nil {
		t.Fatal("the service is gone")
	}
	return s.Head
}

// inForce returns what the machines of the release in force read.
func (v *vault) inForce(t *rapid.T) map[string]string {
	s, _ := v.all[0].Services.Service("shop")
	r, _ := s.InForce()
	return v.of[r.ID()]
}

// draw draws a change of secrets, and returns it with what there is then of those in before.
func (v *vault) draw(t *rapid.T) (values map[string]*string, names []string) {
	values = map[string]*string{}
	some := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"A", "B", "C"}), 1, 3, rapid.ID)
	for _, name := range some.Draw(t, "names") {
		if rapid.IntRange(0, 3).Draw(t, "unset") == 0 {
			values[name] = nil
			continue
		}
		v.values++
		value := fmt.Sprint("value ", v.values)
		if old, there := v.newest[name]; there && rapid.IntRange(0, 3).Draw(t, "same") == 0 {
			value = old
		}
		values[name] = &value
	}
	return values, slices.Sorted(maps.Keys(values))
}

func changed(old map[string]string, values map[string]*string) map[string]string {
	out := maps.Clone(old)
	for name, value := range values {
		if delete(out, name); value != nil {
			out[name] = *value
		}
	}
	return out
}

// check fails where a machine of the release that is wanted, or of that from before, reads other values than when the
// release was made; or where a value is kept that none of them has.
func (v *vault) check(t *rapid.T) {
	for len(v.all[0].told)+len(v.all[1].told) > 0 {
		for i, x := range v.all {
			rows := x.told
			x.told = nil
			for _, r := range rows {
				if err := v.all[1-i].Import(r.bucket, r.key, known(r.value)); err != nil {
					t.Fatalf("%s/%s: %v", r.bucket, r.key, err)
				}
			}
		}
	}
	for member, c := range v.all {
		s, _ := c.Services.Service("shop")
		pinned := map[string]bool{}
		for _, r := range []*release.Release{s.Release, s.Before} {
			if r == nil {
				continue
			}
			for name, at := range r.Keys {
				pinned[oldKey(name, at)] = true
			}
			want := v.of[r.ID()]
			all := slices.Collect(maps.Keys(want))
			for group, names := range map[string][]string{"all": all, "one": {"A"}, "none": nil} {
				got, err := c.Secrets.OpenSecrets(replica(r, group, 0))
				for name, value := range got {
					if want[name] != value || !slices.Contains(names, name) {
						t.Fatalf("member %d, release %s: group %s reads %s = %q, not %q", member, r.Note, group, name,
							value, want[name])
					}
				}
				if err != nil || len(got) != len(names) {
					t.Fatalf("member %d, release %s: group %s reads %v of %v, %v", member, r.Note, group, got, want,
						err)
				}
			}
		}
		for key := range c.Secrets.old.byApp["shop"] {
			if !pinned[key] {
				t.Fatalf("member %d keeps %s, which no release has", member, key)
			}
		}
		if whole := string(encode(s.Release)); strings.Contains(whole, "value ") {
			t.Fatalf("a release tells a value: %s", whole)
		}
	}
}

// TestMachinesReadTheSecretsOfTheirRelease: after any sets, deploys, undos and rollbacks, machines of the current and
// the former release read the secrets of their release at each member; no other values are kept.
func TestMachinesReadTheSecretsOfTheirRelease(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		v := &vault{all: []*teller{newTeller(t), newTeller(t)}, newest: map[string]string{"A": "value 0"},
			of: map[string]map[string]string{}, at: morning}
		c := v.all[0]
		_, err := c.Apps.CreateApp("shop", "", "", "")
		zero := "value 0"
		if err == nil {
			_, _, err = c.Secrets.SetSecrets("shop", map[string]*string{"A": &zero})
		}
		if err == nil {
			_, err = c.Services.Deploy("shop", readers("0"), "ann", nil, nil, v.at)
		}
		if err != nil {
			t.Fatal(err)
		}
		v.of[v.head(rt).Release] = maps.Clone(v.newest)
		any := func(rt *rapid.T) *teller { return rapid.SampledFrom(v.all).Draw(rt, "member") }
		end := func(rt *rapid.T, undo bool) {
			h := v.head(rt)
			p := release.Progress{Rollout: h.Rollout, Release: h.Release, State: release.Done,
				Undo: undo && h.Before != nil}
			if err := any(rt).Services.SetTenure("shop", release.Tenure{Term: cluster.Term{Number: 1, Member: "m"},
				Notes: release.Notes{Progress: p}}); err != nil {
				rt.Fatal(err)
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"": func(rt *rapid.T) { v.at = v.at.Add(time.Second); v.check(rt) },
			"store": func(rt *rapid.T) {
				values, _ := v.draw(rt)
				if _, _, err := any(rt).Secrets.SetSecrets("shop", values); err != nil {
					rt.Fatal(err)
				}
				v.newest = changed(v.newest, values)
			},
			"roll": func(rt *rapid.T) {
				values, _ := v.draw(rt)
				was := v.inForce(rt)
				x, err := any(rt).Services.RollSecrets("shop", values, "ann", nil, v.at)
				if fault.CodeOf(err) == "no_secret" { // A is to go, which a group names
					return
				}
				if err != nil {
					rt.Fatal(err)
				}
				v.newest = changed(v.newest, values)
				if x.Head != nil {
					v.of[x.Head.Release] = changed(was, values)
				}
			},
			"deploy the newest": func(rt *rapid.T) {
				x, err := any(rt).Services.RollSecrets("shop", nil, "ann", nil, v.at)
				if err == nil && x.Head != nil {
					v.of[x.Head.Release] = maps.Clone(v.newest)
				}
			},
			"deploy": func(rt *rapid.T) {
				h, err := any(rt).Services.Deploy("shop", readers(fmt.Sprint(v.at.Unix())), "ann", nil, nil, v.at)
				if _, there := v.newest["A"]; there != (err == nil) {
					rt.Fatal(err)
				}
				if err == nil {
					v.of[h.Release] = maps.Clone(v.newest)
				}
			},
			"end":  func(rt *rapid.T) { end(rt, false) },
			"undo": func(rt *rapid.T) { end(rt, true) },
			"roll back": func(rt *rapid.T) {
				list, err := any(rt).Services.Releases("shop")
				if err != nil {
					rt.Fatal(err)
				}
				list = slices.DeleteFunc(list, func(e ReleaseEntry) bool { return e.Body == nil }) // too old to be kept
				to := rapid.SampledFrom(list).Draw(rt, "to").Release
				h, renewed, err := any(rt).Services.Rollback("shop", to, "ann", nil, v.at)
				if fault.CodeOf(err) == "no_secret" {
					return
				}
				if err != nil {
					rt.Fatal(err)
				}
				if _, known := v.of[h.Release]; !known {
					v.of[h.Release] = maps.Clone(v.of[to])
					for _, name := range renewed {
						if delete(v.of[h.Release], name); v.newest[name] != "" {
							v.of[h.Release][name] = v.newest[name]
						}
					}
				}
			},
		})
	})
}

// TestReplacedSecretKeepsTheReleasedValue: a member that knows of no head, and so keeps no earlier values, changes or deletes a secret.
// Machines of the current release still read the value they had, and the other members learn of the change.
func TestReplacedSecretKeepsTheReleasedValue(t *testing.T) {
	for _, gone := range []bool{false, true} {
		a, b := newTeller(t), newTeller(t)
		one, two := "one", "two"
		_, err := a.Apps.CreateApp("shop", "", "", "")
		if err == nil {
			_, _, err = a.Secrets.SetSecrets("shop", map[string]*string{"A": &one})
		}
		if err == nil {
			_, err = a.Services.Deploy("shop", readers("1"), "ann", nil, nil, morning)
		}
		if err != nil {
			t.Fatal(err)
		}
		b.hear(t, a.told...)
		a.told, b.told = nil, nil
		next := &two
		if gone {
			next = nil
		}
		if _, _, err := a.Secrets.SetSecrets("shop", map[string]*string{"A": next}); err != nil {
			t.Fatal(err)
		}
		for _, x := range a.told {
			if x.bucket == bucketSecret {
				b.hear(t, x)
			}
		}
		s, _ := b.Services.Service("shop")
		if got, err := b.Secrets.OpenSecrets(replica(s.Release, "one", 0)); err != nil || got["A"] != "one" {
			t.Errorf("gone %v: %v, %v", gone, got, err)
		}
		if len(b.told) != 1 || b.told[0].bucket != bucketOldSecret {
			t.Errorf("gone %v: told %v", gone, b.told)
		}
	}
}

// TestReleaseNeedsItsSecretsToExist: a release that names a secret is refused if the secret does not exist, and a secret that a
// release names cannot be deleted.
func TestReleaseNeedsItsSecretsToExist(t *testing.T) {
	x := withApp(t, "shop")
	before := len(x.journal.all)
	if _, err := x.Services.Deploy("shop", readers("1"), "ann", nil, nil, morning); fault.CodeOf(err) != "no_secret" ||
		!strings.Contains(err.Error(), "group one reads the secret A") {
		t.Fatal(err)
	}
	reads := release.Change{New: readers("1"), By: "ann", At: morning}
	if _, err := x.Services.Foresee("nobody", reads); fault.CodeOf(err) != "no_secret" {
		t.Fatal(err)
	}
	file := "FILE"
	r := wantedRelease("1", 1)
	r.Groups[0].Config.Files = []machine.File{{GuestPath: "/f", SecretName: &file}}
	if _, err := x.Services.Deploy("shop", r, "ann", nil, nil, morning); fault.CodeOf(err) != "no_secret" {
		t.Fatal(err)
	}
	if len(x.journal.all) != before {
		t.Fatal("a refused deploy is written")
	}
	value := "v"
	if _, _, err := x.Secrets.SetSecrets("shop", map[string]*string{"A": &value, "B": &value}); err != nil {
		t.Fatal(err)
	}
	h, err := x.Services.Deploy("shop", readers("1"), "ann", nil, nil, morning)
	if err != nil {
		t.Fatal(err)
	}
	before = len(x.journal.all)
	_, err = x.Services.RollSecrets("shop", map[string]*string{"A": nil}, "ann", nil, morning)
	if fault.CodeOf(err) != "no_secret" {
		t.Fatal(err)
	}
	if len(x.journal.all) != before {
		t.Fatal("a refused change is written")
	}
	rolled, err := x.Services.RollSecrets("shop", map[string]*string{"B": nil}, "ann", nil, morning)
	if err != nil || !slices.Equal(rolled.Groups, []string{"all"}) || rolled.Head.Why != release.WhySecrets ||
		rolled.Head.Before != nil && rolled.Head.Before.Release == h.Release {
		t.Fatalf("%+v, %v", rolled, err)
	}
	raw, err := json.Marshal(x.Services.releases.get("shop/" + rolled.Head.Release).Keys)
	if err != nil || !strings.HasPrefix(string(raw), `{"A":"20`) {
		t.Fatalf("%s, %v", raw, err)
	}
}

// TestTaskSecretsAreLateOrGone: a member that has not heard of a secret yet is told apart from one where it is gone.
func TestTaskSecretsAreLateOrGone(t *testing.T) {
	a, b := newTeller(t), newTeller(t)
	one, two := "one", "two"
	if _, err := a.Apps.CreateApp("shop", "", "", ""); err != nil {
		t.Fatal(err)
	}
	b.hear(t, a.told...)
	a.told = nil
	version, _, err := a.Secrets.SetSecrets("shop", map[string]*string{"A": &one, "B": &two})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := a.Secrets.OpenNamed("shop", []string{"A"}, version); err != nil || len(got) != 1 || got["A"] != one {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := b.Secrets.OpenNamed("shop", []string{"A"}, version); fault.CodeOf(err) != codeSecretMissing ||
		!fault.Is(err, fault.Unavailable) {
		t.Errorf("before it is there: %v", err)
	}
	b.hear(t, a.told...)
	if got, err := b.Secrets.OpenNamed("shop", []string{"A", "B"}, version); err != nil || got["B"] != two {
		t.Errorf("%v, %v", got, err)
	}
	if _, _, err := b.Secrets.SetSecrets("shop", map[string]*string{"A": nil}); err != nil {
		t.Fatal(err)
	}
	for app, code := range map[string]fault.Code{"shop": fault.CodeSecret, "other": fault.CodeAppNotFound} {
		if _, err := b.Secrets.OpenNamed(app, []string{"A"}, version); fault.CodeOf(err) != code ||
			!fault.Is(err, fault.NotFound) {
			t.Errorf("gone of %s: %v", app, err)
		}
	}
}
