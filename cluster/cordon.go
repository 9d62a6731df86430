package cluster

import "time"

// Cordon says why a worker takes nothing new: who asked for it, why, and until when. The worker keeps it in its
// journal. It always names an owner and a reason, so that a cordon forgotten after maintenance can be traced.
type Cordon struct {
	Owner  string    `json:"owner"`
	Reason string    `json:"reason"`
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until,omitzero"` // it ends by itself then; zero: it must be ended by hand
	Drain  bool      `json:"drain,omitempty"`
}

// DiskOwner is the owner of the cordon of a worker whose disk is full.
const DiskOwner = "souk, for its disk"

// Text returns a worker's state with this cordon (nil: none), with the reason if the disk is full, since a user can
// mend that.
func (c *Cordon) Text() string {
	if c != nil && c.Owner == DiskOwner {
		return string(c.State()) + ": " + c.Reason
	}
	return string(c.State())
}

// State returns the state of a worker with this cordon; nil: no cordon.
func (c *Cordon) State() State {
	switch {
	case c == nil:
		return Ready
	case c.Drain:
		return Draining
	}
	return Cordoned
}

// Same reports whether two cordons are equal; nil: no cordon.
func (c *Cordon) Same(o *Cordon) bool {
	if c == nil || o == nil {
		return c == o
	}
	return c.Owner == o.Owner && c.Reason == o.Reason && c.Drain == o.Drain && c.Since.Equal(o.Since) &&
		c.Until.Equal(o.Until)
}
