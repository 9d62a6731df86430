package faults_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/test/faults"
	"github.com/soukhq/souk/test/netns"
)

// kept is a service of an app on three hosts.
type kept struct {
	t     *testing.T
	ms    []*faults.Member
	hosts netns.Hosts
}

// newKept makes three members with flags, and an app that has a group web of sleepers.
func newKept(t *testing.T, replicas int, flags ...string) *kept {
	t.Helper()
	hosts, err := allHosts()
	if err != nil {
		t.Fatal(err)
	}
	k := &kept{t: t, hosts: hosts[:3], ms: members(t, hosts[:3], flags...)}
	t.Cleanup(func() {
		if err := k.hosts.Heal(); err != nil {
			t.Error(err)
		}
	})
	if _, err := k.ms[0].Client().CreateApp(t.Context(), shop); err != nil {
		t.Fatal(err)
	}
	if _, err := k.ms[0].Client().Deploy(t.Context(), shop, sleepers(replicas, "1000000")); err != nil {
		t.Fatal(err)
	}
	return k
}

// sleepers is a release of a group web.
func sleepers(replicas int, arg string) api.NewRelease {
	return api.NewRelease{Groups: []api.NewGroup{{Replicas: &replicas, Group: release.Group{Name: "web",
		Config: &machine.Config{
			Image: machine.HostImage, Init: machine.Init{Exec: []string{"sleep", arg}},
			Guest:      &machine.Guest{CPUKind: "shared", CPUs: 1, MemoryMB: 256},
			StopConfig: &machine.StopConfig{Timeout: &machine.Duration{Duration: time.Second}}}}}}}
}

// status returns what a member says of the service: of each replica its state, and of it the machines.
func (k *kept) status(ctx context.Context, member int) (s api.GroupStatus, err error) {
	all, err := k.ms[member].Client().Service(ctx, shop)
	if err == nil && len(all.Groups) != 1 {
		err = fmt.Errorf("%d groups", len(all.Groups))
	}
	if err != nil {
		return s, err
	}
	return all.Groups[0], nil
}

// whole waits until members see so many replicas that are ready, each with one machine, and no others that can be heard.
func (k *kept) whole(replicas int, members ...int) (at map[string]int) {
	k.t.Helper()
	waittest.Succeed(k.t, fmt.Sprintf("members %v see %d replicas", members, replicas), func() error {
		for _, i := range members {
			s, err := k.status(k.t.Context(), i)
			s.Slots = slices.DeleteFunc(s.Slots, func(x api.SlotStatus) bool { return x.Unheard })
			if err == nil && (s.Ready != replicas || len(s.Slots) != replicas) {
				err = fmt.Errorf("%d of %d are ready: %+v", s.Ready, replicas, s.Slots)
			}
			if err != nil {
				return fmt.Errorf("member %d: %w", i, err)
			}
			at = map[string]int{}
			for _, x := range s.Slots {
				at[string(x.Worker)]++
			}
		}
		return nil
	})
	return at
}

// runs counts the sleepers of one argument that run on a host.
func (k *kept) runs(host int, arg string) (n int) {
	for _, pid := range k.hosts[host].Processes() {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err == nil && strings.HasSuffix(string(raw), "sleep\x00"+arg+"\x00") {
			n++
		}
	}
	return n
}

// TestServiceSurvivesAHost: three replicas stand on three hosts. One host dies, and another machine takes the place of
// its own; when the host is back each replica has one machine again, as seen by each member and in /proc.
func TestServiceSurvivesAHost(t *testing.T) {
	t.Parallel()
	apart(t, func() {
		k := newKept(t, 3)
		if at := k.whole(3, 0, 1, 2); len(at) != 3 {
			t.Fatalf("the replicas stand at %v", at)
		}
		k.ms[2].PowerOff()
		begin := time.Now()
		var s api.GroupStatus
		waittest.Succeed(t, "another machine takes the place of the lost one", func() (err error) {
			if s, err = k.status(t.Context(), 0); err != nil {
				return err
			}
			here := 0
			for _, x := range s.Slots {
				if x.Ready && x.Worker != k.ms[2].Worker() {
					here++
				}
			}
			if here != 3 {
				err = fmt.Errorf("%d are ready on the other hosts", here)
			}
			return err
		})
		t.Logf("it serves again %v after the host died: %+v", time.Since(begin), s.Slots)
		if n := k.runs(0, "1000000") + k.runs(1, "1000000"); n != 3 {
			t.Errorf("%d machines run on the two hosts that are left", n)
		}
		if err := k.ms[2].Start(); err != nil {
			t.Fatal(err)
		}
		begin = time.Now()
		waittest.Until(t, "the host is heard again", func() bool {
			_, err := k.status(t.Context(), 2)
			return err == nil && k.ms[2].Ready() == 2
		})
		t.Logf("the host is back after %v", time.Since(begin))
		begin = time.Now()
		k.whole(3, 0, 1, 2)
		waittest.Until(t, "three machines run", func() bool {
			return k.runs(0, "1000000")+k.runs(1, "1000000")+k.runs(2, "1000000") == 3
		})
		t.Logf("each replica has one machine %v after that", time.Since(begin))
	})
}

