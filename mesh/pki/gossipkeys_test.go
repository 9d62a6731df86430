package pki

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/soukhq/souk/fault"
)

// held by a test: which keys there are, by how old they are.
func names(k GossipKeys, known [][]byte) (keys, retired string) {
	name := func(list [][]byte) string {
		var out []string
		for _, x := range list {
			out = append(out, string(rune('a'+
				slices.IndexFunc(known, func(y []byte) bool { return string(x) == string(y) }))))
		}
		return strings.Join(out, "")
	}
	return name(k.Keys), name(k.Retired)
}

// TestGossipKeyRotationStepsShareAKey: each step, what it refuses, and that at no time two neighbouring steps lack a key in common.
func TestGossipKeyRotationStepsShareAKey(t *testing.T) {
	ca := newCA(t)
	k, err := ca.Gossip()
	must(t, err)
	known := k.Keys
	if _, err := ca.AdvanceGossip(0); !fault.Is(err, fault.Precondition) {
		t.Error("a step of no rotation:", err)
	}
	for round := range 2 {
		before := k
		for _, want := range []struct {
			step          Step
			keys, retired string
		}{{StepInstalled, "ab", ""}, {StepUsed, "ba", ""}, {"", "b", "a"}} {
			if want.step == StepInstalled {
				k, err = ca.RotateGossip(time.Now())
				known = append(known, k.Keys[len(k.Keys)-1])
			} else {
				k, err = ca.AdvanceGossip(before.Generation)
			}
			must(t, err)
			last := known[round:]
			keys, retired := names(GossipKeys{Keys: k.Keys, Retired: k.Retired[:min(1, len(k.Retired))]}, last)
			if round == 1 && want.step != "" {
				retired = "" // that of the first rotation
			}
			if keys != want.keys || retired != want.retired || k.Step != want.step || k.Generation != before.Generation+
				1 {
				t.Errorf("rotation %d, %q: keys %s, retired %s, %q, generation %d", round, want.step, keys, retired,
					k.Step, k.Generation)
			}
			for _, pair := range [][2]GossipKeys{{before, k}, {k, before}} {
				if !slices.ContainsFunc(pair[1].Keys,
					func(x []byte) bool { return string(x) == string(pair[0].Keys[0]) }) {
					t.Errorf("rotation %d, %q: what one writes the other cannot read", round, want.step)
				}
			}
			if on, err := ca.Gossip(); err != nil || cmp.Diff(k, on) != "" {
				t.Errorf("on disk: %v %s", err, cmp.Diff(k, on))
			}
			if _, err := ca.RotateGossip(time.Now()); (k.Step != "") != fault.Is(err, fault.Conflict) {
				t.Errorf("another rotation at step %q: %v", k.Step, err)
			}
			if k.Step == "" {
				must(t, os.WriteFile(ca.path(gossipFile), k.encodePEM(), 0o600)) // as it was
			}
			if _, err := ca.AdvanceGossip(before.Generation); k.Step != "" && !fault.Is(err, fault.Conflict) {
				t.Errorf("a step that is over, at %q: %v", k.Step, err)
			}
			before = k
		}
	}
	if len(k.All()) != 3 || len(k.Keys) != 1 || len(k.Retired) != 2 {
		t.Errorf("after two rotations there are %d keys and %d retired", len(k.Keys), len(k.Retired))
	}
}

// TestOlderGossipKeysAreRefused: a copy of the CA from before a rotation does not take members back to the old keys,
// and adopts the new ones.
func TestOlderGossipKeysAreRefused(t *testing.T) {
	ca, now := newCA(t), begin()
	w := member(t, ca, now, "w1", Worker)
	old, err := ca.Bundle()
	must(t, err)
	stale := &CA{dir: t.TempDir()}
	must(t, os.CopyFS(stale.dir, os.DirFS(ca.dir)))
	_, err = ca.RotateGossip(time.Now())
	must(t, err)
	next, err := ca.Bundle()
	must(t, err)
	must(t, w.Trust(next, now))
	must(t, w.Trust(old, now))
	if k := w.GossipKeys(); k.Generation != 1 || len(k.Keys) != 2 {
		t.Errorf("an older bundle was taken: %+v", k)
	}
	again, err := Load(w.dir)
	must(t, err)
	if d := cmp.Diff(w.GossipKeys(), again.GossipKeys()); d != "" {
		t.Error("on disk:", d)
	}
	must(t, stale.AdoptGossip(w.GossipKeys()))
	if k, err := stale.Gossip(); err != nil || k.Generation != 1 || k.Step != "" || len(k.Keys) != 2 {
		t.Errorf("the copy did not follow: %+v, %v", k, err)
	}
	must(t, stale.AdoptGossip(GossipKeys{}))
	if k, err := stale.Gossip(); err != nil || k.Generation != 1 {
		t.Errorf("the copy went back: %+v, %v", k, err)
	}
}

// TestInvalidGossipKeysAreRefused: what is no file of keys is refused.
func TestInvalidGossipKeysAreRefused(t *testing.T) {
	good := string(GossipKeys{Generation: 3, Keys: [][]byte{make([]byte, gossipKeySize)}}.encodePEM())
	for _, raw := range []string{strings.Replace(good, "3", "three", 1),
		string(GossipKeys{Keys: [][]byte{[]byte("short")}}.encodePEM())} {
		if b, err := parseBlocks([]byte(raw), "keys"); !fault.Is(err, fault.Invalid) {
			t.Errorf("%q gives %+v, %v", raw, b.gossip, err)
		}
	}
}
