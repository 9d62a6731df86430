package cluster

import (
	"fmt"
	"slices"
	"strings"
)

// Requirement is one condition over the attributes of the other side: a request's over a worker, or a worker's over a
// request (two-sided matching, as HTCondor's ClassAds have it; Raman, Livny, Solomon, HPDC 1998). It is total: every
// requirement and every set of attributes have an outcome, and an attribute that is not there, or is of another type,
// makes it Undefined, which satisfies nothing and is told apart from Unmet.
type Requirement struct {
	Attribute string  `json:"attribute"`
	Op        Op      `json:"op"`
	Values    []Value `json:"values,omitempty"` // one for a comparison, any number for in and not_in, none for exists and absent
}

// Preference is a requirement that only counts: Weight is added to the score where it is met. It may be negative.
type Preference struct {
	Requirement
	Weight float64 `json:"weight"`
}

// Op is how a requirement compares.
type Op string

// The operators.
const (
	Equal     Op = "=="
	Unequal   Op = "!="
	Less      Op = "<"
	AtMost    Op = "<="
	More      Op = ">"
	AtLeast   Op = ">="
	In        Op = "in"
	NotIn     Op = "not_in"
	Exists    Op = "exists"
	NotExists Op = "absent"
)

// Outcome is what became of a requirement.
type Outcome uint8

// The outcomes.
const (
	Unmet Outcome = iota
	Met
	Undefined
)

// String names the outcome.
func (o Outcome) String() string { return [...]string{"unmet", "met", "undefined"}[o] }

// Of says what becomes of the requirement where its attribute has value v; there says whether it is there at all.
func (q Requirement) Of(v Value, there bool) Outcome {
	switch q.Op {
	case Exists:
		return outcome(there)
	case NotExists:
		return outcome(!there)
	}
	if !there || len(q.Values) == 0 {
		return Undefined
	}
	switch q.Op {
	case In, NotIn:
		if !slices.ContainsFunc(q.Values, func(w Value) bool { return w.kind == v.kind }) {
			return Undefined
		}
		return outcome(slices.Contains(q.Values, v) == (q.Op == In))
	case Equal, Unequal:
		if v.kind != q.Values[0].kind {
			return Undefined
		}
		return outcome((v == q.Values[0]) == (q.Op == Equal))
	}
	order, ok := v.Compare(q.Values[0])
	if !ok {
		return Undefined
	}
	switch q.Op {
	case Less:
		return outcome(order < 0)
	case AtMost:
		return outcome(order <= 0)
	case More:
		return outcome(order > 0)
	case AtLeast:
		return outcome(order >= 0)
	}
	return Undefined
}

func outcome(met bool) Outcome {
	if met {
		return Met
	}
	return Unmet
}

// String prints the requirement as ParseRequirement reads it.
func (q Requirement) String() string {
	vs := make([]string, len(q.Values))
	for i, v := range q.Values {
		vs[i] = v.String()
	}
	switch q.Op {
	case Exists, NotExists:
		return string(q.Op) + " " + q.Attribute
	case In, NotIn:
		return q.Attribute + " " + string(q.Op) + " " + strings.Join(vs, ",")
	}
	return q.Attribute + " " + string(q.Op) + " " + strings.Join(vs, ",")
}

// Valid says why the requirement cannot be taken; "" when it can.
func (q Requirement) Valid() string {
	if !ValidAttribute(q.Attribute) {
		return fmt.Sprintf("attribute name %q: use 1 to 64 letters, digits and . _ - /", clipText(q.Attribute))
	}
	want, least := 1, 1
	switch q.Op {
	case Equal, Unequal, Less, AtMost, More, AtLeast:
	case In, NotIn:
		want = MaxRequirements
	case Exists, NotExists:
		want, least = 0, 0
	default:
		return fmt.Sprintf("operator %q of attribute %s: use one of == != < <= > >= in not_in exists absent", clipText(string(q.Op)), q.Attribute)
	}
	if n := len(q.Values); n < least || n > want {
		return fmt.Sprintf("%s %s takes %d to %d values, not %d", q.Attribute, q.Op, least, want, n)
	}
	for _, v := range q.Values {
		if len(v.text) > MaxText {
			return fmt.Sprintf("%s %s: a value of %d bytes; at most %d", q.Attribute, q.Op, len(v.text), MaxText)
		}
	}
	return ""
}

// ParseRequirement reads a requirement as users write it: "arch == arm64", "zone in a,b", "memory.ecc", "!spot",
// "gpu.count >= 2". A bare name wants the attribute there, ! before it wants it absent. The error is a sentence.
func ParseRequirement(s string) (Requirement, error) {
	fields := strings.Fields(s)
	var q Requirement
	switch len(fields) {
	case 1:
		if op := strings.IndexAny(s, "=<>!"); op > 0 { // written without blanks: arch==arm64
			return parseTight(s, op)
		}
		name, absent := strings.CutPrefix(fields[0], "!")
		q = Requirement{Attribute: name, Op: Exists}
		if absent {
			q.Op = NotExists
		}
	case 2:
		q = Requirement{Attribute: fields[1], Op: Op(fields[0])}
	default:
		q = Requirement{Attribute: fields[0], Op: Op(fields[1])}
		rest := strings.TrimSpace(strings.SplitN(strings.TrimSpace(s), fields[1], 2)[1])
		parts := []string{rest}
		if q.Op == In || q.Op == NotIn {
			parts = strings.Split(rest, ",")
		}
		for _, p := range parts {
			q.Values = append(q.Values, ParseValue(strings.TrimSpace(p)))
		}
	}
	if why := q.Valid(); why != "" {
		return q, fmt.Errorf("the requirement %q cannot be read: %s", clipText(s), why)
	}
	return q, nil
}

func parseTight(s string, op int) (Requirement, error) {
	end := op + len(s[op:]) - len(strings.TrimLeft(s[op:], "=<>!"))
	return ParseRequirement(s[:op] + " " + s[op:end] + " " + s[end:])
}
