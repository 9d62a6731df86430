package sim

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/sim/gate"
)

// Gate is a condition on a row that fails a comparison, as `p99(short) > 1.05 * baseline`.
type Gate struct {
	text   string
	metric string     // p50, p90, p99, mean, messages or unfinished
	class  string     // short, long or "" for all
	limit  gate.Limit // for Times, a multiple of the baseline's value
}

// gateForm is METRIC[(CLASS)] OP NUMBER [* baseline].
func gateForm() *regexp.Regexp {
	return regexp.MustCompile(`^\s*(p50|p90|p99|mean|messages|unfinished)\s*(?:\(\s*(short|long)\s*\))?\s*(>=|<=|>|<)\s*([0-9.eE+-]+)?\s*(\*)?\s*(baseline)?\s*$`)
}

// ParseGate reads a condition.
func ParseGate(text string) (Gate, error) {
	m := gateForm().FindStringSubmatch(text)
	bad := func(why string) (Gate, error) {
		return Gate{}, fault.New(fault.Invalid, fault.CodeFailIf,
			"%q is no condition: %s; write one like 'p99(short) > 1.05 * baseline'", text, why)
	}
	if m == nil {
		return bad("it must be a metric, a comparison and a number")
	}
	g := Gate{text: strings.TrimSpace(text), metric: m[1], class: m[2],
		limit: gate.Limit{Op: m[3], Factor: 1, Times: m[6] != ""}}
	switch percentile := strings.HasPrefix(g.metric, "p"); {
	case percentile && g.class == "":
		return bad("a percentile is of (short) or of (long) jobs")
	case !percentile && g.metric != "mean" && g.class != "":
		return bad(g.metric + " is of all jobs")
	case m[4] == "" && !g.limit.Times:
		return bad("the number is missing")
	case (m[4] != "" && g.limit.Times) != (m[5] != ""):
		return bad("a factor is written `1.05 * baseline`")
	}
	if m[4] != "" {
		v, err := strconv.ParseFloat(m[4], 64)
		if err != nil {
			return bad(m[4] + " is no number")
		}
		g.limit.Factor = v
	}
	return g, nil
}

func (g Gate) metricOf(s Summary) float64 {
	class := s.Short
	if g.class == "long" {
		class = s.Long
	}
	switch g.metric {
	case "p50":
		return class.P50
	case "p90":
		return class.P90
	case "p99":
		return class.P99
	case "messages":
		return s.Messages
	case "unfinished":
		return float64(s.Unfinished)
	}
	if g.class == "" {
		return s.Mean
	}
	return class.Mean
}

// Fails reports whether a row meets the condition, given the baseline's row, and so fails.
func (g Gate) Fails(row, baseline Summary) (value, limit float64, fails bool) {
	value = g.metricOf(row)
	limit, fails = g.limit.Fails(value, g.metricOf(baseline))
	return value, limit, fails
}

// String returns the condition as written.
func (g Gate) String() string { return g.text }
