package check

import (
	"context"
	"fmt"

	"github.com/soukhq/souk/core/decision"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/store/decisionlog"
)

// PolicyOf returns the policy that a decision names; false: it is no longer known.
type PolicyOf func(decision.Policy) (placement.Policy, bool)

// Decisions recomputes every decision of a log: each clause, score and term, and which workers the buyer asked in which
// order. path is a log's directory, or one of its files. Decisions with an unknown policy are counted and skipped;
// notes say which parts of the log could not be read.
func Decisions(ctx context.Context, path string, of PolicyOf) (found Invariant, notes []string, err error) {
	i := Invariant{Number: 9, Name: "every decision evaluates again to what was recorded"}
	checked := 0
	unknown := map[decision.Policy]int{}
	torn, err := decisionlog.Scan(path, func(l *decision.Line, records *decision.RecordCache) error {
		d := l.Decision
		if d == nil {
			return context.Cause(ctx)
		}
		p, known := of(d.Policy)
		if !known {
			unknown[d.Policy]++
			return context.Cause(ctx)
		}
		checked++
		for _, wrong := range decision.Verify(d, records.Get, p) {
			i.broken("decision %s of %s: %s", d.ID, d.At.Local().Format("2006-01-02 15:04:05"), wrong)
		}
		return context.Cause(ctx)
	})
	for _, t := range torn {
		notes = append(notes,
			fmt.Sprintf("the last %d bytes of %s were not written whole and are passed over", t.Bytes, t.File))
	}
	if fault.CodeOf(err) == decisionlog.CodeLogDamaged {
		notes, err = append(notes, err.Error()), nil
	}
	for p, n := range unknown {
		notes = append(
			notes,
			fmt.Sprintf("%d decisions were made by version %d of the policy %s, which is not known here: they were "+
				"not checked",
				n, p.Version, p.Name),
		)
	}
	i.Checked = fmt.Sprintf("%d decisions of the log %s", checked, path)
	return i.close(), notes, err
}
