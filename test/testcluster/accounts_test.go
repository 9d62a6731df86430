package testcluster_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/core/accounts"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/internal/wait/waittest"
)

// allAccounts returns the accounts of yesterday and today.
func allAccounts(t *testing.T, cl *client.Client) ([]accounts.AccountLine, error) {
	t.Helper()
	return cl.Accounts(t.Context(), accounts.DayOf(time.Now())-1, "")
}

// sameAccounts waits until a member's answer has these accounts.
func sameAccounts(t *testing.T, when string, cl *client.Client, want []accounts.AccountLine) {
	t.Helper()
	waittest.See(t, "the accounts "+when, func() string { // a member that has just come back may not be asked yet
		list, err := allAccounts(t, cl)
		if err != nil {
			return err.Error()
		}
		return cmp.Diff(want, list)
	}, func(diff string) bool { return diff == "" })
}

// TestAccountsSurviveRestartsAndTakeovers: what the jobs of three members used is the same at each of them, also after
// one was killed, when another has taken over its jobs, and when it has come back.
func TestAccountsSurviveRestartsAndTakeovers(t *testing.T) {
	t.Parallel()
	c := newJobs(t, 3)
	var ids []string
	for i := range 3 {
		s := array(6, "sh", "-c", "sleep 0.05; exit 3")
		s.Retries = 1
		ids = append(ids, submit(t, c, i, s))
	}
	heir := 0
	for i, id := range ids {
		if j, _ := ended(t, c, i, id); j.State != jobs.Failed || j.Failed != 6 {
			t.Fatalf("%+v", j)
		}
		if i == 1 {
			heir = heirOf(t, c, 1, 3, id)
		}
	}
	want, err := allAccounts(t, c.Client(0))
	if err != nil {
		t.Fatal(err)
	}
	var all accounts.AccountLine
	for i := range want {
		l := &want[i]
		all.Jobs += l.Jobs
		all.Failed += l.Failed
		all.Attempts += l.Attempts
	}
	if all.Jobs != 3 || all.Failed != 18 || all.Attempts != 36 || want[0].CoreHours <= 0 {
		t.Fatalf("%+v", want)
	}
	for i := range 3 {
		sameAccounts(t, "at each member", c.Client(i), want)
	}
	c.Kill(1)
	c.Until("the heir has taken over", func() bool {
		j, err := c.Client(heir).Job(t.Context(), ids[1])
		return err == nil && j.Member == c.Worker(heir) && j.Epoch > 0
	})
	sameAccounts(t, "while one is down", c.Client(heir), want)
	c.Restart(1)
	keptOnce(t, c, []int{0, 1, 2}, ids[1], heir)
	for i := range 3 {
		sameAccounts(t, "when it has come back", c.Client(i), want)
	}
	c.Kill(0)
	c.Restart(0)
	sameAccounts(t, "after a restart", c.Client(0), want)
}
