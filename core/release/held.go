package release

import (
	"time"
)

// Held is a machine of a service that died again and again. It is kept down for a while, then tried again, and that as often
// as it takes. Another takes its place once the service's machines are to be otherwise, or to be restarted, or when somebody
// destroys it.
type Held struct {
	Machine string    `json:"machine"`
	Group   string    `json:"group"`
	Index   int       `json:"index"`
	Why     string    `json:"why"`   // one sentence
	Since   time.Time `json:"since"` // when it was held for the first time since it was last of use
	At      time.Time `json:"at"`    // when it was held for the last time
}

// Bounds of holds.
const (
	// MaxHeld bounds the machines of one service that are held: more are left to their workers.
	MaxHeld = 64
	// A machine is held for a part of the time for which it has been of no use: what failed because something else was away
	// is back soon after that, and what never works is tried seldom.
	holdPart  = 6
	leastHold = 5 * time.Second
	mostHold  = 5 * time.Minute
)

// Until returns when the machine is tried again.
func (h *Held) Until() time.Time {
	return h.At.Add(min(max(h.At.Sub(h.Since)/holdPart, leastHold), mostHold))
}
