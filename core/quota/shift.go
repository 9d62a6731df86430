package quota

import (
	"cmp"
	"slices"
	"time"
)

// Payer is a machine that has a cost, paid or lent.
type Payer struct {
	ID    string
	Rate  float64 // credits an hour when it is paid for
	Lent  bool
	Rank  int // its rank when it is paid for
	Since time.Time
}

// Shift returns which of a worker's machines become lent, and which become paid again, by their namespace's account.
// If the balance is used up, each worker keeps paying the same fraction of its charges, highest rank first, then the
// oldest: so together they return to the budget's rate without coordination. Once the balance has grown, one machine
// at a time becomes paid, if the balance then lasts for the time Ahead.
func Shift(a Account, mine []Payer) (lend, pay []string) {
	mine = slices.Clone(mine)
	slices.SortFunc(mine, func(x, y Payer) int {
		return cmp.Or(cmp.Compare(y.Rank, x.Rank), x.Since.Compare(y.Since), cmp.Compare(x.ID, y.ID))
	})
	if a.Balance() > 0 {
		for _, p := range mine {
			if p.Lent && a.Afford("", p.Rate).Enough() {
				return nil, []string{p.ID}
			}
		}
		return nil, nil
	}
	own := 0.0
	for _, p := range mine {
		if !p.Lent {
			own += p.Rate
		}
	}
	left := own
	if a.Rate > a.Budget.PerHour {
		left = own * a.Budget.PerHour / a.Rate
	}
	for _, p := range mine {
		switch {
		case p.Lent:
		case p.Rate <= left*(1+1e-9):
			left -= p.Rate
		default:
			lend = append(lend, p.ID)
		}
	}
	return lend, nil
}
