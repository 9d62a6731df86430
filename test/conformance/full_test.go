package conformance_test

import (
	"testing"

	fly "github.com/superfly/fly-go"
	"github.com/superfly/fly-go/flaps"
)

// TestFullHostRefusesARestart fills a worker: what is stopped gives its room back, so that a start of it is a new bid, and may lose.
func TestFullHostRefusesARestart(t *testing.T) { each(t, fullHost) }

func fullHost(t *testing.T, u subject) {
	s := startSouk(t, u, "--cpus", "8", "--memory", "600m")
	if _, err := s.CreateApp(t.Context(), flaps.CreateAppRequest{Name: "a"}); err != nil {
		t.Fatal(err)
	}
	first := s.launch(t, "a", fly.LaunchMachineInput{Config: s.sleeper()})
	s.launch(t, "a", fly.LaunchMachineInput{Config: s.sleeper()})
	_, err := s.Launch(t.Context(), "a", fly.LaunchMachineInput{Config: s.sleeper()})
	mustContain(t, refused(t, err, 422), "could not find a candidate host", `"resource":"memory"`, `"scope":"region"`)
	s.stop(t, "a", first.ID)
	third := s.launch(t, "a", fly.LaunchMachineInput{Config: s.sleeper()})

	_, err = s.Start(t.Context(), "a", first.ID, "")
	mustContain(t, refused(t, err, 409),
		"aborted: could not reserve resource for machine: insufficient memory available to fulfill request on the current host", `"scope":"host"`)
	if status := flaps.GetErrorStatusCode(err); status != nil && *status != "" {
		t.Errorf("a full host has the status %s", *status)
	}
	if n := s.times("POST", "/v1/apps/a/machines/"+first.ID+"/start"); n != 1 {
		t.Errorf("the start was sent %d times", n)
	}
	if got := s.get(t, "a", first.ID); got.State != "stopped" || got.InstanceID != first.InstanceID {
		t.Errorf("what was refused had an effect: %+v", got)
	}
	if err := s.Destroy(t.Context(), "a", fly.RemoveMachineInput{ID: third.ID, Kill: true}, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Start(t.Context(), "a", first.ID, ""); err != nil {
		t.Fatal(err)
	}
	s.await(t, "a", first.ID, "started")
}
