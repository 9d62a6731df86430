package conformance_test

import (
	"context"
	"errors"
	"testing"
	"time"

	fly "github.com/superfly/fly-go"
	"github.com/superfly/fly-go/flaps"

	"github.com/soukhq/souk/internal/wait"
)

func (s *market) acquire(t *testing.T, app, id string, ttl int) *fly.MachineLeaseData {
	t.Helper()
	l, err := s.AcquireLease(t.Context(), app, id, &ttl)
	if err != nil {
		t.Fatal(err)
	}
	if l.Status != "success" || l.Data == nil || l.Data.Nonce == "" {
		t.Fatalf("the lease is %+v", l)
	}
	return l.Data
}

func leaseTests() tests {
	return tests{
		"acquire": func(t *testing.T, s *market, app string) {
			m := s.launch(t, app, fly.LaunchMachineInput{Config: s.sleeper()})
			_, err := s.FindLease(t.Context(), app, m.ID)
			refused(t, err, 404)
			l := s.acquire(t, app, m.ID, 3600)
			if left := l.ExpiresAt - time.Now().Unix(); left < 1800 || left > 3602 || l.Version != m.InstanceID {
				t.Errorf("the lease is %+v, %d s to go, of %s", l, left, m.InstanceID)
			}
			found, err := s.FindLease(t.Context(), app, m.ID)
			if err != nil || found.Data == nil || found.Data.Nonce != l.Nonce {
				t.Error(found, err)
			}
			// The client asks again and again until it gets it.
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			go func() {
				defer cancel()
				_ = wait.Until(ctx, time.Millisecond, func() bool {
					return s.answered("POST", "/v1/apps/"+app+"/machines/"+m.ID+"/lease", 409) > 0
				})
			}()
			_, err = s.AcquireLease(ctx, app, m.ID, nil)
			if err == nil || !errors.Is(context.Cause(ctx), context.Canceled) {
				t.Fatal("the second was not refused:", err)
			}
		},
		"keeps others off": func(t *testing.T, s *market, app string) {
			m := s.launch(t, app, fly.LaunchMachineInput{Config: s.sleeper()})
			l := s.acquire(t, app, m.ID, 600)
			for _, nonce := range []string{"", "wrong"} {
				refused(t, s.Stop(t.Context(), app, fly.StopMachineInput{ID: m.ID}, nonce), 409)
				refused(t, s.Cordon(t.Context(), app, m.ID, nonce), 409)
				refused(t, s.Destroy(t.Context(), app, fly.RemoveMachineInput{ID: m.ID, Kill: true}, nonce), 409)
				_, err := s.Update(t.Context(), app, fly.LaunchMachineInput{ID: m.ID, Config: s.sleeper()}, nonce)
				refused(t, err, 409)
			}
			if got := s.get(t, app, m.ID); got.State != "started" || got.InstanceID != m.InstanceID || got.Cordoned {
				t.Errorf("what was refused had an effect: %+v", got)
			}
			if err := s.Cordon(t.Context(), app, m.ID, l.Nonce); err != nil {
				t.Error(err)
			}
			if err := s.Stop(t.Context(), app, fly.StopMachineInput{ID: m.ID}, l.Nonce); err != nil {
				t.Error(err)
			}
			if err := s.Destroy(t.Context(), app, fly.RemoveMachineInput{ID: m.ID, Kill: true}, l.Nonce); err != nil {
				t.Error(err)
			}
		},
		"refresh and release": func(t *testing.T, s *market, app string) {
			m := s.launch(t, app, fly.LaunchMachineInput{Config: s.sleeper()})
			l := s.acquire(t, app, m.ID, 300)
			long := 600
			r, err := s.RefreshLease(t.Context(), app, m.ID, &long, l.Nonce)
			if err != nil || r.Data.Nonce != l.Nonce || r.Data.ExpiresAt <= l.ExpiresAt {
				t.Fatal(r, err)
			}
			refused(t, s.ReleaseLease(t.Context(), app, m.ID, "wrong"), 409)
			if err := s.ReleaseLease(t.Context(), app, m.ID, l.Nonce); err != nil {
				t.Fatal(err)
			}
			_, err = s.FindLease(t.Context(), app, m.ID)
			refused(t, err, 404)
			s.stop(t, app, m.ID)
		},
		"who waits gets it": func(t *testing.T, s *market, app string) {
			m := s.launch(t, app, fly.LaunchMachineInput{Config: s.sleeper()})
			l := s.acquire(t, app, m.ID, 600)
			got := make(chan error, 1)
			go func() {
				ttl := 600
				_, err := s.AcquireLease(t.Context(), app, m.ID, &ttl)
				got <- err
			}()
			if err := s.ReleaseLease(t.Context(), app, m.ID, l.Nonce); err != nil {
				t.Fatal(err)
			}
			if err := <-got; err != nil {
				t.Fatal(err)
			}
		},
		"expires": func(t *testing.T, s *market, app string) {
			m := s.launch(t, app, fly.LaunchMachineInput{Config: s.sleeper()})
			l := s.acquire(t, app, m.ID, 1)
			next := s.acquire(t, app, m.ID, 600) // the client asks until the first has expired
			if next.Nonce == l.Nonce {
				t.Error("the lease that expired is still there")
			}
			refused(t, s.Stop(t.Context(), app, fly.StopMachineInput{ID: m.ID}, l.Nonce), 409)
		},
		"given back counts as none": func(t *testing.T, s *market, app string) { // as after each canary of a deploy
			in := fly.LaunchMachineInput{Config: s.sleeper(), LeaseTTL: 600}
			m := s.launch(t, app, in)
			if err := s.ReleaseLease(t.Context(), app, m.ID, m.LeaseNonce); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(s.Cordon(t.Context(), app, m.ID, m.LeaseNonce),
				s.Stop(t.Context(), app, fly.StopMachineInput{ID: m.ID}, m.LeaseNonce)); err != nil {
				t.Error(err)
			}
			next := s.acquire(t, app, m.ID, 600)
			if next.Nonce == m.LeaseNonce {
				t.Error("the next lease has the nonce of the last")
			}
			kill := fly.RemoveMachineInput{ID: m.ID, Kill: true}
			refused(t, s.Destroy(t.Context(), app, kill, m.LeaseNonce), 409) // somebody else came between
			if err := s.ReleaseLease(t.Context(), app, m.ID, next.Nonce); err != nil {
				t.Fatal(err)
			}
			refused(t, s.Destroy(t.Context(), app, kill, m.LeaseNonce), 409)
			if err := s.Destroy(t.Context(), app, kill, next.Nonce); err != nil {
				t.Error(err)
			}
		},
		"taken at create": func(t *testing.T, s *market, app string) {
			m := s.launch(t, app, fly.LaunchMachineInput{Config: s.sleeper(), LeaseTTL: 600})
			if m.LeaseNonce == "" {
				t.Fatal("the create answers no nonce")
			}
			refused(t, s.Stop(t.Context(), app, fly.StopMachineInput{ID: m.ID}, ""), 409)
			if got := s.get(t, app, m.ID); got.LeaseNonce != "" {
				t.Error("a get tells the nonce")
			}
			if err := s.Stop(t.Context(), app, fly.StopMachineInput{ID: m.ID}, m.LeaseNonce); err != nil {
				t.Fatal(err)
			}
		},
	}
}

