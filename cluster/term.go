package cluster

import (
	"cmp"
	"fmt"

	"github.com/soukhq/souk/fault"
)

// MaxTerm bounds the number of a term. A service whose steward changed once a minute would reach it in a year.
const MaxTerm = 1<<19 - 1

// Term is the time in which one member is the steward of a service. Each of the steward's orders carries it: a worker
// keeps the highest term that it has obeyed, and refuses lower ones (a fencing token; the member's id breaks ties
// between two sides of a network partition). The zero Term is below all others.
type Term struct {
	Number uint64   `json:"number"`
	Member WorkerID `json:"member"`
}

// CodeOldTerm says that the order's term is over. Its detail is the Term in force.
const CodeOldTerm fault.Code = "old_term"

// RefuseOld returns the refusal of an order of term t for an app, while the higher term in is in force.
func (t Term) RefuseOld(app string, in Term) error {
	e := fault.New(fault.Conflict, CodeOldTerm, "the order of term %s for app %s is refused: term %s is in force "+
		"on this worker; leave the app to its new steward", t, app, in)
	e.Detail = in
	return e
}

// IsZero reports whether t is the zero term.
func (t Term) IsZero() bool { return t == Term{} }

// Compare orders terms by number, then by member.
func (t Term) Compare(o Term) int {
	return cmp.Or(cmp.Compare(t.Number, o.Number), cmp.Compare(t.Member, o.Member))
}

// String returns the term as people read it, such as "7 of w1".
func (t Term) String() string { return fmt.Sprintf("%d of %s", t.Number, t.Member) }

// Check refuses an impossible term.
func (t Term) Check() error {
	if t.Number < 1 || t.Number > MaxTerm || t.Member == "" || len(t.Member) > MaxClaimText {
		return fault.New(fault.Invalid, codeTerm,
			"a steward's term is a number from 1 to %d and a member's id; got %d and %d bytes", MaxTerm, t.Number,
			len(t.Member))
	}
	return nil
}
