package check

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/core/decision"
	"github.com/soukhq/souk/core/decision/decisiontest"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/store/decisionlog"
)

// recorded writes a log of decisions over random fleets; with may change one before it is written.
func recorded(t *testing.T, n uint64, with func(*decision.Decision)) (dir string) {
	t.Helper()
	dir = t.TempDir()
	log, err := decisionlog.Open(decisionlog.Options{Dir: dir, MaxBytes: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	for seed := range n {
		rng := rand.New(rand.NewPCG(seed, 1))
		fleet := decisiontest.Fleet(rng, 1+rng.IntN(20))
		r := decisiontest.Request(rng, fleet)
		b, err := decisiontest.Buy(rng, r, fleet, decisiontest.Age(rng, fleet), placement.Default())
		id := "D" + string(rune('A'+seed))
		d := decision.From(decision.Observation{
			ID:       id,
			At:       decisiontest.Epoch().Add(time.Duration(seed) * time.Second),
			Why:      decision.Create,
			Purchase: b.Purchase(),
			Err:      err,
		})
		d.Policy = decision.Policy{Name: "default"}
		with(d)
		if !log.Append(d) {
			t.Fatal("the log took a decision for too much")
		}
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

func byDefault(p decision.Policy) (placement.Policy, bool) {
	return placement.Default(), p.Name == "default"
}

// TestCheckRecomputesDecisionsAndFindsTampering (invariant 9): a log as it was written is found well, and each kind of lie in one is
// found.
func TestCheckRecomputesDecisionsAndFindsTampering(t *testing.T) {
	for _, tt := range []struct {
		name string
		lie  func(*decision.Decision) (told bool)
		want string
	}{
		{"as it was", func(*decision.Decision) bool { return false }, ""},
		{"a score", func(d *decision.Decision) bool {
			for i := range d.Considered {
				if d.Considered[i].Fits {
					d.Considered[i].Score++
					return true
				}
			}
			return false
		}, "the score is recorded as"},
		{"a clause", func(d *decision.Decision) bool {
			for i := range d.Considered {
				if f := d.Considered[i].Failing; len(f) > 0 {
					f[0].Had = "nothing"
					return true
				}
			}
			return false
		}, "and the judge says"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			lies := 0
			dir := recorded(t, 20, func(d *decision.Decision) {
				if lies == 0 && tt.lie(d) {
					lies++
				}
			})
			i, notes, err := Decisions(t.Context(), dir, byDefault)
			if err != nil || len(notes) > 0 {
				t.Fatalf("%v, %v", notes, err)
			}
			if i.OK != (lies == 0) || (tt.want != "") != (lies == 1) {
				t.Fatalf("%d lies, and it is %v: %q", lies, i.OK, i.Evidence)
			}
			if tt.want != "" && !strings.Contains(i.Evidence[0], tt.want) {
				t.Errorf("the evidence is %q, want %q in it", i.Evidence[0], tt.want)
			}
			if !strings.HasPrefix(i.Checked, "20 decisions") {
				t.Errorf("checked %q", i.Checked)
			}
		})
	}
}

// TestCheckReportsUnknownPoliciesWithoutJudging: a decision of a policy that is not known is neither right nor wrong.
func TestCheckReportsUnknownPoliciesWithoutJudging(t *testing.T) {
	dir := recorded(t, 4, func(d *decision.Decision) {
		if d.ID == "DB" {
			d.Policy = decision.Policy{Name: "ours", Version: 7}
		}
	})
	i, notes, err := Decisions(t.Context(), dir, byDefault)
	if err != nil || !i.OK || !strings.HasPrefix(i.Checked, "3 decisions") {
		t.Errorf("%+v, %v", i, err)
	}
	if len(notes) != 1 || !strings.Contains(notes[0], "1 decisions were made by version 7 of the policy ours") {
		t.Errorf("notes: %q", notes)
	}
}
