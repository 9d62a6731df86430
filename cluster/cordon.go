package cluster

import "time"

// Cordon says why a worker takes nothing new: who wants that, for what, and until when. It is a fact of the worker,
// kept in its journal. It always says who and why, so that a host left cordoned after some maintenance can be asked
// about.
type Cordon struct {
	Owner  string    `json:"owner"`
	Reason string    `json:"reason"`
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until,omitzero"` // it ends by itself then; zero: somebody must end it
	Drain  bool      `json:"drain,omitempty"`
}

// DiskOwner is the owner of the cordon of a worker whose disk is full.
const DiskOwner = "souk, for its disk"

// Text says a worker's state with this cordon, nil for none, and of a full disk why: who wants something of the worker
// can see to that.
func (c *Cordon) Text() string {
	if c != nil && c.Owner == DiskOwner {
		return string(c.State()) + ": " + c.Reason
	}
	return string(c.State())
}

// State is that of a worker with this cordon; nil is none.
func (c *Cordon) State() State {
	switch {
	case c == nil:
		return Ready
	case c.Drain:
		return Draining
	}
	return Cordoned
}

// Same says whether two cordons are one; nil is none.
func (c *Cordon) Same(o *Cordon) bool {
	if c == nil || o == nil {
		return c == o
	}
	return c.Owner == o.Owner && c.Reason == o.Reason && c.Drain == o.Drain && c.Since.Equal(o.Since) &&
		c.Until.Equal(o.Until)
}
