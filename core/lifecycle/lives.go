package lifecycle

import (
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/internal/backoff"
	"github.com/soukhq/souk/machine"
)

// Backoff of the restart policy: doubling from base to cap, so that a machine that exits at once does not use up its
// worker. A life of at least restartHealthy resets the count.
const (
	restartBase    = 100 * time.Millisecond
	restartCap     = 30 * time.Second
	restartHealthy = 5 * time.Minute
)

// lives follow what the runtime runs: they record lives that end, start those that come due, and compare the runtime's
// state with the journal's.
type lives struct {
	*machines
	evictions *evictions
	strays    map[string]bool // machines whose room is kept for a running life that the journal lacks
	drift     uint64          // differences that were found and repaired
}

// enterExit handles the end of a life. An exit of an unknown life is only acknowledged; one that arrives before the
// result of its launch waits for that result.
func (s *lives) enterExit(r *row, ex Exit) {
	run := s.runOf(r.Machine.ID)
	if r.Life == nil || r.Life.Attempt != ex.Attempt {
		if run != nil && startsAttempt(run) && argsOf(run).Attempt == ex.Attempt {
			r.early = &ex // not acknowledged: after a crash the runtime repeats it
			return
		}
		s.acknowledgeExit(ex)
		s.strayEnded(r)
		return
	}
	parked, why := s.parkedRun(r.Machine.ID)
	requested := run != nil && (stopsLife(run.Op) || wakesLife(run.Op) && r.Life.OnDisk) || parked != nil &&
		stopsLife(parked.Op)
	if ex.At.Sub(r.Life.StartedAt) >= restartHealthy {
		r.Restarts = 0
	}
	r.Life, r.LastExit, r.Machine.Checks = nil, &ex, nil
	if (run == nil || run.Op != opResize) && r.Former == nil { // otherwise an update or resize still needs the room
		r.Occupies = cluster.Resources{}
	}
	again := !requested && parked == nil && r.wantsRestart(ex)
	if again && !r.hasProcesses() { // it was on disk, and has no room
		again = s.seller.SetUp(s.now, r.Machine.ID, true) == nil
	}
	if !requested {
		r.addDeath(ex.At)
	}
	s.noteExit(r, ex, requested, again)
	s.acknowledgeExit(ex)
	s.dirty[r.Machine.ID] = true
	switch {
	case parked != nil:
		s.bringToRest(r, nil)
		s.writeEvent(r, EventParked, r.Machine.State, machine.SourceFlyd,
			"it has ended, and nothing follows from that: "+why)
	case requested:
		r.Restarts = 0
		s.out.Sync = true // the run goes on to replace or remove the ended life
		s.notifyRun(machineKey(r.Machine.ID))
	case again:
		r.RestartAt = s.now.Add(restartWait(r.Restarts))
		r.Restarts++
		s.bringToRest(r, run)
	default:
		r.Restarts = 0
		s.bringToRest(r, run)
		if r.Machine.Config.AutoDestroy && run == nil {
			if r.Attached {
				r.DestroyAt = s.now.Add(readerPatience)
			} else {
				s.destroyAtEnd(r)
			}
		}
	}
}

// readerPatience is how long a machine with auto_destroy stays after its end if a client reads its output
// (machine.Launch.Attach). The client destroys it after reading everything, unless the client was killed.
const readerPatience = 30 * time.Second

// destroyAtEnd destroys a machine with auto_destroy after its end.
func (s *lives) destroyAtEnd(r *row) {
	r.DestroyAt = time.Time{}
	if r.Life != nil { // it was started again
		return
	}
	if err := s.beginOperation(r, opDestroy, opArgs{Source: machine.SourceFlyd}); err != nil {
		s.noteRefused(r, "it is not destroyed", err)
	}
}

// stopsLife reports whether an operation ends the life that it finds.
func stopsLife(op string) bool {
	return op == opStop || op == opRestart || op == opUpdate || op == opDestroy || op == opPreempt
}

