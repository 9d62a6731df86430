package faults_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/test/faults"
)

var rollouts = flag.Int("rollouts", 8, "releases that TestRolloutFailsNoRequest makes") //nolint:gochecknoglobals

// serverImage is an image of this program.
const serverImage = "server:faults"

// giveServer has all members load an image of this program.
func giveServer(t *testing.T, ms []*faults.Member) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "ldd", os.Args[0]).CombinedOutput()
	if err != nil && !strings.Contains(string(out), "not a dynamic executable") { // it is static without a C compiler
		t.Fatalf("%v: %s", err, out)
	}
	files := map[string][]byte{}
	for _, m := range regexp.MustCompile(`(/\S+) \(0x`).FindAllStringSubmatch(string(out), -1) {
		if files[m[1][1:]], err = os.ReadFile(m[1]); err != nil {
			t.Fatal(err)
		}
	}
	if files["serve"], err = os.ReadFile(os.Args[0]); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "image.tar")
	if err := faults.PackImage(file, serverImage, files); err != nil {
		t.Fatal(err)
	}
	for _, m := range ms {
		if text, err := m.Souk(t.Context(), "image", "load", file, "--worker", string(m.Worker())); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
	}
}

// servers is a release of three containers that answer.
func servers(u *release.Update, version, bad string) api.NewRelease {
	three, check := 3, machine.ServiceCheck{Type: new("http"), Path: new("/"),
		Interval: &machine.Duration{Duration: time.Second}, GracePeriod: &machine.Duration{Duration: time.Second}}
	return api.NewRelease{Note: version, Groups: []api.NewGroup{{Replicas: &three, Group: release.Group{Name: "web",
		Update: u, Config: &machine.Config{Image: serverImage, Init: machine.Init{Exec: []string{"/serve"}},
			Env:        map[string]string{envServe: fmt.Sprint(shopPort), envBad: bad, "VERSION": version},
			Guest:      &machine.Guest{CPUKind: "shared", CPUs: 1, MemoryMB: 256},
			StopConfig: &machine.StopConfig{Timeout: &machine.Duration{Duration: 30 * time.Second}},
			Services: []machine.Service{{Protocol: "tcp", InternalPort: shopPort,
				Ports:  []machine.Port{{Port: new(80), Handlers: []string{"http"}}},
				Checks: []machine.ServiceCheck{check}}}}}}}}
}

// TestRolloutFailsNoRequest: releases are made one after the other, in each way there is, every other one bad, under load
// through two members. Every request is answered; what is bad is undone, and leaves no machine.
func TestRolloutFailsNoRequest(t *testing.T) {
	apart(t, func() {
		hosts, err := allHosts()
		if err != nil {
			t.Fatal(err)
		}
		ms := members(t, hosts[:3])
		giveServer(t, ms)
		if _, err := ms[0].Client().CreateApp(t.Context(), shop); err != nil {
			t.Fatal(err)
		}
		step := &machine.Duration{Duration: time.Second}
		updates := []release.Update{{Strategy: release.Rolling}, {Strategy: release.Canary,
			Steps: []release.CanaryStep{{Percent: 33, For: step}, {Percent: 66, For: step}}},
			{Strategy: release.BlueGreen}, {Strategy: release.Immediate}}
		roll := func(n int, bad string) {
			m, u := ms[n%len(ms)], updates[(n+1)/2%len(updates)]
			u.Deadline = &machine.Duration{Duration: 30 * time.Second}
			u.MinUp = &machine.Duration{Duration: 2 * time.Second} // there are many releases
			if bad == "mute" {
				u.Deadline = &machine.Duration{Duration: 8 * time.Second}
			}
			began := time.Now()
			made, err := m.Client().Deploy(t.Context(), shop, servers(&u, fmt.Sprint(n), bad))
			if err != nil {
				t.Fatal(err)
			}
			state := rolled(t, m, made.Head.Number)
			if want := map[bool]release.Rolled{true: release.RolledDone, false: release.RolledUndone}; state !=
				want[bad == ""] {
				s, err := m.Client().Service(t.Context(), shop)
				out, _ := m.Souk(t.Context(), "events", "--app", shop, s.Rollout.Failed[0].Machine)
				t.Fatalf("release %d (%s %s) is %s: %+v, %v\n%s", n, u.Strategy, bad, state, s.Rollout, err, out)
			}
			list, err := m.Client().Machines(t.Context(), shop, client.ListOptions{})
			if err != nil || len(list) != 3 {
				t.Errorf("after release %d (%s %s): %d machines, %v", n, u.Strategy, bad, len(list), err)
			}
			for _, x := range list {
				if (x.Replica.Release == made.Release) != (bad == "") {
					t.Errorf("after release %d (%s %s) there is machine %s of release %s", n, u.Strategy, bad, x.ID,
						x.Replica.Release)
				}
			}
			t.Logf("release %d (%s %s) is %s after %v", n, u.Strategy, bad, state, time.Since(began))
		}
		roll(0, "")
		var load clients
		load.begin(t, ms[0])
		load.begin(t, ms[1])
		defer load.wait()
		for n := 1; n <= *rollouts; n++ {
			roll(n, []string{[]string{"crash", "mute"}[(n/2+n/8)%2], ""}[n%2])
			if load.answeredMore(t, 50); t.Failed() {
				break
			}
		}
		load.wait()
		t.Logf("%d requests are answered, in %d releases", load.answered.Load(), *rollouts)
	})
}

// rolled waits until a rollout is over, and tells how.
func rolled(t *testing.T, m *faults.Member, number uint64) (state release.Rolled) {
	t.Helper()
	waittest.Succeed(t, "the rollout is over", func() error {
		s, err := m.Client().Service(t.Context(), shop)
		switch {
		case err != nil:
			return err
		case s.Rollout == nil || s.Rollout.Number != number:
			return fmt.Errorf("%+v", s.Rollout)
		}
		state = s.Rollout.State
		if state != release.RolledDone && state != release.RolledUndone && state != release.RolledPaused {
			return fmt.Errorf("it is %s: %+v", state, s.Groups)
		}
		return nil
	})
	return state
}
