package release

import (
	"time"
)

// Held is a machine of a service that ended by itself again and again. It is kept down for a while and then tried
// again, repeatedly. It is replaced once the service's machines are to change or to restart, or when somebody destroys
// it.
type Held struct {
	Machine string    `json:"machine"`
	Group   string    `json:"group"`
	Index   int       `json:"index"`
	Why     string    `json:"why"`   // one sentence
	Since   time.Time `json:"since"` // when it was first held since it last worked
	At      time.Time `json:"at"`    // when it was last held
}

// Bounds of holds.
const (
	// MaxHeld bounds the held machines of one service: further ones are left to their workers.
	MaxHeld = 64
	// A machine is held for a fraction of the time since it last worked: one that failed for lack of a dependency is
	// back soon after that returns, and one that never works is tried seldom.
	holdPart  = 6
	leastHold = 5 * time.Second
	mostHold  = 5 * time.Minute
)

// Until returns when the machine is tried again.
func (h *Held) Until() time.Time {
	return h.At.Add(min(max(h.At.Sub(h.Since)/holdPart, leastHold), mostHold))
}
