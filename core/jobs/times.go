package jobs

import "slices"

// times are how long the tasks of a job took that ended well last, in microseconds.
type times struct {
	last [64]int64
	n    int // how many there were in all
}

// enoughTimes is how many tasks must have ended before anything is said of those that have not.
const enoughTimes = 5

func (t *times) addTime(took int64) {
	t.last[t.n%len(t.last)] = took
	t.n++
}

// usualSpan returns what eight of ten tasks were between; nothing before enough have ended.
func (t *times) usualSpan() (low, high int64, known bool) {
	if t.n < enoughTimes {
		return 0, 0, false
	}
	sorted := slices.Clone(t.last[:min(t.n, len(t.last))])
	slices.Sort(sorted)
	tenth := len(sorted) / 10
	return sorted[tenth], sorted[len(sorted)-1-tenth], true
}
