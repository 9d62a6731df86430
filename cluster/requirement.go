package cluster

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Requirement is one condition over the attributes of the other side: a request's over a worker, or a worker's over a
// request (two-sided matching, as HTCondor's ClassAds have it; Raman, Livny, Solomon, HPDC 1998). It is total: every
// requirement has an outcome for every set of attributes. A missing attribute, or one of another type, makes it
// Undefined, which satisfies nothing and is distinct from Unmet.
type Requirement struct {
	Attribute string `json:"attribute"`
	Op        Op     `json:"op"`
	// one for a comparison, any number for in and not_in, none for exists and absent
	Values []Value `json:"values,omitempty"`
}

// Preference is a requirement that only affects the score: Weight is added if it is met. It may be negative.
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

// Outcome is the result of evaluating a requirement.
type Outcome uint8

// The outcomes.
const (
	Unmet Outcome = iota
	Met
	Undefined
)

// String names the outcome.
func (o Outcome) String() string { return [...]string{"unmet", "met", "undefined"}[o] }

// Of returns the requirement's outcome for an attribute with value v; there says whether the attribute exists.
func (q Requirement) Of(v Value, there bool) Outcome {
	switch q.Op {
	case Exists:
		return outcomeOf(there)
	case NotExists:
		return outcomeOf(!there)
	}
	if !there || len(q.Values) == 0 {
		return Undefined
	}
	switch q.Op {
	case In, NotIn:
		if !slices.ContainsFunc(q.Values, func(w Value) bool { return w.kind == v.kind }) {
			return Undefined
		}
		return outcomeOf(slices.Contains(q.Values, v) == (q.Op == In))
	case Equal, Unequal:
		if v.kind != q.Values[0].kind {
			return Undefined
		}
		return outcomeOf((v == q.Values[0]) == (q.Op == Equal))
	}
	order, ok := v.Compare(q.Values[0])
	if !ok {
		return Undefined
	}
	switch q.Op {
	case Less:
		return outcomeOf(order < 0)
	case AtMost:
		return outcomeOf(order <= 0)
	case More:
		return outcomeOf(order > 0)
	case AtLeast:
		return outcomeOf(order >= 0)
	}
	return Undefined
}

func outcomeOf(met bool) Outcome {
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

// Valid returns why the requirement is invalid; "": it is valid.
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
		return fmt.Sprintf("operator %q of attribute %s: use one of == != < <= > >= in not_in exists absent",
			clipText(string(q.Op)), q.Attribute)
	}
	if n := len(q.Values); n < least || n > want {
		return fmt.Sprintf("%s %s takes %d to %d values, not %d", q.Attribute, q.Op, least, want, n)
	}
	for _, v := range q.Values {
		if why := v.whyInvalid(); why != "" {
			return fmt.Sprintf("%s %s: a value %s", q.Attribute, q.Op, why)
		}
	}
	return ""
}

// ParseRequirement reads a requirement as users write it: "arch == arm64", "zone in a,b", "memory.ecc", "!spot",
// "gpu.count >= 2", "name == \"true\"". A bare name requires that the attribute exists, with ! before it that it does
// not; blanks around an operator are optional. The error is a sentence.
func ParseRequirement(s string) (Requirement, error) {
	q := parseRequirement(strings.TrimSpace(s))
	if why := q.Valid(); why != "" {
		return q, fmt.Errorf("the requirement %q cannot be read: %s", clipText(s), why)
	}
	return q, nil
}

// parseRequirement reads as much as it can; errors are left in the requirement for Valid to report.
func parseRequirement(s string) Requirement {
	if name, absent := strings.CutPrefix(s, "!"); absent {
		return Requirement{Attribute: strings.TrimSpace(name), Op: NotExists}
	}
	name, rest := cutName(s)
	switch {
	case name == "":
		return Requirement{Attribute: s, Op: Exists}
	case rest == "":
		return Requirement{Attribute: name, Op: Exists}
	case (Op(name) == Exists || Op(name) == NotExists) && ValidAttribute(rest):
		return Requirement{Attribute: rest, Op: Op(name)}
	}
	q := Requirement{Attribute: name}
	if word, after := cutName(rest); word != "" {
		q.Op, rest = Op(word), after
	} else {
		n := len(rest) - len(strings.TrimLeft(rest, "=<>!"))
		q.Op, rest = Op(rest[:n]), strings.TrimSpace(rest[n:])
	}
	if q.Op != In && q.Op != NotIn {
		if rest != "" {
			q.Values = []Value{ParseValue(rest)}
		}
		return q
	}
	for more := rest != ""; more; {
		var part string
		part, rest, more = cutListed(rest)
		q.Values = append(q.Values, ParseValue(part))
	}
	return q
}

// cutName cuts the name at the beginning of s off, and the blanks after it.
func cutName(s string) (name, rest string) {
	n := nameLen(s)
	return s[:n], strings.TrimSpace(s[n:])
}

// cutListed cuts the first value of a list off. A comma inside double quotes is part of the value.
func cutListed(s string) (part, rest string, more bool) {
	s = strings.TrimSpace(s)
	if strings.HasPrefix(s, `"`) {
		if quoted, err := strconv.QuotedPrefix(s); err == nil {
			after := strings.TrimSpace(s[len(quoted):])
			if after == "" || after[0] == ',' {
				return quoted, strings.TrimPrefix(after, ","), after != ""
			}
		}
	}
	part, rest, more = strings.Cut(s, ",")
	return strings.TrimSpace(part), rest, more
}
