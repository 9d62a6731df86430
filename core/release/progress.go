package release

import (
	"time"

	"github.com/soukhq/souk/fault"
)

// Progress is how far a rollout is and what was decided about it, as far as the machines do not show it. The service's
// steward writes it when it changes. The zero value is for no rollout.
type Progress struct {
	Rollout uint64    `json:"rollout"` // Head.Rollout; with Release it names the rollout
	Release string    `json:"release"`
	State   State     `json:"state,omitempty"` // "": it is running
	Undo    bool      `json:"undo,omitempty"`  // the previous target is wanted again
	Step    int       `json:"step,omitempty"`  // how many canary steps are over
	Command Commanded `json:"command,omitempty"`
	Why     string    `json:"why,omitempty"` // why it is undone or paused, in one sentence
	Failed  []Failure `json:"failed,omitempty"`
	At      time.Time `json:"at,omitzero"` // since when State, Undo and Step have had these values
}

// State is the outcome of a rollout.
type State string

// The states of a rollout.
const (
	Done   State = "done"   // all machines are as wanted; with Undo, as before
	Paused State = "paused" // it failed, and continues on a person's request
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

// Of reports whether p is about the rollout of a head.
func (p *Progress) Of(h *Head) bool { return p.Rollout == h.Rollout && p.Release == h.Release }

// Check refuses an invalid progress.
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