// TestPowerCutReplacesNoMachine: after a power cut the host that returns first makes no machine in place of the
// others'.
func TestPowerCutReplacesNoMachine(t *testing.T) {
	t.Parallel()
	apart(t, func() {
		k := newKept(t, 3)
		k.whole(3, 0, 1, 2)
		before := k.machines(0)
		for _, m := range k.ms {
			m.PowerOff()
		}
		if err := k.ms[0].Start(); err != nil {
			t.Fatal(err)
		}
		waittest.Until(t, "the first host answers", func() bool {
			_, err := k.status(t.Context(), 0)
			return err == nil
		})
		waittest.Pass(6 * time.Second)
		for _, m := range k.ms[1:] {
			if err := m.Start(); err != nil {
				t.Fatal(err)
			}
		}
		waittest.Until(t, "they are back", func() bool { return k.ms[1].Ready() == 2 && k.ms[2].Ready() == 2 })
		k.whole(3, 0, 1, 2)
		if now := k.machines(0); !slices.Equal(now, before) {
			t.Errorf("the machines were %v, and are %v", before, now)
		}
	})
}

// TestSingletonNeverRunsTwice: of a service whose machine may run once, the host is cut off and then the steward's dies. Nothing
// is made in its place, nor for another one, until all are heard again; then that one is, and the first has run on.
func TestSingletonNeverRunsTwice(t *testing.T) {
	t.Parallel()
	apart(t, func() {
		k := newKept(t, 0)
		single := func(app string) {
			r := sleepers(1, "1000000")
			r.Groups[0].Single = true
			if _, err := k.ms[0].Client().Deploy(t.Context(), app, r); err != nil {
				t.Fatal(err)
			}
		}
		begin := time.Now()
		single(shop)
		at := k.whole(1, 0, 1, 2)
		t.Logf("made %v after it was wanted", time.Since(begin))
		cut := slices.IndexFunc(k.ms, func(m *faults.Member) bool { return at[string(m.Worker())] == 1 })
		others := slices.DeleteFunc([]int{0, 1, 2}, func(i int) bool { return i == cut })
		if err := k.hosts.Part(func(i int) bool { return i == cut }); err != nil {
			t.Fatal(err)
		}
		waittest.Until(t, "the host is not heard", func() bool {
			s, err := k.status(t.Context(), others[0])
			return err == nil && len(s.Slots) == 1 && s.Slots[0].Unheard && s.Slots[0].Waits != ""
		})
		k.ms[others[1]].Signal("agent", 9) // perhaps the steward; the other one is, or becomes it
		scaled := func(n int) {
			to := release.Change{Why: release.WhyScale, Counts: map[string]int{"web": n}}
			if _, err := k.ms[others[0]].Client().Change(t.Context(), shop, to); err != nil {
				t.Fatal(err)
			}
		}
		scaled(0) // and 1 again: its machine at the cut host is not forgotten
		scaled(1)
		t.Logf("the host is cut off, and an agent was killed, %v after it was wanted", time.Since(begin))
		waittest.Pass(8 * time.Second)
		if n := k.runs(0, "1000000") + k.runs(1, "1000000") + k.runs(2, "1000000"); n != 1 {
			t.Errorf("%d machines run while the host is cut off", n)
		}
		if err := k.hosts.Heal(); err != nil {
			t.Fatal(err)
		}
		k.whole(1, 0, 1, 2)
		t.Logf("all is well %v after it was wanted", time.Since(begin))
		if n := k.runs(0, "1000000") + k.runs(1, "1000000") + k.runs(2, "1000000"); n != 1 {
			t.Errorf("%d machines run in the end", n)
		}
	})
}

