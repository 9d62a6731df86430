package testcluster_test

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/core/quota"
)

// mostAtOnce returns how many of some tasks ran at the same time at most.
func mostAtOnce(all []jobs.Task) (most int) {
	type change struct {
		at time.Time
		by int
	}
	var changes []change
	for _, t := range all {
		changes = append(changes, change{*t.BeganAt, 1}, change{*t.EndedAt, -1})
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Or(a.at.Compare(b.at), a.by-b.by) })
	n := 0
	for _, c := range changes {
		n += c.by
		most = max(most, n)
	}
	return most
}

// TestTasksStayBelowTheQuotaCap: of two jobs of a namespace that may occupy three cores, three tasks of a core run at
// once, wherever on three members with twelve, also when their member was killed meanwhile; and as many as there is room
// for once the cap is lifted.
func TestTasksStayBelowTheQuotaCap(t *testing.T) {
	t.Parallel()
	c := newJobs(t, 3)
	setCap := func(caps *quota.Caps) {
		t.Helper()
		if _, err := c.Client(1).SetQuota(t.Context(), quota.Default, nil, nil, caps); err != nil {
			t.Fatal(err)
		}
	}
	setCap(&quota.Caps{"cpu": 3})
	c.Until("the cap is known at the keeper", func() bool {
		a, err := c.Client(0).Quota(t.Context(), quota.Default)
		return err == nil && a.Max["cpu"] == 3
	})
	run := func(kill bool) int {
		t.Helper()
		ids := []string{submit(t, c, 0, array(12, "sleep", "0.2")), submit(t, c, 0, array(12, "sleep", "0.2"))}
		if kill {
			c.Kill(0)
			c.Restart(0)
		}
		var all []jobs.Task
		for _, id := range ids {
			_, list := ended(t, c, 0, id)
			all = append(all, list...)
		}
		return mostAtOnce(all)
	}
	for _, kill := range []bool{false, true} {
		if n := run(kill); n != 3 {
			t.Errorf("%d tasks ran at once of 3 that may (their member was killed: %t)", n, kill)
		}
	}
	setCap(&quota.Caps{})
	c.Until("the cap is lifted at the keeper", func() bool {
		a, err := c.Client(0).Quota(t.Context(), quota.Default)
		return err == nil && len(a.Max) == 0
	})
	if n := run(false); n <= 3 {
		t.Errorf("%d tasks ran at once when twelve may", n)
	}
}
