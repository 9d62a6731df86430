package lifecycle

import (
	"slices"
	"time"

	"github.com/soukhq/souk/machine"
)

// A parked operation is one that this souk cannot go on with: another souk began it with other steps, or its record is
// damaged. Nothing is begun on its machine until somebody destroys the machine, or the souk that began it is back. What
// runs goes on and keeps its room; when it ends the machine is at rest, and its restart policy and its schedule wait.

// EventParked is the type of the events that tell of a parked operation, and of what does not happen because of it.
const EventParked = "parked"

// adopt takes over the life that a parked launch has begun, before its result was written: it runs, or has ended unheard.
func (s *Supervisor) adopt(r *row, l Life) {
	run, _ := s.engine.Parked(machineKey(r.Machine.ID))
	known := r.Life != nil || r.LastExit != nil && r.LastExit.Attempt == l.Attempt
	if run == nil || run.Undoing || known || l.Attempt == 0 || l.Attempt != r.Attempt || !l.Running && !l.HasExit {
		return
	}
	r.Life, r.Launched = &l, true
	s.dirty[r.Machine.ID] = true
}

// noteParked tells of a machine's parked operation in its events, once.
func (s *Supervisor) noteParked(r *row) {
	run, why := s.engine.Parked(machineKey(r.Machine.ID))
	told := func(e machine.Event) bool { return e.Type == EventParked && e.Message == why }
	if run != nil && !slices.ContainsFunc(r.Machine.Events, told) {
		s.note(r, EventParked, r.Machine.State, "flyd", why)
	}
}

// noteRefused tells of something that the worker would have done by itself.
func (s *Supervisor) noteRefused(r *row, what string, err error) {
	if s.engine.Active(machineKey(r.Machine.ID)) == nil {
		r.Machine.State = r.settle()
	}
	s.note(r, EventParked, r.Machine.State, "flyd", what+": "+err.Error())
}

// holdTimers lets pass what has come due for a machine whose operation is parked.
func (s *Supervisor) holdTimers(r *row, why string) {
	due := func(t time.Time) bool { return !t.IsZero() && !s.now.Before(t) }
	if due(r.RestartAt) || due(r.ReturnAt) {
		r.RestartAt, r.ReturnAt = time.Time{}, time.Time{}
		s.idle(r, nil)
		s.note(r, EventParked, r.Machine.State, "flyd", "it does not start again: "+why)
	}
	if due(r.ScheduleAt) {
		r.ScheduleAt = scheduleAfter(r.Machine.Config.Schedule, r.ScheduleAt, s.now)
		s.note(r, EventParked, r.Machine.State, "flyd", "its schedule does not start it: "+why)
	}
}