// TestStopAfterStopsAnIsolatedMachine: with stop_after the machine of an isolated host stops before another one runs
// elsewhere; without a replacement it is started when its host returns.
func TestStopAfterStopsAnIsolatedMachine(t *testing.T) {
	t.Parallel()
	apart(t, func() {
		k := newKept(t, 0)
		r := sleepers(1, "1000000")
		r.Groups[0].StopAfter = &machine.Duration{Duration: 2 * time.Second}
		r.Groups[0].LostAfter = &machine.Duration{Duration: 4 * time.Second}
		cut := k.cutOff(r)
		for n := 0; n == 0; n = k.runs((cut+1)%3, "1000000") + k.runs((cut+2)%3, "1000000") { // until another is made
			if t.Context().Err() != nil {
				t.Fatal("no other machine is made")
			}
			waittest.Pass(20 * time.Millisecond)
		}
		if n := k.runs(cut, "1000000"); n != 0 {
			t.Error("the machine of the host that is cut off runs, and so does another")
		}
		k.healed()
		r = sleepers(1, "2000000")
		r.Groups[0].StopAfter, r.Groups[0].Single = &machine.Duration{Duration: time.Second}, true
		cut = k.cutOff(r)
		before := k.machines(cut)
		waittest.Until(t, "the machine stops", func() bool { return k.runs(cut, "2000000") == 0 })
		k.healed()
		if now := k.machines(0); !slices.Equal(now, before) || k.runs(cut, "2000000") != 1 {
			t.Errorf("the machine was %v, and is %v", before, now)
		}
	})
}

// cutOff has a release of one replica wanted, and then cuts off the host of its machine, which is returned.
func (k *kept) cutOff(r api.NewRelease) (host int) {
	k.t.Helper()
	if _, err := k.ms[0].Client().Deploy(k.t.Context(), shop, r); err != nil {
		k.t.Fatal(err)
	}
	at := k.whole(1, 0, 1, 2)
	host = slices.IndexFunc(k.ms, func(m *faults.Member) bool { return at[string(m.Worker())] == 1 })
	if err := k.hosts.Part(func(i int) bool { return i == host }); err != nil {
		k.t.Fatal(err)
	}
	return host
}

// healed ends all cuts, and waits until each member sees one replica.
func (k *kept) healed() {
	k.t.Helper()
	if err := k.hosts.Heal(); err != nil {
		k.t.Fatal(err)
	}
	k.whole(1, 0, 1, 2)
}

// machines lists the machines of the service by replica, as a member knows them.
func (k *kept) machines(member int) (ids []string) {
	k.t.Helper()
	s, err := k.status(k.t.Context(), member)
	if err != nil {
		k.t.Fatal(err)
	}
	for _, x := range s.Slots {
		ids = append(ids, x.Machine)
	}
	return ids
}

// TestRolloutSurvivesStewardDeath: the next member continues when the steward dies while it creates or replaces
// machines.
func TestRolloutSurvivesStewardDeath(t *testing.T) {
	t.Parallel()
	apart(t, func() {
		k := newKept(t, 0)
		k.whole(0, 0, 1, 2)
		all, err := k.ms[0].Client().Service(t.Context(), shop)
		if err != nil {
			t.Fatal(err)
		}
		steward := 0
		for i, m := range k.ms {
			if m.Worker() == all.Steward.Member {
				steward = i
			}
		}
		other, third := (steward+1)%3, (steward+2)%3
		twelve := release.Change{Why: release.WhyScale, Counts: map[string]int{"web": 12}}
		if _, err := k.ms[other].Client().Change(t.Context(), shop, twelve); err != nil {
			t.Fatal(err)
		}
		waittest.Until(t, "the first machines are made", func() bool {
			s, err := k.status(t.Context(), other)
			return err == nil && s.There > 0
		})
		k.ms[steward].Signal("agent", 9) // its machines go on, and it comes back
		k.whole(12, other, third)
		if _, err := k.ms[other].Client().Deploy(t.Context(), shop, sleepers(12, "2000000")); err != nil {
			t.Fatal(err)
		}
		waittest.Until(t, "the first are replaced", func() bool {
			s, err := k.status(t.Context(), other)
			return err == nil && s.Ready > 0
		})
		k.ms[steward].PowerOff()
		k.whole(12, other, third)
		if n := k.runs(other, "1000000") + k.runs(third, "1000000"); n != 0 {
			t.Errorf("%d machines of the release before run", n)
		}
		if n := k.runs(other, "2000000") + k.runs(third, "2000000"); n != 12 {
			t.Errorf("%d machines run on the two hosts", n)
		}
	})
}
