package lifecycle

import (
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
)

// HaltOwner is the owner of the cordon of a worker that is halted.
const HaltOwner = "souk"

// CodeHalted says that the worker is halted, so it starts nothing.
const CodeHalted fault.Code = "halted"

// halt is why the worker may start nothing, most often because another worker with its id is alive. Its record then has
// a cordon by souk itself, which is not in the journal. Machines run on, and may be stopped and destroyed.
type halt struct {
	why   string // "": it is not halted
	since time.Time
}

// full is why the worker takes nothing new while its disk is full. Its record has a cordon for that, too, where nobody
// has set another.
type full struct {
	why   error // nil: it is not
	since time.Time
}

// refuseIfHalted returns the error of what a worker that is halted does not begin; nil while it is not.
func (h *halt) refuseIfHalted() error {
	if h.why == "" {
		return nil
	}
	return fault.New(fault.Precondition, CodeHalted, "%s", h.why)
}

// startsLife reports whether a verb begins a life, or may.
func (v Verb) startsLife() bool { return v == Start || v == Restart || v == Update }

// Halt has the worker grant nothing and begin no life any more, for the reason given; "" ends that. Nothing of it is
// durable: who halts it does so again at each start.
func (s *Supervisor) Halt(now time.Time, why string) Out {
	s.openOut(now)
	if s.halt.why != why {
		if s.halt.why == "" {
			s.halt.since = s.now
		}
		s.halt.why = why
		s.cordon.showReason()
	}
	return s.closeOut()
}

// Images says which images the worker can start without a pull. Nothing of it is durable.
func (s *Supervisor) Images(now time.Time, names []string) Out {
	s.openOut(now)
	s.seller.SetImages(names)
	return s.closeOut()
}

// Devices says which GPU devices the worker has now; see market.Seller. Nothing of it is durable.
func (s *Supervisor) Devices(now time.Time, list []cluster.GPU) Out {
	s.openOut(now)
	s.seller.SetDevices(now, list)
	return s.closeOut()
}

// Full makes the worker refuse new machines while its disk is full, for the reason why; nil ends that. The machines
// that it has run on and may be started. Nothing of this is durable.
func (s *Supervisor) Full(now time.Time, why error) Out {
	s.openOut(now)
	if s.full.why == nil && why != nil {
		s.full.since = s.now
	}
	s.full.why = why
	s.cordon.showReason()
	return s.closeOut()
}
