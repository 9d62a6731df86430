package buyers

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/accounts"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
)

func (f *fakeBuyer) Accounts(ctx context.Context, _ accounts.Day) ([]accounts.Entry, error) {
	return slices.Clone(f.accounts), f.hear(ctx, "accounts")
}

func silence(id cluster.WorkerID) error {
	return fault.New(fault.Unavailable, fault.CodeUnreachable, "%s cannot be reached", id)
}

// TestAccountsOfAllMembersAreAddedUp: entries of one owner and day become one; a member that does not answer, or is
// older, is named; one that keeps no jobs is not.
func TestAccountsOfAllMembersAreAddedUp(t *testing.T) {
	m := newMarket("b", "c", "d", "e")
	entry := func(day accounts.Day, owner string, n int64) accounts.Entry {
		return accounts.Entry{Key: accounts.Key{Day: day, Owner: owner}, Sums: accounts.Sums{Jobs: n, CoreUS: n}}
	}
	m.own.accounts = []accounts.Entry{entry(10, "ada", 1)}
	m.others["b"].accounts = []accounts.Entry{entry(10, "ada", 2), entry(11, "bob", 4), entry(2, "bob", 8)}
	m.gone["c"] = time.Now()
	m.others["d"].down = fault.New(fault.Unimplemented, jobs.CodeJobs, "it keeps no jobs")
	m.others["e"].down = fault.New(fault.Precondition, jobs.CodeJobs, "it runs an older souk")
	list, silent, err := m.Accounts(t.Context(), 5)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]accounts.Entry{entry(10, "ada", 3), entry(11, "bob", 4)}, list); diff != "" {
		t.Error(diff)
	}
	if len(silent) != 2 || silent[0].Worker != "c" || silent[1].Worker != "e" {
		t.Errorf("%v did not answer", silent)
	}
}
