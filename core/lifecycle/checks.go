package lifecycle

import (
	"slices"
	"strings"
	"time"

	"github.com/soukhq/souk/machine"
)

// maxCheckEvents bounds a machine's events about checks, so that a flapping check does not push out the other events.
const maxCheckEvents = 10

// CheckResult is the result of a health check on an attempt of a machine.
type CheckResult struct {
	Machine string
	Attempt uint64
	Name    string
	Status  string // of machine.Check
	Output  string // the first line says why, the rest is the machine's own output
	Missed  string // why the check failed this time without changing its status; "": it did not
}

// Checked handles results of health checks. A result belongs to the attempt that was checked; it is dropped if the
// attempt has ended, is suspended or is about to end.
func (s *Supervisor) Checked(now time.Time, list []CheckResult) Out {
	s.openOut(now)
	for _, c := range list {
		s.machines.enterCheckResult(c)
	}
	return s.closeOut()
}

// CheckedAttempt returns the attempt of a machine that is to be checked now; 0: none.
func (s *Supervisor) CheckedAttempt(id string) uint64 {
	if r := s.machines.rows[id]; r != nil && r.hasChecks() {
		return r.Life.Attempt
	}
	return 0
}

func (r *row) hasChecks() bool {
	return r.Life != nil && !r.Life.Paused && r.Machine.State == machine.Started
}

// enterCheckResult stores one result. A changed status adds an event and is journalled with the next commit; a changed
// output alone is only shown.
func (s *machines) enterCheckResult(c CheckResult) {
	r := s.rows[c.Machine]
	if r == nil || !r.hasChecks() || r.Life.Attempt != c.Attempt {
		return
	}
	list := slices.Clone(r.Machine.Checks)
	if list == nil { // the life was adopted, so no launch has set its checks
		list = unheardChecks(r.Machine.Config, s.now)
	}
	at := slices.IndexFunc(list, func(ch machine.Check) bool { return ch.Name == c.Name })
	if at < 0 {
		return
	}
	old := list[at]
	if c.Missed != "" {
		list[at].Misses++
		list[at].Missed, _, _ = strings.Cut(c.Missed, "\n")
		r.Machine.Checks = list
		s.out.Changed = append(s.out.Changed, c.Machine)
		return
	}
	if old.Status == c.Status && old.Output == c.Output {
		return
	}
	list[at] = machine.Check{Name: c.Name, Status: c.Status, Output: c.Output, UpdatedAt: s.now.UTC(),
		Misses: old.Misses, Missed: old.Missed,
		Passed: old.Passed || old.Status == machine.CheckPassing || c.Status == machine.CheckPassing}
	r.Machine.Checks = list
	if old.Status == c.Status && old.Output != machine.CheckWaits {
		s.out.Changed = append(s.out.Changed, c.Machine)
		return
	}
	why, _, _ := strings.Cut(c.Output, "\n")
	s.noteEvent(r, machine.Event{Type: machine.EventCheck, Status: c.Status, Source: machine.SourceFlyd,
		Message: c.Name + ": " + why})
}

// unheardChecks returns the checks of a config before their first results.
func unheardChecks(c *machine.Config, now time.Time) []machine.Check {
	var out []machine.Check
	for _, h := range c.HealthChecks() {
		out = append(out, machine.Check{Name: h.Name, Status: machine.CheckCritical, Output: machine.CheckWaits,
			UpdatedAt: now.UTC()})
	}
	return out
}

// withoutOldest returns events, newest first. If there are most of a type already, it leaves out the oldest of them.
// The slice itself is not changed.
func withoutOldest(events []machine.Event, typ string, most int) []machine.Event {
	n, oldest := 0, 0
	for i := range events {
		if events[i].Type == typ {
			n++
			oldest = i
		}
	}
	if n < most {
		return events
	}
	return slices.Concat(events[:oldest], events[oldest+1:])
}
