// Package gate has the common part of --fail-if conditions: it compares a value with a number, or with a multiple of
// another value.
package gate

// Limit is the right side of a condition.
type Limit struct {
	Op     string // >, >=, < or <=
	Factor float64
	Times  bool // the limit is Factor times the base
}

// Fails reports whether a value meets the condition, and so fails, and returns the limit.
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
