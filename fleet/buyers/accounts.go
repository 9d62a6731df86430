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
	others := b.others()
	lists, errs := find.AskAll(others, func(o Other) (list []accounts.Entry, err error) {
		err = b.callOther(ctx, o, func(at Buyer) error {
			list, err = at.Accounts(ctx, since)
			return err
		})
		return list, err
	})
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	var silent []find.Unanswered
	for i, list := range lists {
		if errs[i] != nil && !keepsNot(errs[i]) {
			silent = append(silent, find.Unanswered{Worker: others[i].ID, Err: errs[i]})
			continue
		}
		add(list)
	}
	return total.Entries(), silent, nil
}