func updateTests() tests {
	return tests{
		"makes a new instance": func(t *testing.T, s *market, app string) {
			m := s.launch(t, app, fly.LaunchMachineInput{Config: s.sleeper()})
			c := s.sleeper()
			c.Env = map[string]string{"SPICE": "cumin"}
			u, err := s.Update(t.Context(), app, fly.LaunchMachineInput{ID: m.ID, Config: c, Region: m.Region,
				Name: m.Name}, "")
			if err != nil {
				t.Fatal(err)
			}
			if u.InstanceID == m.InstanceID || u.ID != m.ID || u.Config.Env["SPICE"] != "cumin" || u.Name != m.Name {
				t.Errorf("the answer is %+v", u)
			}
			if err := s.Wait(t.Context(), app, m.ID, flaps.WithWaitStates("started"),
				flaps.WithWaitVersion(u.InstanceID), flaps.WithWaitTimeout(limit)); err != nil {
				t.Fatal(err)
			}
			got := s.get(t, app, m.ID)
			launch, start := got.GetLatestEventOfType("launch"), got.GetLatestEventOfType("start")
			if e := got.GetLatestEventOfType("update"); e == nil &&
				(launch == nil || launch.Timestamp <= m.Events[0].Timestamp) || start == nil {
				t.Errorf("the events are %v", events(got))
			}
			if _, err := got.MostRecentStartTimeAfterLaunch(); err != nil {
				t.Errorf("%v in %v", err, events(got))
			}
			err = s.Wait(t.Context(), app, m.ID, flaps.WithWaitStates("started"), flaps.WithWaitVersion(m.InstanceID),
				flaps.WithWaitTimeout(time.Second))
			refused(t, err, 400, 408)
			out, err := s.Exec(t.Context(), app, m.ID, &fly.MachineExecRequest{Cmd: `/bin/sh -c 'echo $SPICE'`})
			if err != nil || out.StdOut != "cumin\n" {
				t.Error(out, err)
			}
		},
		"skip_launch stays down": func(t *testing.T, s *market, app string) {
			m := s.launch(t, app, fly.LaunchMachineInput{Config: s.sleeper()})
			s.stop(t, app, m.ID)
			u, err := s.Update(t.Context(), app, fly.LaunchMachineInput{ID: m.ID, Config: s.sleeper(),
				SkipLaunch: true},
				"")
			if err != nil {
				t.Fatal(err)
			}
			s.await(t, app, m.ID, "settled")
			if got := s.get(t, app, m.ID); got.State != "stopped" && got.State != "created" ||
				got.InstanceID != u.InstanceID {
				t.Errorf("it is %s", got.State)
			}
		},
		"beyond the host is refused": func(t *testing.T, s *market, app string) {
			m := s.launch(t, app, fly.LaunchMachineInput{Config: s.sleeper()})
			c := s.sleeper()
			c.Guest = hugeGuest()
			_, err := s.Update(t.Context(), app, fly.LaunchMachineInput{ID: m.ID, Config: c}, "")
			body := refused(t, err, 409)
			if status := flaps.GetErrorStatusCode(err); status != nil && *status != "" {
				t.Errorf("a full host has the status %s; a status that clients do not know outranks the text", *status)
			}
			mustContain(t, body, "aborted: could not reserve resource for machine: insufficient ",
				" available to fulfill request on the current host")
			got := s.get(t, app, m.ID)
			if got.State != "started" || got.InstanceID != m.InstanceID || got.Config.Guest.CPUs != 1 {
				t.Errorf("what was refused had an effect: %+v", got)
			}
			if n := s.times("POST", "/v1/apps/"+app+"/machines/"+m.ID); n != 1 {
				t.Errorf("the update was sent %d times", n)
			}
		},
	}
}
