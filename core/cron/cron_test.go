package cron

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func parse(t *testing.T, text, zone string) *Schedule {
	t.Helper()
	s, err := Parse(text, zone)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestDaylightSavingSkipsAndRepeatsAreHandled: a job due at a time that the clock skips or repeats runs as the table
// says.
func TestDaylightSavingSkipsAndRepeatsAreHandled(t *testing.T) {
	for _, x := range []struct{ name, text, zone, after, want string }{
		{"a gap: right after it", "30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z",
			"2026-03-29T01:00:00Z 2026-03-30T00:30:00Z"},
		{"several times of a gap: one run", "10,20 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z",
			"2026-03-29T01:00:00Z 2026-03-30T00:10:00Z"},
		{"shown twice: the first", "30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z",
			"2026-10-25T00:30:00Z 2026-10-26T01:30:00Z"},
		{"each hour: none is left out", "0 * * * *", "Europe/Berlin", "2026-10-25T00:00:00Z",
			"2026-10-25T01:00:00Z 2026-10-25T02:00:00Z"},
		{"each hour: no time of a gap", "0 * * * *", "Europe/Berlin", "2026-03-29T00:00:00Z",
			"2026-03-29T01:00:00Z 2026-03-29T02:00:00Z"},
		{"half an hour", "15 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00:00Z",
			"2026-10-03T15:30:00Z 2026-10-04T15:15:00Z"},
		{"midnight is left out", "@daily", "America/Sao_Paulo", "2018-11-03T04:00:00Z",
			"2018-11-04T03:00:00Z 2018-11-05T02:00:00Z"},
		{"a day is left out", "0 12 30 12 *", "Pacific/Apia", "2011-12-29T00:00:00Z",
			"2011-12-30T10:00:00Z 2012-12-29T22:00:00Z"},
		{"a day that comes once in four years", "0 0 29 2 *", "", "2096-03-01T00:00:00Z",
			"2104-02-29T00:00:00Z 2108-02-29T00:00:00Z"},
		{"either day", "0 0 13 * fri", "UTC", "2026-02-01T00:00:00Z", "2026-02-06T00:00:00Z 2026-02-13T00:00:00Z"},
		{"a list, a range and a step", "0 9-17/4,23 1 jan,JUL *", "", "2026-01-01T12:00:00Z",
			"2026-01-01T13:00:00Z 2026-01-01T17:00:00Z 2026-01-01T23:00:00Z 2026-07-01T09:00:00Z"},
		{"7 is Sunday", "0 0 * * 7", "", "2026-01-01T00:00:00Z", "2026-01-04T00:00:00Z"},
		{"a range to Sunday", "0 0 * * 6-7", "", "2026-01-01T00:00:00Z", "2026-01-03T00:00:00Z 2026-01-04T00:00:00Z"},
		{"a range to Sunday by names", "0 0 * * sat-SUN", "", "2026-01-01T00:00:00Z",
			"2026-01-03T00:00:00Z 2026-01-04T00:00:00Z 2026-01-10T00:00:00Z"},
		{"Sunday alone, from Sunday on, and a step", "0 0 * * sun-sun,sun-mon,wed-sun/4", "", "2026-01-04T00:00:00Z",
			"2026-01-05T00:00:00Z 2026-01-07T00:00:00Z 2026-01-11T00:00:00Z"},
		{"each day of a week", "0 0 * * mon-sun", "", "2026-01-01T00:00:00Z",
			"2026-01-02T00:00:00Z 2026-01-03T00:00:00Z"},
	} {
		t.Run(x.name, func(t *testing.T) {
			s := parse(t, x.text, x.zone)
			at, err := time.Parse(time.RFC3339, x.after)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range strings.Fields(x.want) {
				at = s.Next(at)
				if got := at.Format(time.RFC3339); got != want {
					t.Fatalf("%s; want %s", got, want)
				}
			}
		})
	}
}

func TestBadSchedulesAreRefused(t *testing.T) {
	for _, x := range []struct{ text, zone, want string }{
		{"0 0 30 2 *", "", "never comes"},
		{"0 0 31 2,4,6,9,11 *", "", "never comes"},
		{"* * * *", "", "has 4 fields"},
		{"", "", "has 0 fields"},
		{"@reboot", "", "has 1 fields"},
		{"60 * * * *", "", `"60" for the minute`},
		{"* 5-3 * * *", "", `"5-3" for the hour`},
		{"0 22-6 * * *", "", `"22-6" for the hour, a range that goes backwards; say 22-23,0-6`},
		{"0 0 * nov-feb *", "", "backwards; say 11-12,1-2"},
		{"0 0 * * fri-mon", "", "backwards; say 5-6,0-1"},
		{"0 0 * * 6-0", "", "backwards; say 6-6,0-0"},
		{"0 22-6/2 * * *", "", "backwards; say a list"},
		{"* * 0 * *", "", `"0" for the day of the month`},
		{"* * * foo *", "", "1 to 12, or jan to dec"},
		{"* * * * 8", "", `"8" for the day of the week`},
		{"*/0 * * * *", "", `"*/0" for the minute`},
		{"1,,2 * * * *", "", `"" for the minute`},
		{"+1 * * * *", "", `"+1" for the minute`},
		{"-1 * * * *", "", `"-1" for the minute`},
		{"* * * * *", "Mars/Olympus", "Mars/Olympus"},
		{"* * * * *", "Local", "Local"},
		{"* * * * *", "../../etc/passwd", "is not known"},
	} {
		if _, err := Parse(x.text, x.zone); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%q in %q: %v; want %s", x.text, x.zone, err, x.want)
		}
	}
	parse(t, "0 0 30 2 mon", "") // each Monday of February
}

