package accounts

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// By says what the lines of a report are for: a line has the sums of all entries that differ in nothing else.
type By struct{ Day, Namespace, Owner bool }

// ByWords returns the words that ParseBy reads.
func ByWords() []string { return []string{"day", "namespace", "owner"} }

// ParseBy reads one or several words of ByWords, with commas. "" is all of them.
func ParseBy(text string) (b By, err error) {
	if text == "" {
		return By{true, true, true}, nil
	}
	for word := range strings.SplitSeq(text, ",") {
		switch word {
		case "day":
			b.Day = true
		case "namespace":
			b.Namespace = true
		case "owner":
			b.Owner = true
		default:
			return b, fmt.Errorf("accounts are added up by %s, not by %.40q", strings.Join(ByWords(), ", "), word)
		}
	}
	return b, nil
}

// AccountLine is what the tasks of a day, a namespace or an owner did and used.
type AccountLine struct {
	Day       *Day   `json:"day,omitempty"` // of UTC; nil: of all days
	Namespace string `json:"namespace,omitempty"`
	Owner     string `json:"owner,omitempty"` // name of the Unix user, or else of the token
	UnixUser  bool   `json:"unix_user,omitempty"`

	Jobs      int64 `json:"jobs"` // submitted
	Succeeded int64 `json:"succeeded"`
	Failed    int64 `json:"failed"`
	Cancelled int64 `json:"cancelled"`
	Attempts  int64 `json:"attempts"`
	// what attempts asked for, by the time that they ran, and the CPU time that they used
	CoreHours float64 `json:"core_hours_asked"`
	CPUHours  float64 `json:"cpu_hours_used"`
	GiBHours  float64 `json:"gib_hours_asked"`
	GPUHours  float64 `json:"gpu_hours_asked"`
	// WaitedMS is how long jobs waited until their first task began, on average; nil: none has begun.
	WaitedMS *float64 `json:"waited_mean_ms,omitempty"`
	Share    float64  `json:"share"` // of the core-hours of all lines; 1 is all
}

// Lines adds up entries to lines: by day where they have one, else those with most core-hours first.
func Lines(list []Entry, by By) []AccountLine {
	total, all := Total{}, int64(0)
	for i := range list {
		k := list[i].Key
		if !by.Day {
			k.Day = 0
		}
		if !by.Namespace {
			k.Namespace = ""
		}
		if !by.Owner {
			k.Owner, k.Unix, k.UID = "", false, 0
		}
		total.Add(k, &list[i].Sums)
		all += list[i].CoreUS
	}
	out := []AccountLine{}
	for _, e := range total.Entries() {
		out = append(out, e.line(by, all))
	}
	if !by.Day {
		slices.SortStableFunc(out, func(a, b AccountLine) int { return cmp.Compare(b.CoreHours, a.CoreHours) })
	}
	return out
}

func (e *Entry) line(by By, all int64) AccountLine {
	const hour = float64(time.Hour / time.Microsecond)
	l := AccountLine{Namespace: e.Namespace, Owner: e.Owner, UnixUser: e.Unix, Jobs: e.Jobs, Succeeded: e.Succeeded,
		Failed: e.Failed, Cancelled: e.Cancelled, Attempts: e.Attempts, CoreHours: float64(e.CoreUS) / hour,
		CPUHours: float64(e.CPUUS) / hour, GiBHours: float64(e.MiBMS) * 1000 / 1024 / hour,
		GPUHours: float64(e.GPUUS) / hour}
	if by.Day {
		l.Day = &e.Day
	}
	if e.Waited > 0 {
		mean := float64(e.WaitedUS) / 1000 / float64(e.Waited)
		l.WaitedMS = &mean
	}
	if all > 0 {
		l.Share = float64(e.CoreUS) / float64(all)
	}
	return l
}
