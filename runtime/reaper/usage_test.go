package reaper

import (
	"testing"
	"time"

	"github.com/soukhq/souk/runtime"
)

func TestExitCountsItsOwnLifeOnly(t *testing.T) {
	const kib = 1 << 10
	waited := runtime.Exit{CPU: 5, MaxRSS: 8 * kib}
	large := runtime.Exit{CPU: 5, MaxRSS: 16 * kib} // not less than the reaper had when it forked
	for _, c := range []struct {
		name     string
		rec      lifeRecord
		waited   runtime.Exit // as waitid reports it
		cpu      time.Duration
		peak     int64
		anew     bool
		wantCPU  time.Duration
		wantPeak int64
	}{
		{"first life of a group", lifeRecord{}, waited, 9, 3 * kib, false, 9, 3 * kib},
		{"a peak begun anew", lifeRecord{BaseCPU: 100, BasePeak: 9 * kib}, waited, 107, 3 * kib, true, 7, 3 * kib},
		{"a peak above that of earlier lives", lifeRecord{BasePeak: 9 * kib}, waited, 0, 10 * kib, false, 5, 10 * kib},
		{"a peak of an earlier life", lifeRecord{BasePeak: 9 * kib}, waited, 0, 9 * kib, false, 5, 8 * kib},
		{"an older kernel, a small program", lifeRecord{BasePeak: 9 * kib}, large, 0, 9 * kib, false, 5, 9 * kib},
		{"no counters", lifeRecord{BaseCPU: 100}, waited, 0, 0, false, 5, 8 * kib},
		{"an adopted process without counters", lifeRecord{}, runtime.Exit{}, 0, 0, false, 0, 0},
	} {
		x := c.waited
		c.rec.addUsage(&x, c.cpu, c.peak, c.anew)
		if x.CPU != c.wantCPU || x.MaxRSS != c.wantPeak {
			t.Errorf("%s: %d ns and %d bytes, want %d and %d", c.name, x.CPU, x.MaxRSS, c.wantCPU, c.wantPeak)
		}
	}
}