// watched is one minute of a clock on the wall, and what it shows.
type watched struct{ at, shows time.Time }

// watch returns each minute of a time.
func watch(zone *time.Location, from, to time.Time) (out []watched) {
	for t := from.UTC(); t.Before(to); t = t.Add(time.Minute) {
		l := t.In(zone)
		out = append(out, watched{t, time.Date(l.Year(), l.Month(), l.Day(), l.Hour(), l.Minute(), 0, 0, time.UTC)})
	}
	return out
}

// due is the oracle: when whoever watches a clock has a job due.
func due(s *Schedule, minutes []watched) (out []time.Time) {
	is := func(w time.Time) bool {
		return s.hours.hasNumber(w.Hour()) && s.minutes.hasNumber(w.Minute()) && s.isDueOn(w)
	}
	newest := minutes[0].shows // the latest time that the clock has shown
	for _, x := range minutes[1:] {
		hit := s.elapsed && is(x.shows)
		for !s.elapsed && newest.Before(x.shows) {
			newest = newest.Add(time.Minute)
			hit = hit || is(newest)
		}
		if hit {
			out = append(out, x.at)
		}
	}
	return out
}

// TestNextMatchesABruteForceClock: Next equals a search over each minute of years with clock changes, in zones with
// odd rules.
func TestNextMatchesABruteForceClock(t *testing.T) {
	years := map[string]int{"Europe/Berlin": 2025, "America/Sao_Paulo": 2017, "Australia/Lord_Howe": 2025,
		"Africa/Casablanca": 2025, "Pacific/Apia": 2011, "Asia/Kathmandu": 2025, "UTC": 2025,
		"America/St_Johns": 2010, "Antarctica/Troll": 2025}
	schedules := []string{"30 2 * * *", "@daily", "0 * * * *", "*/20 * * * *", "59 23 * * *", "15 1,2,3 * * *",
		"*/30 2 * * sun", "0 */5 * * *", "5 0 30,31 * 5", "0 0 29 2 *"}
	for zone, year := range years {
		from := time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)
		to := from.AddDate(2, 0, 0)
		minutes := watch(parse(t, "* * * * *", zone).zone, from, to)
		for _, text := range schedules {
			s, at := parse(t, text, zone), from
			for _, want := range due(s, minutes) {
				if at = s.Next(at); !at.Equal(want) {
					t.Fatalf("%q in %s: due at %s; want %s", text, zone, at, want)
				}
			}
			if at = s.Next(at); at.Before(to) {
				t.Errorf("%q in %s: due at %s, too", text, zone, at)
			}
		}
	}
}

// TestNextIsLaterAndStable: the next time of any schedule is later than the given one, and the same from each time up
// to it.
func TestNextIsLaterAndStable(t *testing.T) {
	number := func(t *rapid.T, f *field) string {
		n := rapid.IntRange(f.from, f.to).Draw(t, f.name)
		return rapid.SampledFrom([]string{"*", "*/7", itoa(n), itoa(f.from) + "-" + itoa(n),
			itoa(n) + "," + itoa(f.to)}).Draw(t, "of")
	}
	rapid.Check(t, func(t *rapid.T) {
		var parts []string
		for i := range fields {
			parts = append(parts, number(t, &fields[i]))
		}
		s, err := Parse(strings.Join(parts, " "), rapid.SampledFrom([]string{"UTC", "Europe/Berlin",
			"Pacific/Apia", "Australia/Lord_Howe"}).Draw(t, "zone"))
		if err != nil {
			if !strings.Contains(err.Error(), "never comes") {
				t.Fatalf("%v: %v", parts, err)
			}
			return
		}
		after := time.Unix(rapid.Int64Range(1.3e9, 1.9e9).Draw(t, "after"), 0)
		next := s.Next(after)
		if !next.After(after) || next.Second() != 0 {
			t.Fatalf("%v: %v after %v", parts, next, after)
		}
		between := after.Add(time.Duration(rapid.Int64Range(0, int64(next.Sub(after))-1).Draw(t, "between")))
		if again := s.Next(between); !again.Equal(next) {
			t.Fatalf("%v: %v after %v, and %v after %v", parts, next, after, again, between)
		}
	})
}

func itoa(n int) string {
	if n >= 10 {
		return itoa(n/10) + itoa(n%10)
	}
	return string(rune('0' + n))
}
