// Package cron computes when a schedule of cron's five fields is due, in a time zone and across its clock changes.
//
// It is pure except that Parse loads the time zone: from the host, or from the binary if the host has none.
package cron

import (
	"time"
)

// Schedule is the times at which a job is due.
type Schedule struct {
	minutes, hours, days, months, weekdays set
	// elapsed is set if the minute or the hour begins with "*": the job is due whenever a clock on the wall shows a
	// time of the schedule, also the second time in a repeated hour. Otherwise it is due once for each such time of
	// the calendar.
	elapsed bool
	either  bool // day of month and day of week are both restricted: a match of one is enough
	zone    *time.Location
}

// set is a set of numbers: bit n is number n.
type set uint64

func (s set) hasNumber(n int) bool { return s>>n&1 == 1 }

// horizon exceeds the longest time between two runs, in days: a 29th of February on a given day of the week comes
// every 28 years, or after 40 across a year like 2100, which has no leap day.
const horizon = 41 * 366

// day is longer than any zone's offset from UTC, with its changes.
const day = 24 * time.Hour

// Next returns the first time after a time at which the job is due, in UTC. A time that the clock skips is due right
// after the skip; of a time that it shows twice, the first counts.
func (s *Schedule) Next(after time.Time) time.Time {
	if s.elapsed {
		return s.nextShown(after)
	}
	from := after.In(s.zone)
	for n := -2; n < horizon; n++ { // times that one day skips may be due on the next
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

// nextShown is Next for a schedule with elapsed set.
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

// firstShowing returns when a clock in the zone first shows shown or a later time. shown is a wall-clock time, written
// as if in UTC.
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

// hasPossibleDate reports whether the job is due on any date.
func (s *Schedule) hasPossibleDate() bool {
	for n := range 366 { // each date falls on each day of the week in some year
		d := time.Date(2024, 1, 1+n, 0, 0, 0, 0, time.UTC)
		if s.months.hasNumber(int(d.Month())) && (s.days.hasNumber(d.Day()) || s.either) {
			return true
		}
	}
	return false
}
