package lifecycle

import (
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fsm"
	"github.com/soukhq/souk/machine"
)

// Backoff of the restart policy: doubling from base to cap, so that a machine that dies at once does not eat its worker.
// A life of at least restartHealthy begins the count anew.
const (
	restartBase    = 100 * time.Millisecond
	restartCap     = 30 * time.Second
	restartHealthy = 5 * time.Minute
)

// exited takes the end of a life into account. An exit that belongs to no life known is only acknowledged, but for one
// that overtook the launch it belongs to, which waits for it.
func (s *Supervisor) exited(r *row, ex Exit) {
	id := r.Machine.ID
	run := s.engine.Active(machineKey(id))
	parked, why := s.engine.Parked(machineKey(id))
	if r.Life == nil || r.Life.Attempt != ex.Attempt {
		if run != nil && launches(run) && argsOf(run).Attempt == ex.Attempt {
			r.early = &ex // not acknowledged: if we crash now it is told again
			return
		}
		s.ack(ex)
		s.strayEnded(r)
		return
	}
	requested := run != nil && stops(run.Op) || parked != nil && stops(parked.Op)
	if ex.At.Sub(r.Life.StartedAt) >= restartHealthy {
		r.Restarts = 0
	}
	r.Life, r.LastExit, r.Occupies = nil, &ex, cluster.Resources{}
	again := !requested && parked == nil && r.wantsRestart(ex)
	s.noteExit(r, ex, requested, again)
	s.ack(ex)
	s.dirty[id] = true
	switch {
	case parked != nil:
		s.idle(r, nil)
		s.note(r, EventParked, r.Machine.State, "flyd", "it has ended, and nothing follows from that: "+why)
	case requested:
		s.out.Sync = true // the run goes on to replace or remove what this was the exit of
		s.engine.Notify(s.now, machineKey(id), &s.out.Out)
	case again:
		r.RestartAt = s.now.Add(restartWait(r.Restarts))
		r.Restarts++
		s.idle(r, run)
	default:
		r.Restarts = 0
		s.idle(r, run)
		if r.Machine.Config.AutoDestroy && run == nil {
			if err := s.begin(r, opDestroy, opArgs{Source: "flyd"}); err != nil {
				s.noteRefused(r, "it is not destroyed", err)
			}
		}
	}
}

// strayEnded gives back the room that was kept for a life that the journal does not have.
func (s *Supervisor) strayEnded(r *row) {
	if id := r.Machine.ID; s.strays[id] {
		delete(s.strays, id)
		if !r.destroyed() && s.engine.Active(machineKey(id)) == nil {
			s.room(r)
			s.dirty[id] = true // for the meter
		}
	}
}

// stops reports whether an operation ends the life that it finds.
func stops(op string) bool {
	return op == opStop || op == opRestart || op == opUpdate || op == opDestroy || op == opPreempt
}

// idle brings a machine whose life has just ended to rest, unless an operation is on its way that will.
func (s *Supervisor) idle(r *row, run *fsm.Run) {
	if run != nil {
		s.engine.Notify(s.now, machineKey(r.Machine.ID), &s.out.Out)
		return
	}
	r.Machine.State = r.settle()
	s.room(r)
}

func restartWait(restarts int) time.Duration {
	if restarts > 9 {
		return restartCap
	}
	return min(restartCap, restartBase<<restarts)
}

// timers acts on a machine's restart and schedule that have come due.
func (s *Supervisor) timers(r *row) {
	if r.destroyed() || s.engine.Active(machineKey(r.Machine.ID)) != nil {
		return
	}
	if parked, why := s.engine.Parked(machineKey(r.Machine.ID)); parked != nil {
		s.holdTimers(r, why)
		return
	}
	if !r.RestartAt.IsZero() && !s.now.Before(r.RestartAt) {
		r.RestartAt = time.Time{}
		if err := s.launch(r, opRelaunch, opArgs{Source: "flyd"}, machine.Restarting); err != nil {
			s.noteRefused(r, "it does not restart", err)
		}
		return
	}
	if !r.ReturnAt.IsZero() && !s.now.Before(r.ReturnAt) {
		s.comeBack(r)
	}
	if !r.ScheduleAt.IsZero() && !s.now.Before(r.ScheduleAt) {
		r.ScheduleAt = scheduleAfter(r.Machine.Config.Schedule, r.ScheduleAt, s.now)
		s.dirty[r.Machine.ID] = true
		if r.Life != nil || s.engine.Active(machineKey(r.Machine.ID)) != nil {
			return
		}
		s.borrow(r)
		if err := s.seller.SetUp(s.now, r.Machine.ID, true); err != nil {
			s.note(r, "schedule_failed", r.Machine.State, "flyd", err.Error())
			return
		}
		if err := s.launch(r, opStart, opArgs{Source: "flyd"}, machine.Starting); err != nil {
			s.noteRefused(r, "its schedule does not start it", err)
		}
	}
}

