// Package gate is what the conditions of --fail-if have in common: a value against a number, or a number times another
// value.
package gate

// Limit is the right side of a condition.
type Limit struct {
	Op     string // >, >=, < or <=
	Factor float64
	Times  bool // the limit is Factor times the base
}

// Fails says whether a value meets the condition, and so fails, and against which limit.
func (l Limit) Fails(value, base float64) (limit float64, fails bool) {
	limit = l.Factor
	if l.Times {
		limit *= base
	}
	switch l.Op {
	case ">":
		return limit, value > limit
	case ">=":
		return limit, value >= limit
	case "<":
		return limit, value < limit
	}
	return limit, value <= limit
}
