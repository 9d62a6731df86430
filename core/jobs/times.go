package jobs

import "slices"

// times are the run times of a job's last successful tasks, in microseconds.
type times struct {
	last [64]int64
	n    int // how many there were in total
}

// enoughTimes is how many tasks must have ended before any estimate is shown.
const enoughTimes = 5

func (t *times) addTime(took int64) {
	t.last[t.n%len(t.last)] = took
	t.n++
}

// usualSpan returns the range that eight of ten run times fall in; nothing before enough tasks have ended.
func (t *times) usualSpan() (low, high int64, known bool) {
	if t.n < enoughTimes {
		return 0, 0, false
	}
	sorted := slices.Clone(t.last[:min(t.n, len(t.last))])
	slices.Sort(sorted)
	tenth := len(sorted) / 10
	return sorted[tenth], sorted[len(sorted)-1-tenth], true
}
