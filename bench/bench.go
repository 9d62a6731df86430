// Package bench measures souk on this host: launches, arrays of tasks, launches through another member, gossip,
// decisions. Figures of one machine mean nothing on another, so each row tells the floor that was measured in the
// same run, in turns with it, and the ratio to it. The commands are in cli/bench.
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

// Reporter hears what a benchmark measures, while it runs.
type Reporter interface {
	// Row takes one measurement. In JSON it is the row itself.
	Row(r Row)
	// Working says what is measured now, until the function that it returns is called.
	Working(format string, args ...any) func()
	// Stderr is where a souk that is measured logs.
	Stderr() io.Writer
}

// Row is one measurement.
type Row interface {
	Text() string // as printed for people
}
