package cli

import (
	"fmt"

	"github.com/soukhq/souk/core/trial"
)

// PrintMeasures prints a table of how jobs fared under two schedulers, two rows for each measure.
func PrintMeasures(c *Env, a, b string, measures []trial.Measure) {
	var rows [][]Cell
	for _, m := range measures {
		for i, s := range []trial.Distribution{m.A, m.B} {
			name, scheduler, diff := m.Name, a, ""
			if name != "slowdown" {
				name += ", s"
			}
			if i == 1 {
				name, scheduler, diff = "", b, fmt.Sprintf("%+.3f ±%.3f", m.Difference, m.Half)
			}
			rows = append(rows, Cells(name, scheduler, fmt.Sprintf("%.3f", s.P50), fmt.Sprintf("%.3f", s.P90),
				fmt.Sprintf("%.3f", s.P99), fmt.Sprintf("%.3f", s.Mean), diff))
		}
	}
	c.Table(Columns("MEASURE", "SCHEDULER", "p50", "p90", "p99", "MEAN", "DIFFERENCE, 95%"), rows)
}
