package policy

import (
	"fmt"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
)

// Change is one difference in meaning between two policies.
type Change struct {
	What string `json:"what"` // added, removed or changed
	Item string `json:"item"` // "filter zone", "score price", "sample"
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
}

// String prints the change as a sentence.
func (c Change) String() string {
	switch c.What {
	case "added":
		return fmt.Sprintf("+ %s: %s", c.Item, c.To)
	case "removed":
		return fmt.Sprintf("- %s: %s", c.Item, c.From)
	}
	return fmt.Sprintf("~ %s: %s -> %s", c.Item, c.From, c.To)
}

// Changes lists what differs in meaning, filters first, then scores, then the rest. A comment is no change.
func Changes(from, to *Source) []Change {
	out := changedClauses("filter", from.filters, to.filters)
	out = append(out, changedClauses("score", from.scores, to.scores)...)
	one := func(item, a, b string) {
		if a != b {
			out = append(out, Change{"changed", item, a, b})
		}
	}
	one("sample", fmt.Sprint(from.Sample), fmt.Sprint(to.Sample))
	one("best", fmt.Sprint(from.Best), fmt.Sprint(to.Best))
	one("strategy", orDirect(from.Strategy), orDirect(to.Strategy))
	return out
}

func orDirect(s string) string {
	if s == "" {
		return "direct"
	}
	return s
}

func changedClauses(kind string, from, to []clause) []Change {
	var out []Change
	for _, a := range from {
		b := clauseNamed(to, a.name)
		switch {
		case b == nil:
			out = append(out, Change{"removed", kind + " " + a.name, a.String(), ""})
		case a.String() != b.String():
			out = append(out, Change{"changed", kind + " " + a.name, a.String(), b.String()})
		}
	}
	for _, b := range to {
		if clauseNamed(from, b.name) == nil {
			out = append(out, Change{"added", kind + " " + b.name, "", b.String()})
		}
	}
	return out
}

func clauseNamed(list []clause, name string) *clause {
	for i := range list {
		if list[i].name == name {
			return &list[i]
		}
	}
	return nil
}

// String prints a filter as its expression, and a score as its weight times its expression or built-in.
func (c *clause) String() string {
	switch {
	case !c.scores:
		return c.text
	case c.builtin != nil:
		return numberText(c.weight) + " * " + c.text
	}
	return numberText(c.weight) + " * (" + c.text + ")"
}

// TextDiff is the difference between two files as "diff -u" prints it; "" when they are equal.
func TextDiff(fromName, from, toName, to string) string {
	return strings.TrimPrefix(string(diff.Diff(fromName, []byte(from), toName, []byte(to))),
		fmt.Sprintf("diff %s %s\n", fromName, toName))
}
