package faults_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/test/faults"
)

// TestJobRunsOnceOverAStewardDeath: a job that is due each minute is started once, though the host of its steward dies some seconds before
// and comes back after that.
func TestJobRunsOnceOverAStewardDeath(t *testing.T) { overDeaths(t, 1) }

// TestLongJobsRunOnceOverDeaths is the same for three times in a row.
func TestLongJobsRunOnceOverDeaths(t *testing.T) { overDeaths(t, 3) }

func overDeaths(t *testing.T, times int) {
	t.Helper()
	t.Parallel()
	apart(t, func() {
		k := newKept(t, 0)
		k.whole(0, 0, 1, 2)
		keep := 10
		r := sleepers(0, "1")
		r.Groups = append(r.Groups, api.NewGroup{Group: release.Group{Name: "report", Config: r.Groups[0].Config,
			Cron: &release.Cron{Schedule: "* * * * *", Keep: &keep}}})
		if _, err := k.ms[0].Client().Deploy(t.Context(), shop, r); err != nil {
			t.Fatal(err)
		}
		steward := func() (at int) {
			waittest.Succeed(t, "the service has a steward", func() error {
				s, err := k.ms[0].Client().Service(t.Context(), shop)
				at = slices.IndexFunc(k.ms, func(m *faults.Member) bool { return m.Worker() == s.Steward.By })
				if err == nil && at < 0 {
					err = fmt.Errorf("it is %q", s.Steward.By)
				}
				return err
			})
			return at
		}
		steward()
		first := time.Now().Add(3 * time.Second).Truncate(time.Minute).Add(time.Minute)
		for i := range times {
			due := first.Add(time.Duration(i) * time.Minute)
			waittest.Pass(time.Until(due.Add(-3 * time.Second)))
			dies := steward()
			k.ms[dies].PowerOff()
			t.Logf("%s dies before %v", k.ms[dies].Worker(), due)
			waittest.Pass(time.Until(due.Add(10 * time.Second)))
			if err := k.ms[dies].Start(); err != nil {
				t.Fatal(err)
			}
		}
		waittest.Succeed(t, "each time had one run, as each member sees", func() error {
			for i, m := range k.ms {
				s, err := m.Client().Service(t.Context(), shop)
				if err != nil {
					return err
				}
				at := map[time.Time][]cluster.WorkerID{}
				for _, run := range s.Jobs[0].Runs {
					if run.Exit == nil || *run.Exit != 0 {
						return fmt.Errorf("member %d: %+v", i, run)
					}
					at[run.At.UTC()] = append(at[run.At.UTC()], run.Worker)
				}
				for j := range times {
					if due := first.Add(time.Duration(j) * time.Minute).UTC(); len(at[due]) != 1 {
						return fmt.Errorf("member %d: %v was started at %v: %v", i, due, at[due], at)
					}
				}
			}
			return nil
		})
	})
}
