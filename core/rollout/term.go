package rollout

import (
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
)

// CodeOldTerm is the code of a worker's refusal of an order whose term is over. Its detail is the term in force.
const CodeOldTerm = "old_term"

// outbid takes that a worker has obeyed a higher term. Who is still the steward begins a higher one, unless that is its own:
// the order was of its term before.
func (s *Steward) outbid(e *fault.Error) {
	in, is := e.Detail.(cluster.Term)
	if is && in == s.term {
		return
	}
	if is {
		s.over(in.Number)
	}
	s.over(s.term.Number)
}

// over ends the steward's term. Its next one is beyond a number.
func (s *Steward) over(number uint64) { s.least, s.term = max(s.least, number+1), cluster.Term{} }

// begun reports whether there is a term to give orders in, and asks for one where there is none.
func (p *pass) begun() bool {
	switch {
	case p.term.IsZero():
		p.out.Term = max(p.least, 1)
	case p.resting:
		p.out.Term = p.term.Number
	default:
		return true
	}
	return false
}
