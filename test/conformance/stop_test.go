package conformance_test

import (
	"slices"
	"testing"
	"time"

	fly "github.com/superfly/fly-go"
	"github.com/superfly/fly-go/flaps"
)

func (s *market) stop(t *testing.T, app, id string) {
	t.Helper()
	if err := s.Stop(t.Context(), app, fly.StopMachineInput{ID: id}, ""); err != nil {
		t.Fatal(err)
	}
	s.await(t, app, id, "stopped")
}

func lastExit(t *testing.T, m *fly.Machine) *fly.MachineExitEvent {
	t.Helper()
	e := m.GetLatestEventOfType("exit")
	if e == nil || e.Request == nil || e.Request.ExitEvent == nil {
		t.Fatalf("there is no exit event with its exit among %v", events(m))
	}
	return e.Request.ExitEvent
}

func stopTests() tests {
	return tests{
		"stop with 0s and wait for the version": func(t *testing.T, s *market, app string) {
			m := s.launch(t, app, fly.LaunchMachineInput{Config: s.sleeper()})
			if err := s.Stop(t.Context(), app, fly.StopMachineInput{ID: m.ID, Timeout: fly.Duration{}},
				""); err != nil {
				t.Fatal(err)
			}
			if err := s.Wait(t.Context(), app, m.ID, flaps.WithWaitStates("stopped"),
				flaps.WithWaitVersion(m.InstanceID), flaps.WithWaitTimeout(limit)); err != nil {
				t.Fatal(err)
			}
			got := s.get(t, app, m.ID)
			if e := lastExit(t, got); !e.RequestedStop || e.ExitedAt.IsZero() {
				t.Errorf("the exit is %+v", e)
			}
			s.stop(t, app, m.ID) // again
			_, err := s.Exec(t.Context(), app, m.ID, &fly.MachineExecRequest{Cmd: "/bin/true"})
			refused(t, err, 412, 409, 400, 422)
		},
		"start again": func(t *testing.T, s *market, app string) {
			m := s.launch(t, app, fly.LaunchMachineInput{Config: s.sleeper()})
			s.stop(t, app, m.ID)
			r, err := s.Start(t.Context(), app, m.ID, "")
			if err != nil || r.PreviousState != "stopped" || r.Status == "error" {
				t.Fatal(r, err)
			}
			s.await(t, app, m.ID, "started")
			if _, err := s.Start(t.Context(), app, m.ID, ""); err != nil {
				t.Fatal("a start of what is started:", err)
			}
			if got := s.get(t, app, m.ID); got.InstanceID != m.InstanceID {
				t.Error("a start made a new instance")
			}
		},
		"restart": func(t *testing.T, s *market, app string) {
			m := s.launch(t, app, fly.LaunchMachineInput{Config: s.sleeper()})
			before := s.get(t, app, m.ID).GetLatestEventOfType("start")
			if err := s.Restart(t.Context(), app, fly.RestartMachineInput{ID: m.ID, Timeout: 5 * time.Second,
				Signal: "SIGTERM"}, ""); err != nil {
				t.Fatal(err)
			}
			s.await(t, app, m.ID, "started")
			got := s.get(t, app, m.ID)
			if after := got.GetLatestEventOfType("start"); after == nil || after.Timestamp <= before.Timestamp ||
				got.InstanceID != m.InstanceID {
				t.Errorf("before %+v, after %+v; instance %s, was %s", before, after, got.InstanceID, m.InstanceID)
			}
			if err := s.Restart(t.Context(), app, fly.RestartMachineInput{ID: m.ID, ForceStop: true}, ""); err != nil {
				t.Fatal(err)
			}
			s.await(t, app, m.ID, "started")
		},
		"suspend and resume": func(t *testing.T, s *market, app string) {
			m := s.launch(t, app, fly.LaunchMachineInput{Config: s.sleeper()})
			if err := s.Suspend(t.Context(), app, m.ID, ""); err != nil {
				t.Fatal(err)
			}
			s.await(t, app, m.ID, "suspended", "stopped")
			r, err := s.Start(t.Context(), app, m.ID, "")
			if err != nil || r.PreviousState != "suspended" && r.PreviousState != "stopped" {
				t.Fatal(r, err)
			}
			s.await(t, app, m.ID, "started")
		},
		"kill": func(t *testing.T, s *market, app string) {
			m := s.launch(t, app, fly.LaunchMachineInput{Config: s.sleeper()})
			if err := s.Kill(t.Context(), app, m.ID); err != nil {
				t.Fatal(err)
			}
			s.await(t, app, m.ID, "stopped")
			if e := lastExit(t, s.get(t, app, m.ID)); e.ExitCode != 137 || e.Signal != 9 && e.GuestSignal != 9 {
				t.Errorf("the exit is %+v", e)
			}
		},
		"destroy": func(t *testing.T, s *market, app string) {
			m := s.launch(t, app, fly.LaunchMachineInput{Config: s.sleeper()})
			refused(t, s.Destroy(t.Context(), app, fly.RemoveMachineInput{ID: m.ID}, ""), 412, 409)
			if got := s.get(t, app, m.ID); got.State != "started" {
				t.Errorf("a refused destroy left it %s", got.State)
			}
			if err := s.Destroy(t.Context(), app, fly.RemoveMachineInput{ID: m.ID, Kill: true}, ""); err != nil {
				t.Fatal(err)
			}
			if err := s.Wait(t.Context(), app, m.ID, flaps.WithWaitStates("destroyed"),
				flaps.WithWaitTimeout(limit)); err != nil {
				refused(t, err, 404)
			}
			list, err := s.List(t.Context(), app, "")
			if err != nil || len(list) != 0 {
				t.Error(list, err)
			}
			if got, err := s.Get(t.Context(), app, m.ID); err == nil && got.State != "destroyed" {
				t.Errorf("it is %s", got.State)
			} else if err != nil {
				refused(t, err, 404)
			}
			_, err = s.Start(t.Context(), app, m.ID, "")
			refused(t, err, 404, 412, 410)
			all, err := s.List(t.Context(), app, "include_deleted=true")
			if err != nil || !slices.ContainsFunc(all, func(d *fly.Machine) bool {
				return d.ID == m.ID &&
					d.State == "destroyed"
			}) {
				t.Error("include_deleted does not list it:", all, err)
			}
		},
		"destroy what is stopped": func(t *testing.T, s *market, app string) {
			m := s.launch(t, app, fly.LaunchMachineInput{Config: s.sleeper()})
			s.stop(t, app, m.ID)
			if err := s.Destroy(t.Context(), app, fly.RemoveMachineInput{ID: m.ID}, ""); err != nil {
				t.Fatal(err)
			}
		},
	}
}
