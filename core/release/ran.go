package release

import (
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Ran is which run times of a job are settled. The rest follows from its machines.
type Ran struct {
	At      uint64 `json:"at"`                // the newest settled time, in minutes since 1970
	Rule    string `json:"rule"`              // the Rule that the times follow
	Off     bool   `json:"off,omitempty"`     // the job is turned off
	Skipped string `json:"skipped,omitempty"` // why the newest time has started no run yet, in one sentence; "": it has
}

// Time returns the newest settled time.
func (r *Ran) Time() time.Time { return minuteTime(r.At) }

func minuteTime(minute uint64) time.Time { return time.Unix(int64(minute)*60, 0).UTC() }

// Minute returns a time in minutes since 1970, rounded down.
func Minute(t time.Time) uint64 { return uint64(max(0, t.Unix()/60)) }

func checkRuns(runs map[string]Ran) error {
	ok := len(runs) <= MaxGroups
	for group, r := range runs {
		ok = ok && len(group) <= maxText && len(r.Rule) <= MaxReason+1 && len(r.Skipped) <= MaxReason
	}
	if !ok {
		return fault.New(fault.Invalid, codeTenure, "a service has at most %d jobs, with texts of at most %d bytes",
			MaxGroups, MaxReason)
	}
	return nil
}

// Over reports whether a run is over: its program ended, it was stopped, or it could not be started.
func (m *Standing) Over() bool {
	return m.State == machine.Stopped || m.State == machine.Failed || m.Goes()
}

// IsOff reports whether a job is turned off.
func (h *Head) IsOff(job *Group) bool { return h.Count(job) == 0 }
