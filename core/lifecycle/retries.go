package lifecycle

import (
	"fmt"
	"strings"
	"time"

	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/machine"
)

// How long something fails before it is told.
const (
	// triesNoted is how many tries of a step fail before an event says why: what works at the second is no news.
	triesNoted = 2
	// triesBegun is how many tries of a launch fail before who waits for it is answered that it has begun, and why it
	// is not done: with the pauses of package fsm, after about 1.5 seconds.
	triesBegun = 6
	// maxRetryEvents bounds the events that one run writes, whose reasons may differ at each try.
	maxRetryEvents = 3
)

// retrying is what a machine's run is trying again.
type retrying struct {
	machine.Retry
	run    string // its id
	noted  string // the newest reason that an event told
	events int
}

// noteRetries takes note of runs whose step has failed and is tried again, or is done after all.
func (s *commands) noteRetries() {
	for _, key := range s.out.Retries {
		id, isMachine := strings.CutPrefix(key, "m/")
		r, run := s.rows[id], s.core.engine.Active(key)
		if !isMachine || r == nil || run == nil {
			continue
		}
		s.machines.showRetries(r, run)
		begun := startsAttempt(run) && run.Op != opRevert // whose waiters are to hear why the update failed
		if begun && run.Tries == triesBegun && !run.Undoing && !run.RetryAt().IsZero() {
			s.waiters.drainWaiters(key, func(w waiter) { s.replyBegun(w.ticket, r, w.previous) })
		}
	}
}

// showRetries has a machine show what its run is trying again.
func (s *machines) showRetries(r *row, run *fsm.Run) {
	s.out.Changed = append(s.out.Changed, r.Machine.ID)
	if run.Reason == "" || run.Tries == 0 {
		r.retry = nil
		return
	}
	old := r.retry
	r.retry = &retrying{Retry: machine.Retry{Operation: verbOf(run.Op), Tries: run.Tries, Reason: run.Reason,
		Next: stampOf(run.RetryAt())}, run: run.ID}
	if old != nil && old.run == run.ID {
		r.retry.noted, r.retry.events = old.noted, old.events
	}
	late := run.RetryAt().IsZero() // of that noteLate tells
	if late || run.Tries < triesNoted || r.retry.noted == run.Reason || r.retry.events >= maxRetryEvents {
		return
	}
	r.retry.noted, r.retry.events = run.Reason, r.retry.events+1
	s.writeEvent(r, machine.EventRetry, r.Machine.State, machine.SourceFlyd, verbOf(run.Op)+" is tried again: "+
		run.Reason)
}

// verbOf returns what an operation is in a person's words: several of one verb differ in how room is made, or in the
// image's pull.
func verbOf(op string) string {
	if op == opRelaunch {
		return "restart"
	}
	verb, _, _ := strings.Cut(op, "_")
	return verb
}

// shownRetry returns what the machine shows of what is tried again for it; nil: nothing is.
func (r *row) shownRetry() *machine.Retry {
	switch {
	case r.retry != nil:
		x := r.retry.Retry
		return &x
	case r.RestartAt.IsZero() || r.LastExit == nil:
		return nil
	}
	return &machine.Retry{Operation: "restart", Tries: r.Restarts, Next: stampOf(r.RestartAt),
		Reason: r.LastExit.describeEnd()}
}

// describeEnd says how a life ended.
func (x *Exit) describeEnd() string {
	switch {
	case x.Lost:
		return "its end was not seen"
	case x.OOM:
		return fmt.Sprintf("its program ended with exit code %d: out of memory", x.Code)
	}
	return fmt.Sprintf("its program ended with exit code %d", x.Code)
}

func stampOf(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return formatTime(t)
}
