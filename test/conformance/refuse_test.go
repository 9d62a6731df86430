package conformance_test

import (
	"strings"
	"testing"
	"time"

	fly "github.com/superfly/fly-go"
	"github.com/superfly/fly-go/flaps"

	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/runtime/image/imagetest"
)

// hugeGuest fits no worker of the suite.
func hugeGuest() *fly.MachineGuest {
	return &fly.MachineGuest{CPUKind: "performance", CPUs: 16, MemoryMB: 128 << 10}
}

func mustContain(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("%q is not in %s", p, text)
		}
	}
}

func variantTests() tests {
	return tests{
		"skip_launch": func(t *testing.T, s *market, app string) {
			m := s.launch(t, app, fly.LaunchMachineInput{Config: s.sleeper(), SkipLaunch: true})
			if m.State != "created" && m.State != "stopped" {
				t.Fatalf("it is %s", m.State)
			}
			if _, err := s.Start(t.Context(), app, m.ID, ""); err != nil {
				t.Fatal(err)
			}
			s.await(t, app, m.ID, "started")
		},
		"skip_launch and wait for stopped": func(t *testing.T, s *market, app string) { // as release commands are run
			m := s.launch(t, app, fly.LaunchMachineInput{Config: s.script("exit 0"), SkipLaunch: true})
			s.await(t, app, m.ID, "stopped")
			if _, err := s.Start(t.Context(), app, m.ID, ""); err != nil {
				t.Fatal(err)
			}
			s.await(t, app, m.ID, "stopped")
			if exit := s.get(t, app, m.ID).GetLatestEventOfType("exit"); exit == nil {
				t.Error("it is said to have stopped, and it has not run")
			}
		},
		"skip_service_registration": func(t *testing.T, s *market, app string) {
			m := s.launch(t, app, fly.LaunchMachineInput{Config: s.sleeper(), SkipServiceRegistration: true})
			if !s.get(t, app, m.ID).Cordoned {
				t.Error("it is not cordoned")
			}
		},
		"auto_destroy": func(t *testing.T, s *market, app string) {
			c := s.script("exit 0")
			c.AutoDestroy = true
			m, err := s.Launch(t.Context(), app, fly.LaunchMachineInput{Config: c})
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Wait(t.Context(), app, m.ID, flaps.WithWaitStates("destroyed"),
				flaps.WithWaitTimeout(limit)); err != nil {
				refused(t, err, 404)
			}
		},
		"exit 7 with policy no": func(t *testing.T, s *market, app string) {
			m, err := s.Launch(t.Context(), app, fly.LaunchMachineInput{Config: s.script("exit 7")})
			if err != nil {
				t.Fatal(err)
			}
			s.await(t, app, m.ID, "stopped")
			if e := lastExit(t, s.get(t, app, m.ID)); e.ExitCode != 7 || e.RequestedStop || e.ExitedAt.IsZero() {
				t.Errorf("the exit is %+v", e)
			}
		},
		"on-failure with max_retries 2": func(t *testing.T, s *market, app string) {
			c := s.script("exit 1")
			c.Restart = &fly.MachineRestart{Policy: fly.MachineRestartPolicyOnFailure, MaxRetries: 2}
			m, err := s.Launch(t.Context(), app, fly.LaunchMachineInput{Config: c})
			if err != nil {
				t.Fatal(err)
			}
			count := func() (n int) {
				for _, e := range s.get(t, app, m.ID).Events {
					if e.Type == "exit" {
						n++
					}
				}
				return n
			}
			waittest.See(t, "it has exited three times", count, func(n int) bool { return n >= 3 })
			s.await(t, app, m.ID, "stopped")
			if n := count(); n != 3 {
				t.Errorf("it exited %d times, want 3: %v", n, events(s.get(t, app, m.ID)))
			}
		},
		"ids names and versions are unique": func(t *testing.T, s *market, app string) {
			seen := map[string]bool{}
			for range 6 {
				m := s.launch(t, app, fly.LaunchMachineInput{Config: s.sleeper(), SkipLaunch: true})
				for _, v := range []string{m.ID, m.Name, m.InstanceID} {
					if v == "" || seen[v] {
						t.Errorf("%q is empty, or there twice", v)
					}
					seen[v] = true
				}
			}
		},
	}
}

