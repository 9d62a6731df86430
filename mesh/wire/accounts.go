package wire

import (
	"context"

	"github.com/soukhq/souk/core/accounts"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
)

const pathAccounts = "/wire/job-accounts"

// maxAccounts bounds the accounts in one answer: those of accounts.KeptDays, and as many of jobs that are kept.
const maxAccounts = 2 * accounts.KeptDays * (accounts.MaxOwners + 1)

type accountsArgs struct {
	Since accounts.Day `json:"since"`
}

func (a *accountsArgs) check() error { return nil }

// accountVerbs are the calls about what tasks used.
func accountVerbs() map[string]route {
	return map[string]route{
		pathAccounts: jobVerb(read, func(ctx context.Context, k Jobs, a accountsArgs) ([]accounts.Entry, error) {
			return k.Accounts(ctx, a.Since)
		}),
	}
}

// Accounts returns what each owner's tasks did and used from a day on, as far as the member counts them.
func (f FarJobs) Accounts(ctx context.Context, since accounts.Day) ([]accounts.Entry, error) {
	list := []accounts.Entry{}
	err := f.link.callMember(ctx, pathAccounts, jobTime, accountsArgs{since}, &list)
	if err == nil && len(list) > maxAccounts {
		return nil, fault.New(fault.Unavailable, fault.CodeTooLarge, "%s lists more than %d accounts",
			f.link.memberName(), maxAccounts)
	}
	if fault.CodeOf(err) == jobs.CodeJobs { // it keeps no jobs
		return list, err
	}
	return list, f.explainOlder(err, "keeps no accounts; upgrade it")
}
