package proxy_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/proxy"
)

// maker makes machines at a rig's host.
type maker struct {
	r    *rig
	edit func(*machine.Service)

	mu    sync.Mutex
	made  []string
	fails error
	times []time.Time
}

func (m *maker) make(_ context.Context, a proxy.Another) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.times = append(m.times, time.Now())
	if m.fails != nil {
		return "", m.fails
	}
	m.made = append(m.made, fmt.Sprint(a.Name, " like ", a.Like, " ", a.Warm))
	h := m.r.host
	h.mu.Lock()
	like := h.machines[a.Like]
	h.mu.Unlock()
	if like == nil {
		return "", errors.New("there is no such machine")
	}
	s := httpService(m.edit)
	s.InternalPort = like.port
	h.addWith(a.App, a.Name, machine.Created, s, says(a.Name),
		map[string]string{machine.MetadataFor: machine.MadeForWarm})
	return a.Name, nil
}

func (m *maker) all() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return strings.Join(m.made, ", ")
}

// warmRig is a member whose app shop has one machine, which is up, and so many spares.
func warmRig(t *testing.T, edit func(*machine.Service)) (*rig, *maker) {
	m := &maker{edit: func(s *machine.Service) {
		s.Warm, s.CreateUpTo = new(2), new(4)
		s.Concurrency = &machine.Concurrency{Type: "requests", SoftLimit: 1}
		if edit != nil {
			edit(s)
		}
	}}
	r := newRig(t, func(o *proxy.Options) { o.Make = m.make })
	m.r = r
	return r, m
}

// states lists a member's machines.
func (r *rig) states() string {
	var out []string
	for m := range r.fleet.Snapshot().AllMachines() {
		out = append(out, fmt.Sprint(m.Name, " ", m.State))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

func (r *rig) become(want string) {
	r.t.Helper()
	waittest.Until(r.t, want, func() bool { return r.states() == want })
}

// TestSparesAreMadeAndReplenished: as many as the service wants, once, without being started; one that is used is made good, up to as
// many machines as there may be.
func TestSparesAreMadeAndReplenished(t *testing.T) {
	t.Parallel()
	r, m := warmRig(t, nil)
	r.host.add("shop", "shop", machine.Started, httpService(m.edit), says("shop"))
	r.host.add("other", "other", machine.Started, httpService(nil), says("other"))
	r.become("other started, shop started, shop-2 created, shop-3 created")
	if got := m.all(); got != "shop-2 like shop true, shop-3 like shop true" {
		t.Error(got)
	}
	r.host.set("shop", machine.Stopped) // nothing is missing now
	if resp, body := r.get("shop", "/"); resp.StatusCode != 200 {
		t.Error(resp.Status, body)
	}
	r.host.set("shop", machine.Started)
	r.host.set("shop-2", machine.Started)
	r.host.set("shop-3", machine.Started)
	r.become("other started, shop started, shop-2 started, shop-3 started, shop-4 created")
	looks := time.After(3 * time.Second)
	<-looks
	if starts, _ := r.host.count(); starts != 1 {
		t.Errorf("%d were started", starts)
	}
	if got := m.all(); strings.Count(got, "true") != 3 {
		t.Error(got)
	}
}

// TestSpareIsSuspendedBeforeItsFirstRequest: where the service suspends what is idle, a spare is started once and suspended before any
// request is sent to it; one that never listens is stopped.
func TestSpareIsSuspendedBeforeItsFirstRequest(t *testing.T) {
	t.Parallel()
	r, m := warmRig(t, func(s *machine.Service) {
		suspend := machine.Autostop("suspend")
		s.Autostop, s.Warm, s.MinMachinesRunning = &suspend, new(1), new(1)
	})
	r.host.slow = make(chan struct{})
	r.host.add("shop", "shop", machine.Started, httpService(m.edit), says("shop"))
	waittest.Until(t, "it is started", func() bool { starts, _ := r.host.count(); return starts == 1 })
	for range 20 {
		if resp, body := r.get("shop", "/"); resp.StatusCode != 200 || !strings.HasPrefix(body, "shop GET") {
			t.Fatal(resp.Status, body)
		}
	}
	close(r.host.slow)
	r.become("shop started, shop-2 suspended")
	if got := m.all(); got != "shop-2 like shop true" {
		t.Error(got)
	}
	r.host.set("shop", machine.Failed) // the spare is what is there for the next request
	if resp, body := r.get("shop", "/"); resp.StatusCode != 200 {
		t.Error(resp.Status, body)
	}
	waittest.Until(t, "it is woken", func() bool { return strings.Contains(r.states(), "shop-2 started") })
}

// TestRefusedSpareWaitsForItsRetryTime: it is tried again when the refusal says so, and not before.
func TestRefusedSpareWaitsForItsRetryTime(t *testing.T) {
	t.Parallel()
	r, m := warmRig(t, nil)
	m.fails = &fault.Error{Kind: fault.Exhausted, Code: "no_capacity", Text: "no room", RetryAfter: 3 * time.Second}
	r.host.add("shop", "shop", machine.Started, httpService(m.edit), says("shop"))
	waittest.Until(t, "it is tried twice", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return len(m.times) == 2
	})
	if d := m.times[1].Sub(m.times[0]); d < 3*time.Second {
		t.Errorf("it was tried again after %v", d)
	}
}

// TestSparesOfADeletedAppAreNotCounted: they are in no count any more.
func TestSparesOfADeletedAppAreNotCounted(t *testing.T) {
	t.Parallel()
	r, m := warmRig(t, nil)
	r.host.add("shop", "shop", machine.Started, httpService(m.edit), says("shop"))
	r.become("shop started, shop-2 created, shop-3 created")
	asleep := func() string {
		_, rest, _ := strings.Cut(gather(t, r.proxy, "souk_proxy_spares"), `value:"asleep"`)
		value, _, _ := strings.Cut(strings.TrimLeft(rest, "]} "), "\n")
		return value
	}
	waittest.Until(t, "they are counted", func() bool { return asleep() == "2" })
	for _, id := range []string{"shop", "shop-2", "shop-3"} {
		r.host.set(id, machine.Destroyed)
	}
	waittest.Until(t, "they are not", func() bool { return asleep() == "0" })
}

// BenchmarkSpareCheckOf10000Apps is one look, as there is each second, at 10,000 apps that sleep: after a change of the fleet, and
// without one.
func BenchmarkSpareCheckOf10000Apps(b *testing.B) {
	f := fleet.New()
	own := f.Own("w")
	own.Worker(cluster.Record{Worker: "w", Region: "r", Version: 1})
	suspend := machine.Autostop("suspend")
	s := machine.Service{InternalPort: 80, Warm: new(1), CreateUpTo: new(3), Autostop: &suspend}
	const apps = 10_000
	for i := range apps {
		app := fmt.Sprint("app-", i)
		own.Machine(&machine.Machine{ID: fmt.Sprintf("%014x", i), App: app, Name: app, State: machine.Suspended,
			Region: "r", Worker: "w", Config: &machine.Config{Services: []machine.Service{s}}})
	}
	look := proxy.New(proxy.Options{Fleet: f, Region: "r"}).Looks()
	look()
	version := uint64(1)
	b.Run("changed", func(b *testing.B) {
		for b.Loop() {
			version++
			own.Worker(cluster.Record{Worker: "w", Region: "r", Version: version})
			look()
		}
	})
	b.Run("unchanged", func(b *testing.B) {
		for b.Loop() {
			look()
		}
	})
}
