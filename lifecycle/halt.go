package lifecycle

import (
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
)

// HaltOwner is the owner of the cordon of a worker that is halted.
const HaltOwner = "souk"

// CodeHalted is the code of what a worker refuses while it is halted.
const CodeHalted = "halted"

// halt is why the worker may begin nothing: another one of its id is alive, most likely. Its record then has a cordon
// of souk's own, which is not in the journal; what runs goes on, and may be stopped and destroyed.
type halt struct {
	why    string          // "": it is not halted
	before *cluster.Cordon // that the worker had
}

// refuse returns the error of what a worker that is halted does not begin; nil while it is not.
func (h *halt) refuse() error {
	if h.why == "" {
		return nil
	}
	return fault.New(fault.Precondition, CodeHalted, "failed_precondition: %s", h.why)
}

// starts reports whether a verb begins a life, or may.
func (v Verb) starts() bool { return v == Start || v == Restart || v == Update }

// Halt has the worker grant nothing and begin no life any more, for the reason given; "" ends that. Nothing of it is
// durable: who halts it does so again at each start.
func (s *Supervisor) Halt(now time.Time, why string) Out {
	s.open(now)
	switch h := &s.halt; {
	case why == h.why:
	case why == "":
		s.seller.SetCordon(h.before)
		s.halt = halt{}
	default:
		if h.why == "" {
			h.before = s.seller.Cordon()
		}
		h.why = why
		s.seller.SetCordon(&cluster.Cordon{Owner: HaltOwner, Reason: why, Since: now.UTC()})
	}
	return s.close()
}
