// Package bench measures souk on this host: launches, arrays of tasks, launches through another member, gossip,
// decisions. Figures from one machine mean nothing on another, so each row also has a floor, measured in turns with it
// in the same run, and the ratio to it. The commands are in cli/bench.
package bench

import (
	"io"
	"math"
	"slices"
	"time"

	"github.com/soukhq/souk/fault"
)

// Quantile returns the q-quantile of durations in ms, by nearest rank. The slice is sorted afterwards.
func Quantile(ds []time.Duration, q float64) float64 {
	slices.Sort(ds)
	i := min(max(int(math.Ceil(q*float64(len(ds))))-1, 0), len(ds)-1)
	return float64(ds[i]) / float64(time.Millisecond)
}

// meanMillis returns the mean in ms.
func meanMillis(ds []time.Duration) float64 {
	var sum time.Duration
	for _, d := range ds {
		sum += d
	}
	return float64(sum) / float64(len(ds)) / float64(time.Millisecond)
}

func wrapFailure(err error, what string) error {
	return fault.Wrap(err, fault.Internal, fault.CodeBench, "the measurement stopped: %s", what)
}

// Reporter receives a benchmark's measurements while it runs.
type Reporter interface {
	// Row reports one measurement. In JSON it is the row itself.
	Row(r Row)
	// Working shows what is measured now, until the returned function is called.
	Working(format string, args ...any) func()
	// Stderr is where a measured souk logs.
	Stderr() io.Writer
}

// Row is one measurement.
type Row interface {
	Text() string // as printed for people
}
