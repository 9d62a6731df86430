package proxy

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// The pace at which the checks of a machine that a request waits for are asked for again: after this part of the time
// for which it is waited. The worker makes those of a program that answers more seldom.
const (
	pressLeast = 500 * time.Microsecond
	pressPart  = 32
)

// codeExited says that the machine ended by itself before it was ready.
const codeExited fault.Code = "exited"

// awaitSettled returns a machine once no operation is bringing it up any more. If its program ended and a restart is
// pending, it returns that at once; it waits for the first restart only, which follows within 0.1 s.
func (o *owner) awaitSettled(ctx context.Context, w Worker, t Target) (m *machine.Machine, err error) {
	var died *machine.Event
	err = w.Watch(ctx, t.App, t.Machine, func(now *machine.Machine) bool {
		m = now
		switch now.State {
		case machine.Restarting:
			if now.Retry != nil && now.Restarts > 1 {
				died = diedAfter(now, "")
			}
			return died == nil
		case machine.Creating, machine.Starting, machine.Updating, machine.Replacing:
			return true
		default:
			return false
		}
	})
	switch {
	case died != nil:
		return nil, o.exitError(ctx, w, m, died)
	case err != nil && ctx.Err() != nil:
		return nil, fault.New(fault.Timeout, codeWake, "machine %s is still starting; try again in a moment", t.Machine)
	}
	return m, err
}

// awaitFit returns when a machine whose port accepts has passed the checks that requests depend on. The checks run at
// once, and again soon.
func (o *owner) awaitFit(ctx context.Context, w Worker, m *machine.Machine, patience time.Duration) error {
	if isFit(m) {
		return nil
	}
	for _, h := range m.Config.HealthChecks() {
		patience = max(patience, h.Grace-lastStart(m))
	}
	waits, cancel := context.WithTimeout(ctx, patience)
	var pressing sync.WaitGroup
	defer pressing.Wait()
	defer cancel()
	w.CheckNow(m.ID)
	pressing.Go(func() { pressChecks(waits, func() { w.CheckNow(m.ID) }) })
	now, ended := m, error(nil)
	err := w.Watch(waits, m.App, m.ID, func(next *machine.Machine) bool {
		now, ended = next, o.goesOn(ctx, w, m, next)
		return ended == nil && !isFit(next)
	})
	switch {
	case ended != nil:
		return ended
	case err == nil:
		return nil
	case waits.Err() != nil:
		why, _ := notPassed(now)
		return notFit(now, why, lastStart(now))
	}
	_, _, gone := o.findMachine(ctx, Target{App: m.App, Machine: m.ID})
	return cmp.Or(gone, err)
}

// isFit reports whether a machine's checks let requests go to it.
func isFit(m *machine.Machine) bool { return m.Ready() && !m.Failing() }

// pressChecks runs check now and then, at growing intervals, until ctx ends.
func pressChecks(ctx context.Context, check func()) {
	began := time.Now()
	timer := time.NewTimer(pressLeast)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		check()
		timer.Reset(max(pressLeast, time.Since(began)/pressPart))
	}
}

// notPassed returns a check that requests depend on and that has not passed since the machine's start, with the first
// line of its output. judged says that it has reported since its grace ended.
func notPassed(m *machine.Machine) (check string, judged bool) {
	for _, ch := range m.Checks {
		if ch.Passed || ch.Status == machine.CheckPassing || !m.Gates(ch.Name) {
			continue
		}
		if ch.Output == machine.CheckWaits {
			return ch.Name, false
		}
		if why, _, _ := strings.Cut(ch.Output, "\n"); why != "" {
			return fmt.Sprintf("%s (%s)", ch.Name, fault.Clip(why, 160)), true
		}
		return ch.Name, true
	}
	return "", false
}

// notFit is the error of a machine that fails a check, with the time since its start.
func notFit(m *machine.Machine, check string, since time.Duration) error {
	return fault.New(fault.Unavailable, codeNotFit, "machine %s has not passed its check %s since its start %v ago; "+
		"see souk status %s", m.ID, check, since.Round(100*time.Millisecond), m.ID)
}

