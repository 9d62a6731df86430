package conformance_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	fly "github.com/superfly/fly-go"
	"github.com/superfly/fly-go/flaps"
)

func machineTests() tests {
	return tests{
		"launch answers what it made": func(t *testing.T, s *market, app string) {
			m, err := s.Launch(t.Context(), app, fly.LaunchMachineInput{Name: "one", Region: "local",
				Config: s.sleeper()})
			if err != nil {
				t.Fatal(err)
			}
			if m.ID == "" || m.InstanceID == "" || m.Name != "one" || m.Region != "local" || m.CreatedAt == "" ||
				m.Config == nil || m.Config.Image != s.image ||
				!slices.Contains([]string{"created", "creating", "starting", "started"}, m.State) ||
				m.HostStatus != fly.HostStatusOk {
				t.Errorf("the machine is %+v", m)
			}
			if _, err := time.Parse(time.RFC3339, m.CreatedAt); err != nil {
				t.Error(err)
			}
			s.await(t, app, m.ID, "started")
			s.await(t, app, m.ID, "started") // what is so already
			if n := s.times("POST", "/v1/apps/"+app+"/machines"); n != 1 {
				t.Errorf("the create was sent %d times", n)
			}
		},
		"get answers the config unchanged": configUnchanged,
		"events newest first in ms": func(t *testing.T, s *market, app string) {
			m := s.get(t, app, s.launch(t, app, fly.LaunchMachineInput{Config: s.sleeper()}).ID)
			if got := events(m); len(got) < 2 || got[len(got)-1] != "launch" || got[0] != "start" {
				t.Errorf("the events are %v", got)
			}
			for i, e := range m.Events {
				if d := time.Since(e.Time()); d < -time.Hour || d > time.Hour || i > 0 &&
					e.Timestamp > m.Events[i-1].Timestamp {
					t.Errorf("the event %+v is not of now, or out of order", e)
				}
			}
			if _, err := m.MostRecentStartTimeAfterLaunch(); err != nil {
				t.Error(err)
			}
			if m.ImageRef.Repository == "" {
				t.Errorf("the image is %+v", m.ImageRef)
			}
		},
		"list and its filters": func(t *testing.T, s *market, app string) {
			empty, err := s.List(t.Context(), app, "")
			if err != nil || empty == nil || len(empty) != 0 {
				t.Fatal(empty, err)
			}
			c := s.sleeper()
			c.Metadata = map[string]string{"colour": "red", fly.MachineConfigMetadataKeyFlyPlatformVersion: "v2"}
			m := s.launch(t, app, fly.LaunchMachineInput{Config: c})
			for query, want := range map[string]int{"": 1, "metadata.colour=red": 1, "metadata.colour=blue": 0,
				"region=local": 1, "region=mars": 0, "include_deleted=true": 1} {
				list, err := s.List(t.Context(), app, query)
				if err != nil || len(list) != want {
					t.Errorf("%q lists %d (%v), want %d", query, len(list), err, want)
				}
			}
			active, err := s.ListActive(t.Context(), app)
			if err != nil || len(active) != 1 {
				t.Error(active, err)
			}
			launched, _, err := s.ListFlyAppsMachines(t.Context(), app)
			if err != nil || len(launched) != 1 || launched[0].ID != m.ID {
				t.Error(launched, err)
			}
			many, err := s.GetMany(t.Context(), app, []string{m.ID})
			if err != nil || len(many) != 1 {
				t.Error(many, err)
			}
		},
		"metadata": func(t *testing.T, s *market, app string) {
			c := s.sleeper()
			c.Metadata = map[string]string{"keep": "1"}
			m := s.launch(t, app, fly.LaunchMachineInput{Config: c})
			before := s.get(t, app, m.ID)
			if err := s.SetMetadata(t.Context(), app, m.ID, "new", "2"); err != nil {
				t.Fatal(err)
			}
			got, err := s.GetMetadata(t.Context(), app, m.ID)
			if d := cmp.Diff(map[string]string{"keep": "1", "new": "2"}, got); d != "" || err != nil {
				t.Fatal(d, err)
			}
			if err := s.DeleteMetadata(t.Context(), app, m.ID, "new"); err != nil {
				t.Fatal(err)
			}
			after := s.get(t, app, m.ID)
			if after.InstanceID != before.InstanceID || after.State != before.State ||
				len(after.Config.Metadata) != 1 || after.Config.Metadata["keep"] != "1" {
				t.Errorf("before %+v, after %+v", before, after)
			}
		},
		"exec": func(t *testing.T, s *market, app string) {
			m := s.launch(t, app, fly.LaunchMachineInput{Config: s.sleeper()})
			out, err := s.Exec(t.Context(), app, m.ID,
				&fly.MachineExecRequest{Cmd: "/bin/sh -c 'echo out; echo err >&2'"})
			if err != nil || out.ExitCode != 0 || out.StdOut != "out\n" || out.StdErr != "err\n" {
				t.Error(out, err)
			}
			out, err = s.Exec(t.Context(), app, m.ID, &fly.MachineExecRequest{Cmd: "/bin/sh -c 'echo bad >&2; exit 3'",
				Timeout: 10})
			if err != nil || out.ExitCode != 3 || out.StdErr != "bad\n" {
				t.Error(out, err)
			}
			out, err = s.Exec(t.Context(), app, m.ID, &fly.MachineExecRequest{Cmd: "/bin/cat", Stdin: "in"})
			if err != nil || out.StdOut != "in" {
				t.Error(out, err)
			}
			_, err = s.Exec(t.Context(), app, m.ID, &fly.MachineExecRequest{Cmd: "/bin/sleep 100000", Timeout: 1})
			refused(t, err, 408, 504)
		},
		"ps": func(t *testing.T, s *market, app string) {
			m := s.launch(t, app, fly.LaunchMachineInput{Config: s.sleeper()})
			ps, err := s.GetProcesses(t.Context(), app, m.ID)
			if err != nil || len(ps) == 0 || ps[0].Pid <= 0 || ps[0].Command == "" {
				t.Fatal(ps, err)
			}
		},
		"cordon": func(t *testing.T, s *market, app string) {
			m := s.launch(t, app, fly.LaunchMachineInput{Config: s.sleeper()})
			for range 2 {
				if err := s.Cordon(t.Context(), app, m.ID, ""); err != nil {
					t.Fatal(err)
				}
			}
			if m := s.get(t, app, m.ID); !m.Cordoned || m.State != "started" {
				t.Errorf("cordoned is %v in state %s", m.Cordoned, m.State)
			}
			for range 2 {
				if err := s.Uncordon(t.Context(), app, m.ID, ""); err != nil {
					t.Fatal(err)
				}
			}
			if m := s.get(t, app, m.ID); m.Cordoned {
				t.Error("still cordoned")
			}
		},
		"wait that is not reached": func(t *testing.T, s *market, app string) {
			m := s.launch(t, app, fly.LaunchMachineInput{Config: s.sleeper()})
			begin := time.Now()
			err := s.Wait(t.Context(), app, m.ID, flaps.WithWaitStates("stopped"), flaps.WithWaitTimeout(time.Second))
			took := time.Since(begin)
			if body := refused(t, err, 408); !strings.Contains(body,
				"deadline_exceeded: machine failed to reach desired state, stopped, currently started") {
				t.Error(body)
			}
			if took < 800*time.Millisecond {
				t.Errorf("it waited for %v", took)
			}
			if n := s.times("GET", "/v1/apps/"+app+"/machines/"+m.ID+"/wait"); n != 2 { // with the one of launch
				t.Errorf("the wait was sent %d times", n-1)
			}
		},
		"wait for any of two, settled, and unknown": func(t *testing.T, s *market, app string) {
			m := s.launch(t, app, fly.LaunchMachineInput{Config: s.sleeper()})
			s.await(t, app, m.ID, "stopped", "started")
			s.await(t, app, m.ID, "settled")
			refused(t, s.Wait(t.Context(), app, m.ID, flaps.WithWaitStates("purple"),
				flaps.WithWaitTimeout(time.Second)), 400)
		},
		"wait sees what happened after an event": func(t *testing.T, s *market, app string) {
			// it may have ended already
			m, err := s.Launch(t.Context(), app, fly.LaunchMachineInput{Config: s.script("exit 0")})
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Wait(t.Context(), app, m.ID, flaps.WithWaitStates("started"), flaps.WithWaitFromEventID("0"),
				flaps.WithWaitTimeout(limit)); err != nil {
				t.Fatal(err)
			}
			if err := s.Wait(t.Context(), app, m.ID, flaps.WithWaitStates("stopped"), flaps.WithWaitFromEventID("0"),
				flaps.WithWaitTimeout(limit)); err != nil {
				t.Fatal(err)
			}
		},
	}
}

