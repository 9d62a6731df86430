package release

import (
	"time"

	"github.com/soukhq/souk/fault"
)

// Progress is how far a rollout is, and what was decided of it: what nobody can see from the machines. Its service's
// steward writes it when that changes. The zero value is of none.
type Progress struct {
	Rollout uint64    `json:"rollout"` // Head.Rollout; with Release it names the rollout
	Release string    `json:"release"`
	State   State     `json:"state,omitempty"` // "": it runs
	Undo    bool      `json:"undo,omitempty"`  // what was before is wanted again
	Step    int       `json:"step,omitempty"`  // how many steps of a canary are over
	Command Commanded `json:"command,omitempty"`
	Why     string    `json:"why,omitempty"` // why it is undone or paused, one sentence
	Failed  []Failure `json:"failed,omitempty"`
	At      time.Time `json:"at,omitzero"` // since when State, Undo and Step are so
}

// State is what became of a rollout.
type State string

// The states of a rollout.
const (
	Done   State = "done"   // all machines are as wanted: with Undo, as they were before
	Paused State = "paused" // it failed, and goes on when somebody says so
)

// Failure is a replica that failed, and why.
type Failure struct {
	Group   string `json:"group"`
	Index   int    `json:"index"`
	Machine string `json:"machine,omitempty"`
	Why     string `json:"why"` // one sentence
}

// Bounds of Progress.
const (
	MaxFailed = 8
	MaxReason = 400 // bytes
)

// Of reports whether p tells of the rollout of a head.
func (p *Progress) Of(h *Head) bool { return p.Rollout == h.Rollout && p.Release == h.Release }

// Check refuses a progress that no steward writes.
func (p *Progress) Check() error {
	ok := len(p.Command) <= maxText && len(p.Release) <= maxText && len(p.Why) <= MaxReason &&
		len(p.Failed) <= MaxFailed && p.Step >= 0 && p.Step <= MaxSteps
	for _, f := range p.Failed {
		ok = ok && len(f.Group) <= maxText && len(f.Machine) <= maxText && len(f.Why) <= MaxReason
	}
	if !ok {
		return fault.New(fault.Invalid, codeProgress,
			"the progress of a rollout has texts of at most %d bytes, at most "+
				"%d replicas that failed and %d steps", MaxReason, MaxFailed, MaxSteps)
	}
	return nil
}