// wakesLife reports whether an operation resumes a life from disk, or launches a new one if it cannot.
func wakesLife(op string) bool { return op == opWake || op == opWakeEvict }

// bringToRest settles a machine whose life has just ended, unless an operation in progress does so.
func (s *lives) bringToRest(r *row, run *fsm.Run) {
	if run != nil {
		s.notifyRun(machineKey(r.Machine.ID))
		return
	}
	r.Machine.State = r.settledState()
	s.settleLedger(r)
	s.machines.prepareStart(r)
}

func restartWait(restarts int) time.Duration {
	return backoff.Doubling{Base: restartBase, Most: restartCap}.After(restarts)
}

// nextStep returns when the next restart, return, schedule or automatic destroy of any machine is due; zero for none.
func (s *lives) nextStep() (first time.Time) {
	if s.halt.why != "" {
		return first
	}
	for id := range s.timed {
		if r := s.rows[id]; s.runOf(id) == nil {
			for _, at := range []time.Time{r.RestartAt, r.ReturnAt, r.ScheduleAt, r.DestroyAt} {
				first = earlierTime(first, at)
			}
		}
	}
	return first
}

// earlierTime returns the earlier of two times; one that is zero does not count.
func earlierTime(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// stepDue starts the lives that have come due.
func (s *lives) stepDue() {
	if s.halt.why != "" {
		return
	}
	for _, id := range sortedKeys(s.timed) {
		r := s.rows[id]
		if r.isDestroyed() || s.runOf(id) != nil {
			continue
		}
		if parked, why := s.parkedRun(id); parked != nil {
			s.holdTimers(r, why)
			continue
		}
		s.runDueTimers(r)
	}
}

func (s *lives) isDue(t time.Time) bool { return !t.IsZero() && !s.now.Before(t) }

// runDueTimers handles a machine's automatic destroy, restart, return and schedule that have come due.
func (s *lives) runDueTimers(r *row) {
	if s.isDue(r.DestroyAt) {
		s.destroyAtEnd(r)
		return
	}
	if s.isDue(r.RestartAt) {
		r.RestartAt = time.Time{}
		if err := s.beginLaunch(r, opRelaunch, opArgs{Source: machine.SourceFlyd}, machine.Restarting); err != nil {
			s.noteRefused(r, "it does not restart", err)
		}
		return
	}
	if s.isDue(r.ReturnAt) {
		s.evictions.comeBack(r)
	}
	if s.isDue(r.ScheduleAt) {
		r.ScheduleAt = scheduleAfter(r.Machine.Config.Schedule, r.ScheduleAt, s.now)
		s.dirty[r.Machine.ID] = true
		s.startScheduled(r)
	}
}

func (s *lives) startScheduled(r *row) {
	if r.Life != nil || s.runOf(r.Machine.ID) != nil {
		return
	}
	s.runUnpaid(r)
	if err := s.seller.SetUp(s.now, r.Machine.ID, true); err != nil {
		s.writeEvent(r, "schedule_failed", r.Machine.State, machine.SourceFlyd, err.Error())
		return
	}
	if err := s.beginLaunch(r, opStart, opArgs{Source: machine.SourceFlyd}, machine.Starting); err != nil {
		s.noteRefused(r, "its schedule does not start it", err)
	}
}

// nextSchedule returns the time of the first run after t; zero for a machine without schedule.
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

// scheduleAfter returns the first time of a schedule after now, in step with at, the time that has come due. Runs that
// were missed while souk was down are made up for only once.
func scheduleAfter(schedule string, at, now time.Time) time.Time {
	next := nextSchedule(schedule, at)
	if period := next.Sub(at); !now.Before(next) && period > 0 {
		if schedule == "monthly" || now.Sub(at) > 1000*24*time.Hour { // not worth keeping in step
			return nextSchedule(schedule, now)
		}
		return at.Add((now.Sub(at)/period + 1) * period)
	}
	return next
}