func ptr[T any](v T) *T { return &v }

func configUnchanged(t *testing.T, s *market, app string) {
	c := s.sleeper()
	c.Env = map[string]string{"A": "1", "B": "two words"}
	c.Metadata = map[string]string{"k": "v"}
	c.Restart = &fly.MachineRestart{Policy: fly.MachineRestartPolicyOnFailure, MaxRetries: 3}
	c.StopConfig = &fly.StopConfig{Signal: ptr("SIGTERM"), Timeout: &fly.Duration{Duration: 7 * time.Second}}
	c.Services = []fly.MachineService{{
		Protocol: "tcp", InternalPort: 8080, Autostart: ptr(true), Autostop: ptr(fly.MachineAutostopStop),
		MinMachinesRunning: ptr(0),
		Ports: []fly.MachinePort{{Port: ptr(80), Handlers: []string{"http"}, ForceHTTPS: true},
			{Port: ptr(443), Handlers: []string{"tls", "http"}}},
		Concurrency: &fly.MachineServiceConcurrency{Type: "requests", SoftLimit: 10, HardLimit: 20},
		Checks: []fly.MachineServiceCheck{{Type: ptr("tcp"), Interval: &fly.Duration{Duration: 15 * time.Second},
			Timeout: &fly.Duration{Duration: 2 * time.Second}}},
	}}
	c.Checks = map[string]fly.MachineCheck{"alive": {Type: ptr("http"), Port: ptr(8080), HTTPPath: ptr("/"),
		HTTPMethod: ptr("get"),
		Interval:   &fly.Duration{Duration: 10 * time.Second}, GracePeriod: &fly.Duration{Duration: time.Second}}}
	c.Files = []*fly.File{{GuestPath: "/etc/spice", RawValue: ptr("c2FmZnJvbg==")}}
	m := s.launch(t, app, fly.LaunchMachineInput{Config: c})
	got := s.get(t, app, m.ID)
	if d := cmp.Diff(asJSON(t, c), asJSON(t, got.Config)); d != "" {
		t.Errorf("the config came back changed (-sent +got):\n%s", d)
	}
	if got.HostStatus != fly.HostStatusOk {
		t.Errorf("host_status is %q", got.HostStatus)
	}
	out, err := s.Exec(t.Context(), app, m.ID, &fly.MachineExecRequest{Cmd: `/bin/sh -c 'echo "$A $B"'`})
	if err != nil || out.StdOut != "1 two words\n" {
		t.Error(out, err)
	}
}

func asJSON(t *testing.T, v any) any {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var out any
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	return out
}
