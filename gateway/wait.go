package gateway

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

const maxWait = 60 // seconds

// awaited is the condition that a client waits for.
type awaited struct {
	states  []string // any one of them
	version string   // an instance_id the machine must have
	from    string   // an event id: only later states count
	timeout time.Duration
}

func readWait(r *http.Request) (awaited, error) {
	q := r.URL.Query()
	v := awaited{version: q.Get("version"), from: q.Get("from_event_id")}
	if v.version == "" {
		v.version = q.Get("instance_id")
	}
	for _, s := range strings.Split(strings.Join(q["state"], ","), ",") {
		switch {
		case s == "":
		case s == "settled", s == "replaced", machine.State(s).Known():
			v.states = append(v.states, s)
		default:
			return v, fault.New(fault.Invalid, api.CodeState,
				"%q is not a state a machine can be in; wait for created, started, stopped, "+
					"suspended, failed, destroyed or settled", clipText(s, 40))
		}
	}
	if len(v.states) == 0 {
		v.states = []string{string(machine.Started)}
	}
	seconds, err := queryInt(r, "timeout", maxWait, 1, maxWait)
	v.timeout = time.Duration(seconds) * time.Second
	return v, err
}

// isMet reports whether m meets the wait. It returns an error when m never can.
func (v awaited) isMet(m *machine.Machine) (bool, error) {
	gone := m.State == machine.Destroyed
	if gone && v.wantsState(machine.Destroyed) {
		return true, nil // a destroyed machine meets any version
	}
	if v.version != "" && v.version != m.InstanceID {
		passed := v.version < m.InstanceID // instance ids sort as they were made
		if passed && slices.Contains(v.states, "replaced") {
			return true, nil
		}
		if passed {
			return false, fault.New(fault.Invalid, api.CodeWaitVersion,
				"machine %s is at version %s, so version %s will not be seen again",
				m.ID, m.InstanceID, clipText(v.version, 40))
		}
	} else if v.hasReached(m) {
		return true, nil
	}
	if gone {
		return false, fault.New(fault.Invalid, api.CodeWaitDestroyed,
			"machine %s is destroyed, so it will not be %s", m.ID, strings.Join(v.states, " or "))
	}
	return false, nil
}

func (v awaited) wantsState(s machine.State) bool { return slices.Contains(v.states, string(s)) }

// hasReached reports whether m is in one of the states, or was since the event. A created machine that never started
// counts as stopped: deploy clients make one with skip_launch and wait for "stopped" before they start it.
func (v awaited) hasReached(m *machine.Machine) bool {
	settled := slices.Contains(v.states, "settled") && !m.State.Transient()
	if v.from == "" {
		return settled || v.wantsState(m.State) || m.State == machine.Created && v.wantsState(machine.Stopped)
	}
	for _, e := range m.Events { // newest first
		if e.ID <= v.from {
			break
		}
		if settled || slices.Contains(v.states, e.Status) {
			return true
		}
	}
	return false
}

// waitMachine answers when the machine meets the wait, or the timeout ends.
func (a *machinesAPI) waitMachine(w http.ResponseWriter, r *http.Request) error {
	v, err := readWait(r)
	if err != nil {
		return err
	}
	app, id := r.PathValue("app"), r.PathValue("id")
	f, err := a.directory.Find(r.Context(), app, id)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), v.timeout)
	defer cancel()
	last, done := f.Machine, false
	var never error
	err = f.Worker.Watch(ctx, app, id, func(m *machine.Machine) bool {
		last = m
		done, never = v.isMet(m)
		return !done && never == nil
	})
	switch {
	case done:
		out := api.Waited{OK: true, State: last.State, Version: last.InstanceID}
		if len(last.Events) > 0 {
			out.EventID = last.Events[0].ID
		}
		answerJSON(w, http.StatusOK, out)
		return nil
	case never != nil:
		return never
	case r.Context().Err() != nil:
		return r.Context().Err()
	case ctx.Err() != nil:
		return fault.New(fault.Timeout, fault.CodeWait,
			"machine failed to reach desired state, %s, currently %s",
			strings.Join(v.states, " or "), last.State)
	}
	return err
}
