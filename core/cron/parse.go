package cron

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/soukhq/souk/fault"
)

// codeCron says that the schedule cannot be read.
const codeCron fault.Code = "cron"

// maxText bounds the text of a schedule and of a zone, in bytes.
const maxText = 200

// field describes one of the five fields.
type field struct {
	name     string
	from, to int
	names    []string // names of the numbers, beginning with from
}

var (
	months   = []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}
	weekdays = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}
	fields   = [5]field{{"minute", 0, 59, nil}, {"hour", 0, 23, nil}, {"day of the month", 1, 31, nil},
		{"month", 1, 12, months}, {"day of the week", 0, 7, weekdays}}
	nicknames = map[string]string{"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *",
		"@weekly": "0 0 * * 0", "@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *"}
)

// Parse reads a schedule: minute, hour, day of the month, month and day of the week, or one of @hourly, @daily,
// @weekly, @monthly and @yearly. A field is a list of numbers, ranges and steps; months and days of the week have
// names, too, and 7 is Sunday, as "sun" at the end of a range is. zone is a name such as "Europe/Berlin"; "" is UTC.
// Errors are Invalid, code "cron".
func Parse(text, zone string) (*Schedule, error) {
	loc, err := loadLocation(zone)
	if err != nil {
		return nil, err
	}
	said := strings.ToLower(strings.TrimSpace(text))
	if nick, is := nicknames[said]; is {
		said = nick
	}
	parts := strings.Fields(said)
	if len(parts) != len(fields) || len(text) > maxText {
		return nil, invalidSchedule(
			"schedule %q has %d fields; say five (minute, hour, day of the month, month, day of the "+
				"week), such as \"30 2 * * *\", or @hourly, @daily, @weekly, @monthly or @yearly", fault.Clip(text, 80),
			len(parts))
	}
	var sets [len(fields)]set
	for i := range fields {
		if sets[i], err = fields[i].parseList(parts[i], text); err != nil {
			return nil, err
		}
	}
	if sets[4].hasNumber(7) {
		sets[4] |= 1
	}
	star := func(i int) bool { return strings.HasPrefix(parts[i], "*") }
	s := &Schedule{minutes: sets[0], hours: sets[1], days: sets[2], months: sets[3], weekdays: sets[4],
		elapsed: star(0) || star(1), either: !star(2) && !star(4), zone: loc}
	if !s.hasPossibleDate() {
		return nil, invalidSchedule("schedule %q never comes: no month that it names has such a day",
			fault.Clip(text, 80))
	}
	return s, nil
}

// parseList reads a field of a schedule.
func (f *field) parseList(list, whole string) (out set, err error) {
	for part := range strings.SplitSeq(list, ",") {
		span, by, stepped := strings.Cut(part, "/")
		step := 1
		if stepped {
			if step, err = strconv.Atoi(by); err != nil || step < 1 || step > f.to {
				return 0, f.invalidField(part, whole)
			}
		}
		from, to := f.from, f.to
		if span != "*" {
			first, last, ranged := strings.Cut(span, "-")
			var known, knownTo bool
			from, known = f.parseNumber(first)
			switch to, knownTo = from, known; {
			case ranged:
				if to, knownTo = f.parseNumber(last); last == weekdays[0] && from > to { // a week ends with it, too
					to = f.to
				}
			case stepped: // "5/15" is from 5 on
				to = f.to
			}
			if !known || !knownTo {
				return 0, f.invalidField(part, whole)
			}
			if from > to {
				return 0, f.backwardRange(part, whole, from, to, stepped)
			}
		}
		for n := from; n <= to; n += step {
			out |= 1 << n
		}
	}
	return out, nil
}

// parseNumber reads a number or a name; false: it is neither, or out of bounds.
func (f *field) parseNumber(s string) (int, bool) {
	for i, name := range f.names {
		if s == name {
			return f.from + i, true
		}
	}
	n, err := strconv.Atoi(s)
	return n, err == nil && n >= f.from && n <= f.to && s[0] != '+' && s[0] != '-'
}

func (f *field) invalidField(part, whole string) error {
	names := ""
	if f.names != nil {
		names = ", or " + f.names[0] + " to " + f.names[len(f.names)-1]
	}
	return invalidSchedule(
		"schedule %q says %q for the %s; say *, or %d to %d%s, a range such as %d-%d, a step such as */2, "+
			"or a list of these", fault.Clip(whole, 80), fault.Clip(part, 40), f.name, f.from, f.to, names, f.from,
		f.from+2)
}

// backwardRange returns the error for a range that passes the end of its field, with the right way to write it.
func (f *field) backwardRange(part, whole string, from, to int, stepped bool) error {
	end := f.to
	if f.to == 7 { // Sunday is also 0
		end = 6
	}
	say := fmt.Sprintf("%d-%d,%d-%d", from, end, f.from, to)
	if stepped {
		say = "a list of the numbers that are meant"
	}
	return invalidSchedule("schedule %q says %q for the %s, a range that goes backwards; say %s", fault.Clip(whole, 80),
		fault.Clip(part, 40), f.name, say)
}

// loadLocation loads a time zone by its name.
func loadLocation(name string) (*time.Location, error) {
	bad := name == "Local" || len(name) > maxText
	z, err := time.LoadLocation(name)
	if bad || err != nil {
		return nil, invalidSchedule(
			"zone %q is not known; say one of the time zone database, such as Europe/Berlin, or leave "+
				"it out for UTC", fault.Clip(name, 80))
	}
	return z, nil
}

func invalidSchedule(format string, args ...any) error {
	return fault.New(fault.Invalid, codeCron, format, args...)
}
