package lifecycle

import (
	"time"

	"github.com/soukhq/souk/machine"
)

// writeEvent writes an event and the time of the change into a machine.
func (s *machines) writeEvent(r *row, typ string, status machine.State, source, message string) {
	s.noteEvent(r, machine.Event{Type: typ, Status: string(status), Source: source, Message: message})
}

// noteExit adds an event about the end of a life: whether an operation asked for it, and whether another life follows.
func (s *machines) noteExit(r *row, ex Exit, requested, again bool) {
	e := &machine.ExitEvent{ExitCode: ex.Code, GuestExitCode: ex.Code, GuestSignal: ex.Signal, Signal: ex.Signal,
		OOMKilled: ex.OOM, RequestedStop: requested, Restarting: again, Lost: ex.Lost, ExitedAt: ex.At}
	if ex.Signal > 0 {
		e.GuestExitCode = 0
	}
	msg := ""
	if ex.Lost {
		msg = "the end was not seen: the worker's machine, or what watched the process, went down"
	}
	s.noteEvent(r, machine.Event{Type: "exit", Status: string(machine.Stopped), Source: machine.SourceFlyd,
		Message: msg,
		Request: &machine.EventRequest{ExitEvent: e, RestartCount: r.Restarts}})
}

func (s *machines) noteEvent(r *row, e machine.Event) {
	if e.Source == "" {
		e.Source = machine.SourceUser
	}
	e.ID, e.Timestamp = s.newULID(), s.now.UnixMilli()
	r.addEvent(e)
	r.Machine.UpdatedAt = formatTime(s.now)
	s.dirty[r.Machine.ID] = true
	s.out.Events = append(s.out.Events, machine.EventOf{App: r.Machine.App, Machine: r.Machine.ID, Name: r.Machine.Name,
		Event: e})
}

// noteRefused adds an event about an action of the worker's own that it could not carry out.
func (s *machines) noteRefused(r *row, what string, err error) {
	if s.runOf(r.Machine.ID) == nil {
		r.Machine.State = r.settledState()
	}
	s.writeEvent(r, EventParked, r.Machine.State, machine.SourceFlyd, what+": "+err.Error())
}

// warnInEvents adds an event for each warning about the new version.
func (s *machines) warnInEvents(r *row, sentences []string) {
	for _, w := range sentences {
		s.writeEvent(r, machine.EventWarning, r.Machine.State, machine.SourceFlyd, w)
	}
}

func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

func versionKey(id, instance string) string { return id + "|" + instance }
