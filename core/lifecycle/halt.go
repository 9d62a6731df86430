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

// halt is why the worker may start nothing, most often because another worker with its ID is alive. The worker's
// record then has a cordon owned by souk, which is not journalled. Machines run on, and may be stopped and destroyed.
type halt struct {
	why   string // "": it is not halted
	since time.Time
}

// full is why the worker accepts nothing new while its disk is full. The worker's record then has a cordon for it,
// unless a command has set one.
type full struct {
	why   error // nil: the disk is not full
	since time.Time
}

// refuseIfHalted returns the error for a start on a halted worker; nil if the worker is not halted.
func (h *halt) refuseIfHalted() error {
	if h.why == "" {
		return nil
	}
	return fault.New(fault.Precondition, CodeHalted, "%s", h.why)
}

// startsLife reports whether a verb starts a life, or may start one.
func (v Verb) startsLife() bool { return v == Start || v == Restart || v == Update }

// Halt makes the worker grant nothing and start nothing any more, for the reason why; "" ends that. It is not durable:
// the caller repeats it after each start.
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

// Images sets the images that the worker can start without a pull. It is not durable.
func (s *Supervisor) Images(now time.Time, names []string) Out {
	s.openOut(now)
	s.seller.SetImages(names)
	return s.closeOut()
}

// Devices sets the worker's present GPU devices; see market.Seller. It is not durable.
func (s *Supervisor) Devices(now time.Time, list []cluster.GPU) Out {
	s.openOut(now)
	s.seller.SetDevices(now, list)
	return s.closeOut()
}

// Full makes the worker refuse new machines while its disk is full, for the reason why; nil ends that. Existing
// machines run on and may be started. It is not durable.
func (s *Supervisor) Full(now time.Time, why error) Out {
	s.openOut(now)
	if s.full.why == nil && why != nil {
		s.full.since = s.now
	}
	s.full.why = why
	s.cordon.showReason()
	return s.closeOut()
}
