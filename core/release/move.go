package release

import (
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
)

// A head may move machines to other workers. Such a machine is replaced like one on a drained worker: a new one is
// made first, at the target worker only, and the old one is removed once the new one counts. If that fails, the old
// one stays.

// MoveTo asks for a machine of a service to be at another worker.
type MoveTo struct {
	Machine string           `json:"machine"`
	Group   string           `json:"group"` // the group of its replica
	Index   int              `json:"index"`
	To      cluster.WorkerID `json:"to"`    // in a Change, "": cancel the move
	Until   time.Time        `json:"until"` // the move is given up then
}

// Bounds of moves.
const (
	// MaxMoves bounds the moves of one service at the same time.
	MaxMoves = 64
	// moveWithin is how long a move is tried: a target that comes back much later is not what the person meant.
	moveWithin = time.Hour
)

// Move returns the change that moves machines to other workers, or with To "" cancels their moves. stands reports
// whether a machine with an ID exists. The error is an Exhausted, code moves: MaxMoves moves are in progress.
func (r *Service) Move(moves []MoveTo, stands func(id string) bool, now time.Time) (Change, error) {
	c := Change{Why: WhyMove}
	under := r.Head.moved(&Change{Moves: moves, At: now})
	for _, m := range moves {
		at := slices.IndexFunc(r.Head.Moves, func(x MoveTo) bool { return x.Machine == m.Machine })
		was := MoveTo{}
		if at >= 0 {
			was = r.Head.Moves[at]
		}
		if m.To == "" && at >= 0 || m.To != "" && !(was.To == m.To && now.Before(was.Until)) {
			m.Until = now.UTC().Add(moveWithin)
			c.Moves = append(c.Moves, m)
		}
	}
	switch {
	case len(c.Moves) == 0:
		return Change{}, nil
	case len(under) <= MaxMoves:
		return c, nil
	}
	for _, x := range r.Head.Moves { // moves that are over
		if !stands(x.Machine) && !slices.ContainsFunc(moves, func(m MoveTo) bool { return m.Machine == x.Machine }) {
			c.Moves = append(c.Moves, MoveTo{Machine: x.Machine})
		}
	}
	if under = r.Head.moved(&Change{Moves: c.Moves, At: now}); len(under) > MaxMoves {
		return Change{}, fault.New(fault.Exhausted, codeMoves, "%d machines of %s would move to other workers at "+
			"once, and at most %d may: wait until some have arrived, or name fewer", len(under), r.App, MaxMoves)
	}
	return c, nil
}

// moved returns the moves of the head that follows h by a change.
func (h *Head) moved(c *Change) (out []MoveTo) {
	if len(c.Moves) == 0 && !c.begins() {
		return h.Moves
	}
	for _, m := range h.Moves {
		again := slices.ContainsFunc(c.Moves, func(x MoveTo) bool { return x.Machine == m.Machine })
		if c.At.Before(m.Until) && !again {
			out = append(out, m)
		}
	}
	for _, m := range c.Moves {
		if m.To != "" {
			out = append(out, m)
		}
	}
	return out
}

// MovesTo returns the worker that a person moves a machine to; "": there is no move, it is over, or the machine is
// there.
func (h *Head) MovesTo(now time.Time, id string, at cluster.WorkerID) cluster.WorkerID {
	for i := range h.Moves {
		if m := &h.Moves[i]; m.Machine == id && m.To != at && now.Before(m.Until) {
			return m.To
		}
	}
	return ""
}

// Moved returns the machines of a service as they are once all moves have succeeded.
func (h *Head) Moved(now time.Time, standing []Standing) (out []Standing) {
	for _, m := range standing {
		if to := h.MovesTo(now, m.ID, m.Worker); to != "" {
			if slices.ContainsFunc(standing, func(x Standing) bool { return x.Slot() == m.Slot() && x.Worker == to }) {
				continue
			}
			m.Worker = to
		}
		out = append(out, m)
	}
	return out
}

func (h *Head) checkMoves() error {
	ok := len(h.Moves) <= MaxMoves
	for i := range h.Moves {
		m := &h.Moves[i]
		ok = ok && len(m.Machine) <= maxText && len(m.Group) <= maxText && len(m.To) <= maxText
	}
	if !ok {
		return fault.New(fault.Invalid, codeHead, "the head of a service moves at most %d machines, each to a worker "+
			"whose id has at most %d bytes", MaxMoves, maxText)
	}
	return nil
}