// lookAgain reads an awaited machine again. It fails if the machine has ended; the code is "ended" if that was
// requested, so that the caller may start it.
func (o *owner) lookAgain(ctx context.Context, m *machine.Machine) (*machine.Machine, error) {
	w, now, err := o.findMachine(ctx, Target{App: m.App, Machine: m.ID})
	if err != nil {
		return nil, err
	}
	return now, o.goesOn(ctx, w, m, now)
}

// goesOn returns an error if an awaited machine has ended; m is its state before and now its state at present. See
// lookAgain.
func (o *owner) goesOn(ctx context.Context, w Worker, m, now *machine.Machine) error {
	if e := diedAfter(now, startEvent(m)); e != nil {
		return o.exitError(ctx, w, now, e)
	}
	if now.State == machine.Started || now.State.Transient() && now.State != machine.Stopping &&
		now.State != machine.Destroying {
		return nil
	}
	return fault.New(fault.Unavailable, fault.CodeEnded,
		"machine %s was started and is %s again; see souk logs %s", m.ID,
		now.State, m.ID)
}

// startEvent returns the id of the newest event that started a machine; "": none is known.
func startEvent(m *machine.Machine) string {
	for i := range m.Events {
		if beginsLife(&m.Events[i]) {
			return m.Events[i].ID
		}
	}
	return ""
}

func beginsLife(e *machine.Event) bool { return e.Type == "start" || e.Type == "restart" }

// diedAfter returns the newest end of a machine after an event ("": at any time), unless it was requested; nil: there
// is none. Event ids sort by time.
func diedAfter(m *machine.Machine, event string) *machine.Event {
	for i := range m.Events {
		e := &m.Events[i]
		if e.ID <= event {
			return nil
		}
		if e.Request != nil && e.Request.ExitEvent != nil {
			if e.Request.ExitEvent.RequestedStop {
				return nil
			}
			return e
		}
	}
	return nil
}

// exitError says how a machine ended, with the last line of its output, and when it is started again.
func (o *owner) exitError(ctx context.Context, w Worker, m *machine.Machine, end *machine.Event) error {
	f := &fault.Error{Kind: fault.Unavailable, Code: codeExited}
	x := end.Request.ExitEvent
	f.Text = fmt.Sprintf("machine %s ended with exit code %d", m.ID, x.ExitCode)
	for i := range m.Events {
		if e := &m.Events[i]; e.ID < end.ID && beginsLife(e) {
			f.Text += fmt.Sprintf(" %v after its start", time.Duration(end.Timestamp-e.Timestamp)*time.Millisecond)
			break
		}
	}
	if x.OOMKilled {
		f.Text += ", as it was out of memory"
	}
	if line := o.lastLine(ctx, w, m); line != "" {
		f.Text += fmt.Sprintf(", and its last line is %q", line)
	}
	f.Text += "; see souk logs " + m.ID
	if m.Retry != nil {
		if next, err := time.Parse(time.RFC3339Nano, m.Retry.Next); err == nil {
			f.RetryAfter = max(time.Until(next), time.Millisecond)
		}
	}
	return f
}

// Bounds of the last line of output in an error.
const (
	lastLines    = 5 // read from the end, since some may be empty
	lastLineMost = 200
	lastLineTime = 200 * time.Millisecond
)

// lastLine returns the last line that is not empty of a machine's output; "": there is none.
func (o *owner) lastLine(ctx context.Context, w Worker, m *machine.Machine) (line string) {
	ctx, cancel := context.WithTimeout(ctx, lastLineTime)
	defer cancel()
	_ = w.Logs(ctx, m.App, m.ID, machine.LogQuery{Tail: new(lastLines)}, func(l machine.LogLine) error {
		if text := strings.TrimSpace(l.Text); text != "" {
			line = text
		}
		return nil
	}) // on failure the exit code must suffice
	return fault.Clip(line, lastLineMost)
}
