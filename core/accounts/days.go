package accounts

import "slices"

// OnDay is the sums of one day.
type OnDay struct {
	Day Day `json:"day"`
	Sums
}

// Days are sums by day, oldest first. The zero value is ready.
type Days []OnDay

// On returns the sums of a day, for the caller to change. The pointer is valid until the next call.
func (d *Days) On(day Day) *Sums {
	i := len(*d)
	for i > 0 && (*d)[i-1].Day > day { // most are of the newest day
		i--
	}
	if i > 0 && (*d)[i-1].Day == day {
		return &(*d)[i-1].Sums
	}
	*d = slices.Insert(*d, i, OnDay{Day: day})
	return &(*d)[i].Sums
}

// Add adds other days, n times: -1 subtracts them.
func (d *Days) Add(o Days, n int64) {
	for i := range o {
		d.On(o[i].Day).Add(&o[i].Sums, n)
	}
}

// Clone returns a copy without the days that have nothing.
func (d Days) Clone() Days {
	return slices.DeleteFunc(slices.Clone(d), func(o OnDay) bool { return o.IsZero() })
}