func refuseTests() tests {
	return tests{
		"huge create": func(t *testing.T, s *market, app string) {
			c := s.sleeper()
			c.Guest = hugeGuest()
			_, err := s.Launch(t.Context(), app, fly.LaunchMachineInput{Config: c})
			refused(t, err, 422)
			if status := flaps.GetErrorStatusCode(err); status == nil || *status != "insufficient_capacity" {
				t.Errorf("the status is %v", status)
			}
			if n := s.times("POST", "/v1/apps/"+app+"/machines"); n != 1 {
				t.Errorf("it was sent %d times", n)
			}
			if list, err := s.List(t.Context(), app, "include_deleted=true"); err != nil || len(list) != 0 {
				t.Error("it left something:", list, err)
			}
		},
		"more cpus than anybody has": func(t *testing.T, s *market, app string) {
			for _, cpus := range []int{65, 1000} {
				c := s.sleeper()
				c.Guest = &fly.MachineGuest{CPUKind: "performance", CPUs: cpus, MemoryMB: 2048 * cpus}
				_, err := s.Launch(t.Context(), app, fly.LaunchMachineInput{Config: c})
				mustContain(t, refused(t, err, 422), `"status":"insufficient_capacity"`, `"resource":"cpu"`,
					"ask for less or add a larger worker")
			}
		},
		"unknown region": func(t *testing.T, s *market, app string) {
			_, err := s.Launch(t.Context(), app, fly.LaunchMachineInput{Region: "mars", Config: s.sleeper()})
			refused(t, err, 400, 404, 422)
		},
		"no image": func(t *testing.T, s *market, app string) {
			c := s.sleeper()
			c.Image = ""
			_, err := s.Launch(t.Context(), app, fly.LaunchMachineInput{Config: c})
			refused(t, err, 400, 422)
			_, err = s.Launch(t.Context(), app, fly.LaunchMachineInput{})
			refused(t, err, 400, 422)
		},
		"image that cannot run here": func(t *testing.T, s *market, app string) {
			c := s.sleeper()
			c.Image = imagetest.NewRegistry(t).Host + "/app:1" // which has it not
			_, err := s.Launch(t.Context(), app, fly.LaunchMachineInput{Config: c})
			refused(t, err, 400, 422)
			if n := s.times("POST", "/v1/apps/"+app+"/machines"); n != 1 {
				t.Errorf("it was sent %d times", n)
			}
		},
		"same name": func(t *testing.T, s *market, app string) {
			m := s.launch(t, app, fly.LaunchMachineInput{Name: "solo", Config: s.sleeper()})
			_, err := s.Launch(t.Context(), app, fly.LaunchMachineInput{Name: "solo", Config: s.sleeper()})
			mustContain(t, refused(t, err, 409), `already_exists: unique machine name violation, machine ID `+m.ID+
				` already exists with name \"solo\"`)
		},
		"unknown machine": func(t *testing.T, s *market, app string) { unknownMachine(t, s, app, "00000000000000") },
		"machine of another app": func(t *testing.T, s *market, app string) {
			if _, err := s.CreateApp(t.Context(), flaps.CreateAppRequest{Name: app + "2"}); err != nil {
				t.Fatal(err)
			}
			m := s.launch(t, app+"2", fly.LaunchMachineInput{Config: s.sleeper()})
			unknownMachine(t, s, app, m.ID)
			if got := s.get(t, app+"2", m.ID); got.State != "started" || got.InstanceID != m.InstanceID {
				t.Errorf("another app's requests reached it: %+v", got)
			}
			if err := s.DeleteApp(t.Context(), app+"2"); err != nil {
				t.Error(err)
			}
		},
		"unknown app": func(t *testing.T, s *market, _ string) {
			unknownMachine(t, s, "no-such-app",
				"00000000000000")
		},
		"machine that cannot execute": func(t *testing.T, s *market, app string) {
			c := s.sleeper()
			c.Init.Exec = []string{"/no/such/program"}
			m, err := s.Launch(t.Context(), app, fly.LaunchMachineInput{Config: c})
			if err != nil {
				refused(t, err, 400, 412, 422)
				return
			}
			if m.State == "started" {
				t.Error("a program that is not there is said to run")
			}
		},
	}
}

// unknownMachine wants 404 JSON of everything that names a machine.
func unknownMachine(t *testing.T, s *market, app, id string) {
	t.Helper()
	ctx := t.Context()
	errs := map[string]error{}
	_, errs["get"] = s.Get(ctx, app, id)
	_, errs["start"] = s.Start(ctx, app, id, "")
	errs["stop"] = s.Stop(ctx, app, fly.StopMachineInput{ID: id}, "")
	errs["restart"] = s.Restart(ctx, app, fly.RestartMachineInput{ID: id}, "")
	errs["suspend"] = s.Suspend(ctx, app, id, "")
	errs["wait"] = s.Wait(ctx, app, id, flaps.WithWaitTimeout(time.Second))
	_, errs["update"] = s.Update(ctx, app, fly.LaunchMachineInput{ID: id, Config: s.sleeper()}, "")
	_, errs["lease"] = s.FindLease(ctx, app, id)
	errs["release"] = s.ReleaseLease(ctx, app, id, "x")
	_, errs["exec"] = s.Exec(ctx, app, id, &fly.MachineExecRequest{Cmd: "/bin/true"})
	_, errs["ps"] = s.GetProcesses(ctx, app, id)
	_, errs["metadata"] = s.GetMetadata(ctx, app, id)
	errs["set metadata"] = s.SetMetadata(ctx, app, id, "a", "b")
	errs["cordon"] = s.Cordon(ctx, app, id, "")
	errs["kill"] = s.Kill(ctx, app, id)
	errs["destroy"] = s.Destroy(ctx, app, fly.RemoveMachineInput{ID: id, Kill: true}, "")
	for name, err := range errs {
		t.Run(name, func(t *testing.T) { mustContain(t, refused(t, err, 404), "not found") })
	}
}
