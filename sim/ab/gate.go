package ab

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/sim/gate"
)

// Gate is a condition on a report that fails it, as `moved > 0.1` or `headroom < 0.9 * old`.
type Gate struct {
	text, metric string
	limit        gate.Limit // for Times, a multiple of the old policy's value
}

func gateForm() *regexp.Regexp {
	return regexp.MustCompile(`^\s*(moved|refused|skipped|headroom|region|neighbours|score)\s*(>=|<=|>|<)\s*([0-9.eE+-]+)\s*(\*\s*old)?\s*$`)
}

// ParseGate parses a condition. moved is the share placed elsewhere, refused the share that only the new policy
// refuses, skipped the share that could not be replayed; the other names are means of the new policy.
func ParseGate(text string) (Gate, error) {
	m := gateForm().FindStringSubmatch(text)
	bad := func(why string) (Gate, error) {
		return Gate{}, fault.New(fault.Invalid, fault.CodeFailIf,
			"%q is no condition: %s; write one like 'refused > 0' or 'headroom < 0.9 * old'", text, why)
	}
	if m == nil {
		return bad("it must be moved, refused, skipped, headroom, region, neighbours or score, a comparison and a " +
			"number")
	}
	factor, err := strconv.ParseFloat(m[3], 64)
	if err != nil {
		return bad(m[3] + " is no number")
	}
	g := Gate{text: strings.TrimSpace(text), metric: m[1],
		limit: gate.Limit{Op: m[2], Factor: factor, Times: m[4] != ""}}
	if g.limit.Times && (g.metric == "moved" || g.metric == "refused" || g.metric == "skipped") {
		return bad(g.metric + " is a difference already, so there is no old")
	}
	return g, nil
}

// Fails reports whether a report meets the condition, and so fails.
func (g Gate) Fails(r Report) (value, limit float64, fails bool) {
	var p Paired
	switch g.metric {
	case "moved":
		p.New = r.Moved.Of
	case "refused":
		p.New = r.OnlyBy.New.Of
	case "skipped":
		if all := r.Skipped + r.Decisions; all > 0 {
			p.New = float64(r.Skipped) / float64(all)
		}
	case "headroom":
		p = r.Headroom
	case "region":
		p = r.Region
	case "neighbours":
		p = r.Mates
	default:
		p = r.Score
	}
	limit, fails = g.limit.Fails(p.New, p.Old)
	return p.New, limit, fails
}

// String returns the condition as written.
func (g Gate) String() string { return g.text }
