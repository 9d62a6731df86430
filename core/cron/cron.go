// Package cron tells when a schedule of cron's five fields is due, in a time zone with whatever its clock does.
//
// It is pure but for the zones' rules, which Parse reads: those of the host, or where it has none those in the binary.
package cron

import (
	"time"
)

// Schedule is the times at which a job is due.
type Schedule struct {
	minutes, hours, days, months, weekdays set
	// elapsed is that the minute or the hour begins with "*": the job is due at each minute at which a clock on the wall
	// shows a time of the schedule, however often it shows that. Else it is due once for each such time of the calendar.
	elapsed bool
	either  bool // the day of the month and that of the week are both restricted: one of them is enough
	zone    *time.Location
}

// set has bit n where n is in it.
type set uint64

func (s set) hasNumber(n int) bool { return s>>n&1 == 1 }

// horizon is beyond the longest time between two runs, in days: a 29th of February that is one day of the week comes
// once in 28 years, or in 40 where one of them has no such day.
const horizon = 41 * 366

// day is as long as no offset of a zone is, with its changes.
const day = 24 * time.Hour

// Next returns the first time after a time at which the job is due, in UTC. A time of the calendar that the clock leaves
// out is due when it goes on; of one that it shows twice the first counts.
func (s *Schedule) Next(after time.Time) time.Time {
	if s.elapsed {
		return s.nextShown(after)
	}
	from := after.In(s.zone)
	for n := -2; n < horizon; n++ { // what a day leaves out may be due at the next one
		y, m, d := from.Date()
		date := time.Date(y, m, d+n, 0, 0, 0, 0, time.UTC)
		if !s.isDueOn(date) || !s.firstShowing(date.Add(day-time.Minute)).After(after) {
			continue
		}
		for minute := range 24 * 60 {
			if !s.hours.hasNumber(minute/60) || !s.minutes.hasNumber(minute%60) {
				continue
			}
			if t := s.firstShowing(date.Add(time.Duration(minute) * time.Minute)); t.After(after) {
				return t
			}
		}
	}
	return time.Time{}
}

// nextShown is Next of a schedule that goes by what the clock shows.
func (s *Schedule) nextShown(after time.Time) time.Time {
	end := after.Add(horizon * day)
	for t := after.Truncate(time.Minute).Add(time.Minute); t.Before(end); {
		shown := t.In(s.zone)
		if s.isDueOn(shown) {
			if s.hours.hasNumber(shown.Hour()) && s.minutes.hasNumber(shown.Minute()) {
				return t.UTC()
			}
			t = t.Add(time.Minute)
			continue
		}
		y, m, d := shown.Date()
		t = t.Add(max(time.Minute, s.firstShowing(time.Date(y, m, d+1, 0, 0, 0, 0, time.UTC)).Sub(t)))
	}
	return time.Time{}
}

// isDueOn reports whether the job is due on a date.
func (s *Schedule) isDueOn(date time.Time) bool {
	inMonth, inWeek := s.days.hasNumber(date.Day()), s.weekdays.hasNumber(int(date.Weekday()))
	return s.months.hasNumber(int(date.Month())) && (inMonth && inWeek || s.either && (inMonth || inWeek))
}

// firstShowing returns when a clock in the zone first shows a time, which is given as if it were of UTC, or a later one.
func (s *Schedule) firstShowing(shown time.Time) time.Time {
	for t := shown.Add(-2 * day); ; {
		local := t.In(s.zone)
		_, offset := local.Zone()
		_, end := local.ZoneBounds()
		if due := shown.Add(-time.Duration(offset) * time.Second); due.After(t) {
			t = due
		}
		if end.IsZero() || t.Before(end) {
			return t.UTC()
		}
		t = end
	}
}

// hasPossibleDate reports whether there is a date on which the job is due.
func (s *Schedule) hasPossibleDate() bool {
	for n := range 366 { // each date is each day of the week in some year
		d := time.Date(2024, 1, 1+n, 0, 0, 0, 0, time.UTC)
		if s.months.hasNumber(int(d.Month())) && (s.days.hasNumber(d.Day()) || s.either) {
			return true
		}
	}
	return false
}
