package defaults_test

import (
	"strings"
	"testing"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/defaults"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
)

// row is the row of a default without a comparison.
func row(scheduler string) defaults.Row { return defaults.Row{Scheduler: scheduler} }

func settled(t *testing.T, s jobs.Spec) jobs.Spec {
	t.Helper()
	s.App, s.Command, s.Namespace = "a", []string{"true"}, "ml"
	if err := s.Settle(); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestDefaultPrecedence: the job's own scheduler goes before its namespace's, that before the cluster's, and that before the
// auction; a default that does not suit a job leaves it to the auction, and says so.
func TestDefaultPrecedence(t *testing.T) {
	ssd := []cluster.Requirement{{Attribute: "disk", Op: cluster.Exists}}
	for _, x := range []struct {
		name      string
		spec      jobs.Spec // Scheduler is what the client names
		namespace string
		cluster   string
		want      string // the scheduler
		text      string
	}{
		{"nothing is set", jobs.Spec{}, "", "", "", ""},
		{"of the cluster", jobs.Spec{}, "", "hawk", "hawk", "hawk, the default of the cluster"},
		{"of the namespace", jobs.Spec{}, "sparrow:4", "hawk", "sparrow:4", "sparrow:4, the default of namespace ml"},
		{"the namespace's auction", jobs.Spec{}, "market", "hawk", "", "market, the default of namespace ml"},
		{"of the job", jobs.Spec{Scheduler: "Pigeon"}, "sparrow:4", "hawk", "pigeon", "pigeon"},
		{"the job's auction", jobs.Spec{Scheduler: "market"}, "sparrow:4", "hawk", "", ""},
		{"a priority", jobs.Spec{Priority: jobs.High}, "", "hawk", "",
			"market: hawk, the default of the cluster, knows no priorities"},
		{"normal priority", jobs.Spec{Priority: jobs.Normal}, "", "hawk", "hawk", "hawk, the default of the cluster"},
		{"a preference", jobs.Spec{Wants: jobs.Wants{Prefer: ssd}}, "yarn:2", "", "",
			"market: yarn:2, the default of namespace ml, knows no preferred workers"},
		{"of another build", jobs.Spec{}, "", "quantum", "",
			"market: quantum, the default of the cluster, is not known to this member's souk; upgrade it"},
		{"a priority and the auction", jobs.Spec{Priority: jobs.Low}, "market", "hawk", "",
			"market, the default of namespace ml"},
		{"what the client claims", jobs.Spec{SchedulerFrom: &jobs.SchedulerFrom{Of: jobs.OfCluster}}, "", "", "", ""},
	} {
		t.Run(x.name, func(t *testing.T) {
			named := x.spec.Scheduler
			s := settled(t, x.spec)
			defaults.Fill(&s, jobs.ID(1), named, defaults.Rows{Namespace: row(x.namespace), Cluster: row(x.cluster)})
			if s.Scheduler != x.want || s.SchedulerText() != x.text {
				t.Errorf("%q, %q", s.Scheduler, s.SchedulerText())
			}
			if got := s.NamedScheduler(); got != strings.ToLower(named) {
				t.Errorf("the job named %q, not %q", got, named)
			}
			if err := s.Settle(); err != nil { // as it is when the journal is read
				t.Error(err)
			}
		})
	}
}

func TestParseRefusesWhatNoJobMayName(t *testing.T) {
	for name, why := range map[string]string{
		"sparow":    `no scheduler is named "sparow"`,
		"market:3":  "market is the auction of all jobs, and takes no number",
		"sparrow:0": `"sparrow:0" must end with the number of probes for each task`,
		"fifo:3":    "fifo takes no number",
		"":          `no scheduler is named ""`,
	} {
		if _, err := defaults.Parse(name); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if name, err := defaults.Parse(" Hawk:2"); err != nil || name != "hawk:2" {
		t.Errorf("%q, %v", name, err)
	}
	if name, err := defaults.Parse("market"); err != nil || name != jobs.Auction {
		t.Errorf("%q, %v", name, err)
	}
}