// nextSchedule gives the time of the run after t; zero for a machine without schedule.
func nextSchedule(schedule string, t time.Time) time.Time {
	switch schedule {
	case "hourly":
		return t.Add(time.Hour)
	case "daily":
		return t.AddDate(0, 0, 1)
	case "weekly":
		return t.AddDate(0, 0, 7)
	case "monthly":
		return t.AddDate(0, 1, 0)
	}
	return time.Time{}
}

// scheduleAfter gives the first time of a schedule behind now, in step with the time at that has come due. What was missed
// while souk was down is not made up for more than once.
func scheduleAfter(schedule string, at, now time.Time) time.Time {
	next := nextSchedule(schedule, at)
	if period := next.Sub(at); !now.Before(next) && period > 0 {
		if schedule == "monthly" || now.Sub(at) > 1000*24*time.Hour { // not worth keeping in step with
			return nextSchedule(schedule, now)
		}
		return at.Add((now.Sub(at)/period + 1) * period)
	}
	return next
}

// purge drops destroyed machines that have been readable long enough.
func (s *Supervisor) purge() {
	for len(s.gone) > 0 {
		r := s.rows[s.gone[0]]
		if len(s.gone) <= MaxDestroyed && s.now.Before(r.DestroyedAt.Add(KeepDestroyed)) {
			return
		}
		s.drop(r)
		s.gone = s.gone[1:]
	}
}

func (s *Supervisor) drop(r *row) {
	id := r.Machine.ID
	s.out.Records = append(s.out.Records, fsm.Record{Bucket: MachineBucket, Key: id})
	for _, v := range r.versions {
		s.out.Records = append(s.out.Records, fsm.Record{Bucket: VersionBucket, Key: versionKey(id, v.Version)})
	}
	s.engine.Forget(machineKey(id), &s.out.Out)
	delete(s.rows, id) // an audit asked before this may still see its directory: it was removed when it was destroyed
	delete(s.timed, id)
	delete(s.strays, id)
	delete(s.dirty, id)
	s.out.Changed = append(s.out.Changed, id)
}

// bury makes a machine destroyed: it gives back all it had, and stays readable for a while.
func (s *Supervisor) bury(r *row) {
	id := r.Machine.ID
	r.Machine.State, r.DestroyedAt = machine.Destroyed, s.now
	r.Life, r.RestartAt, r.ScheduleAt, r.ReturnAt = nil, time.Time{}, time.Time{}, time.Time{}
	for _, v := range r.mounts() {
		s.detach(v, id)
	}
	delete(s.names, fullName{r.Machine.App, r.Machine.Name})
	s.seller.Free(id)
	s.unlease(id)
	s.gone = append(s.gone, id)
	s.dirty[id] = true
	s.purge()
}

// note writes an event and the time of the change into the machine.
func (s *Supervisor) note(r *row, typ string, status machine.State, source, message string) {
	s.noteEvent(r, machine.Event{Type: typ, Status: string(status), Source: source, Message: message})
}

func (s *Supervisor) noteExit(r *row, ex Exit, requested, again bool) {
	e := &machine.ExitEvent{ExitCode: ex.Code, GuestExitCode: ex.Code, GuestSignal: ex.Signal, Signal: ex.Signal,
		OOMKilled: ex.OOM, RequestedStop: requested, Restarting: again, Lost: ex.Lost, ExitedAt: ex.At}
	if ex.Signal > 0 {
		e.GuestExitCode = 0
	}
	msg := ""
	if ex.Lost {
		msg = "the end was not seen: the worker's machine, or what watched the process, went down"
	}
	s.noteEvent(r, machine.Event{Type: "exit", Status: string(machine.Stopped), Source: "flyd", Message: msg,
		Request: &machine.EventRequest{ExitEvent: e, RestartCount: r.Restarts}})
}

func (s *Supervisor) noteEvent(r *row, e machine.Event) {
	if e.Source == "" {
		e.Source = "user"
	}
	e.ID, e.Timestamp = s.ulid(), s.now.UnixMilli()
	r.event(e)
	r.Machine.UpdatedAt = stamp(s.now)
	s.dirty[r.Machine.ID] = true
	s.out.Events = append(s.out.Events, machine.EventOf{App: r.Machine.App, Machine: r.Machine.ID, Name: r.Machine.Name, Event: e})
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

func versionKey(id, instance string) string { return id + "|" + instance }
