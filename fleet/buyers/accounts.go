package buyers

import (
	"context"

	"github.com/soukhq/souk/core/accounts"
	"github.com/soukhq/souk/fleet/find"
)

// Accounts returns what each owner's tasks did and used from a day on, as all members together count it. It also returns
// the members that could not be asked: what they count is missing.
func (b *Jobs) Accounts(ctx context.Context, since accounts.Day) ([]accounts.Entry, []find.Unanswered, error) {
	own, err := b.own.Accounts(ctx, since)
	if err != nil {
		return nil, nil, err
	}
	total := accounts.Total{}
	add := func(list []accounts.Entry) {
		for i := range list {
			if list[i].Day >= since {
				total.Add(list[i].Key, &list[i].Sums)
			}
		}
	}
	add(own)
	answers, silent, err := askKeepers(ctx, b, func(at Buyer) ([]accounts.Entry, error) {
		return at.Accounts(ctx, since)
	})
	if err != nil {
		return nil, nil, err
	}
	for _, a := range answers {
		add(a.said)
	}
	return total.Entries(), silent, nil
}
