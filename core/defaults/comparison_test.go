package defaults_test

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/core/defaults"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
)

//nolint:gochecknoglobals // a constant
var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func comparison(t *testing.T, a, b string, share int) *defaults.Comparison {
	t.Helper()
	c, err := defaults.NewComparison("c1", a, b, share, 10, noon)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestComparisonsThatCannotBeAreRefused(t *testing.T) {
	for _, x := range []struct {
		a, b          string
		share, margin int
		says          string
	}{
		{"sparow", "hawk", 50, 10, `no scheduler is named "sparow"`},
		{"hawk", "market:2", 50, 10, "takes no number"},
		{"hawk", "Hawk", 50, 10, "not of hawk with itself"},
		{"market", "hawk", 0, 10, "from 1 to 99; got 0"},
		{"market", "hawk", 100, 10, "from 1 to 99; got 100"},
		{"market", "hawk", -3, 10, "from 1 to 99; got -3"},
		{"market", "hawk", 50, -1, "or 0 for never; got -1"},
		{"market", "hawk", 50, 1001, "from 1 to 1000, or 0 for never; got 1001"},
	} {
		_, err := defaults.NewComparison("c1", x.a, x.b, x.share, x.margin, noon)
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), x.says) {
			t.Errorf("%+v: %v", x, err)
		}
	}
}

// TestOneComparisonRunsAtATime: a second one, and another default, are refused while it runs; when it ends, the default is as
// it was.
func TestOneComparisonRunsAtATime(t *testing.T) {
	r := defaults.Row{Scheduler: "hawk"}
	wantError := func(err error, says string) {
		t.Helper()
		if !fault.Is(err, fault.Precondition) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, which does not say %q", err, says)
		}
	}
	wantError(r.Start(comparison(t, "market", "sparrow", 50), "ml", "hawk"),
		"must be the default, which is hawk in namespace ml, not market; compare hawk with sparrow")
	wantError(r.Stop("", "", "ml", noon), "no comparison of schedulers runs in namespace ml")
	if err := r.Start(comparison(t, "hawk", "sparrow", 50), "ml", "hawk"); err != nil {
		t.Fatal(err)
	}
	wantError(r.Start(comparison(t, "hawk", "yarn", 50), "ml", "hawk"),
		"hawk and sparrow are being compared in namespace ml since 2026-01-02T12:00:00Z; end that first "+
			"(souk schedulers compare --stop --namespace ml)")
	wantError(r.CheckIdle(""), "the cluster")
	wantError(r.Stop("c2", "", "", noon), "no comparison of schedulers runs in the cluster")
	if err := r.Stop("c1", "it is known", "ml", noon.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if r.Running() != nil || r.Scheduler != "hawk" || r.Comparison.Why != "it is known" || r.Check() != nil {
		t.Errorf("%+v", r)
	}
	if err := r.Start(comparison(t, "hawk", "yarn", 50), "ml", "hawk"); err != nil {
		t.Error(err)
	}
}

// TestJobsDrawTheirSchedulerInAComparison: each job that both can run draws one of them by its id, about as often as the share
// says; a job that one of them cannot run takes no part, and one of a namespace with a default of its own neither.
func TestJobsDrawTheirSchedulerInAComparison(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		share := rapid.IntRange(defaults.MinShare, defaults.MaxShare).Draw(rt, "share")
		a := rapid.SampledFrom([]string{"market", "hawk"}).Draw(rt, "a")
		c := comparison(t, a, "sparrow:4", share)
		rows := defaults.Rows{Cluster: defaults.Row{Scheduler: a, Comparison: c}}
		of := "the cluster"
		if rapid.Bool().Draw(rt, "of the namespace") {
			rows, of = defaults.Rows{Namespace: rows.Cluster, Cluster: defaults.Row{Scheduler: "yarn"}}, "namespace ml"
		}
		seed, n := rapid.Uint64Range(0, 1<<30).Draw(rt, "seed"), 0
		for i := range uint64(400) {
			s := settled(t, jobs.Spec{})
			id := jobs.ID(seed + i)
			defaults.Fill(&s, id, "", rows)
			want := a
			if s.SchedulerFrom.Candidate {
				n++
				want = "sparrow:4"
			}
			if s.SchedulerText() != want+", drawn in the comparison of "+of || s.SchedulerFrom.Comparison != "c1" ||
				s.NamedScheduler() != "" || c.Draws(id) != s.SchedulerFrom.Candidate {
				rt.Fatalf("%+v: %q", s.SchedulerFrom, s.SchedulerText())
			}
		}
		if d := n - 4*share; d > 50 || d < -50 { // five standard deviations at most
			rt.Fatalf("%d of 400 jobs drew B, with a share of %d %%", n, share)
		}
		for _, x := range []struct{ named, priority, text string }{
			{"pigeon", "", "pigeon"}, {"", "high", a + " or market"}, {"market", "", ""}} {
			s := settled(t, jobs.Spec{Scheduler: x.named, Priority: jobs.Priority(x.priority)})
			defaults.Fill(&s, jobs.ID(seed), x.named, rows)
			from := s.SchedulerFrom
			if x.priority == "" && s.SchedulerText() != x.text || from != nil && from.Comparison != "" {
				rt.Fatalf("%+v: %q", x, s.SchedulerText())
			}
			if x.priority != "" && (s.Scheduler != "" || !strings.Contains(from.Why, "knows no priorities")) {
				rt.Fatalf("%+v: %q", x, s.SchedulerText())
			}
		}
		rows.Namespace = defaults.Row{Scheduler: "pigeon"}
		s := settled(t, jobs.Spec{})
		if defaults.Fill(&s, jobs.ID(seed), "", rows); s.SchedulerText() != "pigeon, the default of namespace ml" {
			rt.Fatalf("%q", s.SchedulerText())
		}
	})
}
