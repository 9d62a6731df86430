package quota

import (
	"cmp"
	"slices"
	"time"
)

// Payer is a machine that costs something, paid for or lent.
type Payer struct {
	ID    string
	Rate  float64 // credits an hour, if it is paid for
	Lent  bool
	Rank  int // as it is when it is paid for
	Since time.Time
}

// Shift says which of one worker's machines are to be lent to, and which are to be paid for again, as the account of
// their namespace stands. Where the balance is gone, each worker keeps the same part of what it charges, so that all
// together come back to the budget's rate though nobody has talked to anybody: highest rank first, then the oldest.
// Where it has grown again, one machine at a time is paid for, and only if that lasts for the time Ahead.
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
