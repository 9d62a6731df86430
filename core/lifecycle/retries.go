package lifecycle

import (
	"fmt"
	"strings"
	"time"

	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/machine"
)

// Numbers of failures before they are reported.
const (
	// triesNoted is how many tries of a step fail before an event says why: a success at the second try is not worth
	// an event.
	triesNoted = 2
	// triesBegun is how many tries of a launch fail before its waiters get the answer that it has begun, with the
	// reason why it is not done: with the pauses of package fsm, after about 1.5 seconds.
	triesBegun = 6
	// maxRetryEvents bounds the retry events of one run, whose reasons may differ at each try.
	maxRetryEvents = 3
)

// retrying is the step that a machine's run is retrying.
type retrying struct {
	machine.Retry
	run    string // its id
	noted  string // the reason in the newest event
	events int
}

// noteRetries handles runs whose step failed and is retried, or succeeded after failures.
func (s *commands) noteRetries() {
	for _, key := range s.out.Retries {
		id, isMachine := strings.CutPrefix(key, "m/")
		r, run := s.rows[id], s.core.engine.Active(key)
		if !isMachine || r == nil || run == nil {
			continue
		}
		s.machines.showRetries(r, run)
		begun := startsAttempt(run) && run.Op != opRevert // a revert's waiters wait for the update's error
		if begun && run.Tries == triesBegun && !run.Undoing && !run.RetryAt().IsZero() {
			s.waiters.drainWaiters(key, func(w waiter) { s.replyBegun(w.ticket, r, w.previous) })
		}
	}
}

// showRetries updates the retry that a machine shows.
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
	late := run.RetryAt().IsZero() // noteLate reports these
	if late || run.Tries < triesNoted || r.retry.noted == run.Reason || r.retry.events >= maxRetryEvents {
		return
	}
	r.retry.noted, r.retry.events = run.Reason, r.retry.events+1
	s.writeEvent(r, machine.EventRetry, r.Machine.State, machine.SourceFlyd, verbOf(run.Op)+" is tried again: "+
		run.Reason)
}

// verbOf returns an operation's name for people: several operations are one verb, and differ in how room is made or in
// the image pull.
func verbOf(op string) string {
	if op == opRelaunch {
		return "restart"
	}
	verb, _, _ := strings.Cut(op, "_")
	return verb
}

// shownRetry returns the retry that the machine shows; nil: none.
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

// describeEnd describes how a life ended.
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
