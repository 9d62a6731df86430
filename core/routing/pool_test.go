package routing_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/core/routing"
)

// bench drives one pool, and writes what it says as text.
type bench struct {
	*routing.Pool
	now time.Time
	rng *rand.Rand
}

func newBench(policy routing.Policy, list ...routing.Backend) *bench {
	b := &bench{routing.NewPool(), time.Unix(1e9, 0), rand.New(rand.NewPCG(1, 2))}
	b.View(b.now, b.rng, policy, list)
	return b
}

func (b *bench) ask(t routing.Ticket, a routing.Ask) string {
	a.Ticket = t
	return say(b.Arrive(b.now, b.rng, a))
}

func (b *bench) view(p routing.Policy, list ...routing.Backend) string {
	return say(b.View(b.now, b.rng, p, list))
}

func say(outs []routing.Out) string {
	var parts []string
	for _, o := range outs {
		switch o.Do {
		case routing.Send:
			parts = append(parts, fmt.Sprintf("send %d %s", o.Ticket, o.Machine))
		case routing.Wake:
			parts = append(parts, "wake "+o.Machine)
		case routing.Create:
			parts = append(parts, "create like "+o.Machine)
		case routing.Refuse:
			parts = append(parts, fmt.Sprintf("refuse %d %d", o.Ticket, o.Reason))
		}
	}
	return strings.Join(parts, ", ")
}

func backend(id string, power routing.Power) routing.Backend {
	return routing.Backend{Machine: id, Power: power, Autostart: true}
}

func with(b routing.Backend, f func(*routing.Backend)) routing.Backend { f(&b); return b }

// TestSilentWorkerAbandonsItsWake: when a worker goes silent during a wake, another machine is woken, or the requests
// are refused where there is none. If the worker returns its wake counts again.
func TestSilentWorkerAbandonsItsWake(t *testing.T) {
	wakes, a, other := routing.Policy{Autostart: true}, backend("a", routing.Asleep), backend("b", routing.Asleep)
	silent := with(a, func(b *routing.Backend) { b.Unheard = true })
	b := newBench(wakes, a, other)
	got := []string{b.ask(1, routing.Ask{}), b.view(wakes, silent, other), b.ask(2, routing.Ask{}),
		b.view(wakes, a, other)}
	if want := []string{"wake a", "wake b", "", ""}; !slices.Equal(got, want) {
		t.Errorf("of two: %q, want %q", got, want)
	}
	b = newBench(wakes, a)
	got = []string{b.ask(1, routing.Ask{}), b.view(wakes, silent), b.ask(2, routing.Ask{}), b.view(wakes, a),
		b.ask(3, routing.Ask{})}
	if want := []string{"wake a", "refuse 1 5", "refuse 2 5", "", ""}; !slices.Equal(got, want) {
		t.Errorf("of one: %q, want %q", got, want)
	}
}

func TestRequestIsSentHeldOrRefusedByState(t *testing.T) {
	wakes := routing.Policy{Autostart: true}
	up, asleep := backend("a", routing.Up), backend("a", routing.Asleep)
	for _, c := range []struct {
		name string
		p    routing.Policy
		list []routing.Backend
		ask  routing.Ask
		want string
	}{
		{"nobody is there", wakes, nil, routing.Ask{}, "refuse 1 1"},
		{"one is up", wakes, []routing.Backend{up}, routing.Ask{}, "send 1 a"},
		{"one sleeps", wakes, []routing.Backend{asleep}, routing.Ask{}, "wake a"},
		{"one is on its way", wakes, []routing.Backend{backend("a", routing.Coming)}, routing.Ask{}, ""},
		{"one may not be woken", wakes, []routing.Backend{with(asleep,
			func(b *routing.Backend) { b.Autostart = false })},
			routing.Ask{}, "refuse 1 3"},
		{"one fails its checks", wakes, []routing.Backend{with(up, func(b *routing.Backend) { b.Failing = true })},
			routing.Ask{}, "refuse 1 4"},
		{"one is cordoned", wakes, []routing.Backend{with(up, func(b *routing.Backend) { b.Cordoned = true })},
			routing.Ask{}, "refuse 1 1"},
		{"one cannot be heard", wakes, []routing.Backend{with(up, func(b *routing.Backend) { b.Unheard = true })},
			routing.Ask{}, "refuse 1 5"},
		{"one fails, another sleeps", wakes, []routing.Backend{
			with(up, func(b *routing.Backend) { b.Failing = true }), backend("b", routing.Asleep)}, routing.Ask{},
			"wake b"},
		{"the one that is asked for", wakes, []routing.Backend{up, backend("b", routing.Up)}, routing.Ask{Only: "b"},
			"send 1 b"},
		{"the one that is asked for sleeps", wakes, []routing.Backend{up, backend("b", routing.Asleep)},
			routing.Ask{Only: "b"}, "wake b"},
		{"the one that is asked for is not there", wakes, []routing.Backend{up}, routing.Ask{Only: "b"}, "refuse 1 2"},
		{"any but one", wakes, []routing.Backend{up, backend("b", routing.Up)}, routing.Ask{Not: "a"}, "send 1 b"},
		{"the nearest", wakes, []routing.Backend{
			with(up, func(b *routing.Backend) { b.Where = routing.Elsewhere }), backend("b", routing.Up)},
			routing.Ask{},
			"send 1 b"},
		{"the region that is asked for", wakes, []routing.Backend{
			with(up, func(b *routing.Backend) { b.Where, b.Region = routing.Elsewhere, "far" }), backend("b",
				routing.Up)},
			routing.Ask{Region: "far"}, "send 1 a"},
		{"the less loaded", wakes, []routing.Backend{
			with(up, func(b *routing.Backend) { b.Load = 9 }), backend("b", routing.Up)}, routing.Ask{}, "send 1 b"},
		{"beyond the soft limit another is woken", routing.Policy{Autostart: true, Soft: 5}, []routing.Backend{
			with(up, func(b *routing.Backend) { b.Load = 5 }), backend("b", routing.Asleep)}, routing.Ask{},
			"send 1 a"},
		{"no more than may be up", routing.Policy{Autostart: true, Soft: 5, Max: 1}, []routing.Backend{
			with(up, func(b *routing.Backend) { b.Load = 50 }), backend("b", routing.Asleep)}, routing.Ask{},
			"send 1 a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(c.p, c.list...)
			if got := b.ask(1, c.ask); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func TestManyRequestsShareOneWake(t *testing.T) {
	p := routing.Policy{Autostart: true}
	b := newBench(p, backend("a", routing.Asleep))
	if got := b.ask(1, routing.Ask{}); got != "wake a" {
		t.Fatal(got)
	}
	for i := range 99 {
		if got := b.ask(routing.Ticket(2+i), routing.Ask{}); got != "" {
			t.Fatal(got)
		}
	}
	if got := b.view(p, backend("a", routing.Up)); got != "" {
		t.Errorf("it is up, and not said to be ready: %q", got)
	}
	outs := b.Woken(b.now, b.rng, "a", nil)
	if len(outs) != 100 || outs[0].Ticket != 1 || outs[99].Ticket != 100 {
		t.Errorf("%d of 100 were sent, or in another order", len(outs))
	}
	// The fleet's word may be old: the machine was woken a moment ago.
	b.view(p, backend("a", routing.Asleep))
	if got := b.ask(200, routing.Ask{}); got != "send 200 a" {
		t.Errorf("%q", got)
	}
}

func TestFailedWakeTriesAnotherMachine(t *testing.T) {
	p := routing.Policy{Autostart: true}
	b := newBench(p, backend("a", routing.Asleep))
	b.ask(1, routing.Ask{})
	outs := b.Woken(b.now, b.rng, "a", errors.New("no room"))
	if len(outs) != 1 || outs[0].Reason != routing.WakeFailed || outs[0].After != 500*time.Millisecond ||
		outs[0].Cause == nil {
		t.Fatalf("%+v", outs)
	}
	if got := b.ask(2, routing.Ask{}); got != "refuse 2 6" {
		t.Errorf("while it is left alone: %q", got)
	}
	for i, wait := range []time.Duration{500, 1000, 2000, 4000, 8000, 16000, 30000, 30000} {
		b.now = b.now.Add(wait*time.Millisecond - 1)
		if got := b.ask(routing.Ticket(10+i), routing.Ask{}); !strings.HasPrefix(got, "refuse") {
			t.Errorf("%d: woken again too early: %q", i, got)
		}
		b.now = b.now.Add(1)
		if got := b.ask(routing.Ticket(100+i), routing.Ask{}); got != "wake a" {
			t.Errorf("%d: %q", i, got)
		}
		b.Woken(b.now, b.rng, "a", errors.New("no room"))
	}
	b = newBench(p, backend("a", routing.Asleep), backend("b", routing.Asleep))
	b.ask(1, routing.Ask{})
	if got := say(b.Woken(b.now, b.rng, "a", errors.New("no room"))); got != "wake b" {
		t.Errorf("another is tried: %q", got)
	}
}

// TestExtraMachineIsMadeUpToThePolicy: where those that are there do not do, or cannot be woken, another is made, one at a time and up to
// the policy's number.
func TestExtraMachineIsMadeUpToThePolicy(t *testing.T) {
	p := routing.Policy{Autostart: true, Soft: 2, CreateUpTo: 3}
	expect := func(name, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	b := newBench(p, backend("a", routing.Asleep))
	expect("it sleeps", b.ask(1, routing.Ask{}), "wake a")
	expect("its worker is full", say(b.Woken(b.now, b.rng, "a", errors.New("no room"))), "create like a")
	expect("while one is made", b.ask(2, routing.Ask{}), "")
	expect("it is not heard of yet", say(b.Made(b.now, b.rng, "b", nil)), "")
	expect("now it is", b.view(p, backend("a", routing.Asleep), backend("b", routing.Up)), "send 1 b, send 2 b")
	expect("the load wants a second one", b.ask(3, routing.Ask{}), "send 3 b, create like a")
	expect("one at a time", b.ask(4, routing.Ask{}), "send 4 b")
	b.Made(b.now, b.rng, "c", nil)
	full := []routing.Backend{backend("a", routing.Asleep), backend("b", routing.Up), backend("c", routing.Up)}
	b.view(p, full...)
	for i := range 10 { // as many as may be
		if got := b.ask(routing.Ticket(10+i), routing.Ask{}); strings.Contains(got, "create") {
			t.Errorf("beyond the number: %q", got)
		}
	}

	b = newBench(routing.Policy{CreateUpTo: 2}, backend("a", routing.Asleep)) // which no request may start
	b.View(b.now, b.rng, routing.Policy{CreateUpTo: 2}, []routing.Backend{with(backend("a", routing.Asleep),
		func(x *routing.Backend) { x.Autostart = false })})
	expect("it may not be started", b.ask(1, routing.Ask{}), "create like a")
	expect("there is no room", say(b.Made(b.now, b.rng, "", errors.New("no room"))), "refuse 1 3")
	expect("it is left alone for a while", b.ask(2, routing.Ask{}), "refuse 2 3")
	b.now = b.now.Add(time.Second)
	expect("after a while", b.ask(3, routing.Ask{}), "create like a")
	expect("another entry has made it", say(b.Made(b.now, b.rng, "", nil)), "")
	b.now = b.now.Add(3 * time.Second)
	expect("nobody tells of it", say(b.Tick(b.now, b.rng)), "create like a")

	gone := with(backend("a", routing.Up), func(x *routing.Backend) { x.Unheard = true })
	b = newBench(p, gone)
	expect("nobody knows what to make", b.ask(1, routing.Ask{}), "refuse 1 5")
	b = newBench(p, backend("a", routing.Up))
	expect("the one that is asked for", b.ask(1, routing.Ask{Only: "x"}), "refuse 1 2")
}

func TestConnectFailureSetsAMachineAside(t *testing.T) {
	p := routing.Policy{Autostart: true}
	b := newBench(p, backend("a", routing.Up))
	b.ask(1, routing.Ask{})
	if got := say(b.Corrected(b.now, b.rng, 1, routing.DoesNotRun, nil)); got != "wake a" {
		t.Errorf("it was stopped lately: %q", got)
	}
	if got := say(b.Woken(b.now, b.rng, "a", nil)); got != "send 1 a" {
		t.Errorf("%q", got)
	}
	b = newBench(p, backend("a", routing.Up), with(backend("b", routing.Up), func(x *routing.Backend) { x.Load = 9 }))
	b.ask(1, routing.Ask{})
	if got := say(b.Corrected(b.now, b.rng, 1, routing.NoAnswer, errors.New("gone"))); got != "send 1 b" {
		t.Errorf("one that cannot be reached: %q", got)
	}
	if got := b.ask(2, routing.Ask{}); got != "send 2 b" {
		t.Errorf("it is left alone for a while: %q", got)
	}
	if got := say(b.Corrected(b.now, b.rng, 1, routing.NoAnswer, errors.New("gone"))); got != "refuse 1 5" {
		t.Errorf("none can be reached: %q", got)
	}
	b.now = b.now.Add(2 * time.Second)
	if got := b.ask(3, routing.Ask{}); got != "send 3 a" {
		t.Errorf("after a while: %q", got)
	}
}

func TestHardLimitQueuesRequests(t *testing.T) {
	p := routing.Policy{Soft: 1, Hard: 2}
	b := newBench(p, backend("a", routing.Up))
	for i, want := range []string{"send 1 a", "send 2 a", "", ""} {
		if got := b.ask(routing.Ticket(i+1), routing.Ask{}); got != want {
			t.Errorf("%d: %q, want %q", i, got, want)
		}
	}
	b.Left(3)
	if got := say(b.Done(b.now, b.rng, 1)); got != "send 4 a" {
		t.Errorf("the one that waits: %q", got)
	}
	// The owner counts what others send, too.
	if got := say(b.Corrected(b.now, b.rng, 2, routing.AtItsLimit, nil)); got != "" {
		t.Errorf("%q", got)
	}
	b.now = b.now.Add(time.Second)
	if got := say(b.Tick(b.now, b.rng)); got != "send 2 a" {
		t.Errorf("after a while it is tried again: %q", got)
	}
}

func TestQueueIsBoundedPerSource(t *testing.T) {
	b := newBench(routing.Policy{Autostart: true}, backend("a", routing.Asleep))
	for i := range routing.MaxHeldSource {
		b.ask(routing.Ticket(i+1), routing.Ask{Source: "one"})
	}
	if got := b.ask(100000, routing.Ask{Source: "one"}); got != "refuse 100000 7" {
		t.Errorf("beyond what one source may have: %q", got)
	}
	if got := b.ask(100001, routing.Ask{Source: "another"}); got != "" {
		t.Errorf("another source: %q", got)
	}
}

// TestEveryRequestIsSentRefusedOrLeft: with random events each request is sent, refused or abandoned, none exceeds a
// hard limit, and none is sent twice at once.
func TestEveryRequestIsSentRefusedOrLeft(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 5).Draw(t, "machines")
		p := routing.Policy{Autostart: true, Soft: rapid.IntRange(0, 3).Draw(t, "soft"), Autostop: routing.IsStopped}
		p.Hard = p.Soft * rapid.IntRange(0, 2).Draw(t, "hard")
		p.CreateUpTo = rapid.IntRange(0, 6).Draw(t, "create")
		m := &model{
			b:      newBench(p),
			at:     map[routing.Ticket]string{},
			held:   map[routing.Ticket]bool{},
			waking: map[string]bool{},
		}
		view := func(t *rapid.T) {
			var list []routing.Backend
			for i := range n {
				x := backend(fmt.Sprint("m", i), routing.Power(rapid.IntRange(0, 3).Draw(t, "power")))
				x.Failing = rapid.IntRange(0, 5).Draw(t, "failing") == 0
				x.Unproven = rapid.IntRange(0, 3).Draw(t, "new") == 0
				x.Load = rapid.IntRange(0, 5).Draw(t, "load")
				if rapid.IntRange(0, 9).Draw(t, "gone") > 0 {
					list = append(list, x)
				}
			}
			m.do(t, m.b.View(m.b.now, m.b.rng, p, list), p)
		}
		view(t)
		t.Repeat(map[string]func(*rapid.T){
			"view": view,
			"time": func(t *rapid.T) {
				m.b.now = m.b.now.Add(time.Duration(rapid.IntRange(1, 3000).Draw(t, "ms")) * time.Millisecond)
				m.do(t, m.b.Tick(m.b.now, m.b.rng), p)
			},
			"arrive": func(t *rapid.T) {
				m.next++
				m.held[m.next] = true
				a := routing.Ask{Ticket: m.next, Source: "s"}
				if rapid.IntRange(0, 4).Draw(t, "only") == 0 {
					a.Only = "m1"
				}
				m.do(t, m.b.Arrive(m.b.now, m.b.rng, a), p)
			},
			"done": func(t *rapid.T) {
				for _, tk := range least(m.at) {
					delete(m.at, tk)
					m.do(t, m.b.Done(m.b.now, m.b.rng, tk), p)
					return
				}
			},
			"corrected": func(t *rapid.T) {
				for _, tk := range least(m.at) {
					delete(m.at, tk)
					m.held[tk] = true
					c := routing.Correction(rapid.IntRange(0, 3).Draw(t, "why"))
					m.do(t, m.b.Corrected(m.b.now, m.b.rng, tk, c, errors.New("x")), p)
					return
				}
			},
			"kept": func(t *rapid.T) { m.b.Expect(rapid.Bool().Draw(t, "kept")) },
			"left": func(*rapid.T) {
				for _, tk := range least(m.held) {
					delete(m.held, tk)
					m.b.Left(tk)
					return
				}
			},
			"made": func(t *rapid.T) {
				if !m.making {
					return
				}
				m.making = false
				var err error
				if rapid.Bool().Draw(t, "fails") {
					err = errors.New("x")
				}
				id := rapid.SampledFrom([]string{"", "m1", "m9"}).Draw(t, "made")
				m.do(t, m.b.Made(m.b.now, m.b.rng, id, err), p)
			},
			"woken": func(t *rapid.T) {
				for _, id := range least(m.waking) {
					delete(m.waking, id)
					var err error
					if rapid.Bool().Draw(t, "fails") {
						err = errors.New("x")
					}
					m.do(t, m.b.Woken(m.b.now, m.b.rng, id, err), p)
					return
				}
			},
			"": func(t *rapid.T) {
				if m.b.Held() != len(m.held) || m.b.Load() != len(m.at) {
					t.Fatalf("%d wait and %d are sent; the pool says %d and %d", len(m.held), len(m.at), m.b.Held(),
						m.b.Load())
				}
			},
		})
	})
}

type model struct {
	b      *bench
	next   routing.Ticket
	at     map[routing.Ticket]string
	held   map[routing.Ticket]bool
	waking map[string]bool
	making bool
}

func (m *model) do(t *rapid.T, outs []routing.Out, p routing.Policy) {
	for _, o := range outs {
		switch o.Do {
		case routing.Send:
			if !m.held[o.Ticket] {
				t.Fatalf("%d is sent and does not wait", o.Ticket)
			}
			delete(m.held, o.Ticket)
			m.at[o.Ticket] = o.Machine
			n := 0
			for _, id := range m.at {
				if id == o.Machine {
					n++
				}
			}
			if p.Hard > 0 && n > p.Hard {
				t.Fatalf("%s has %d requests of %d", o.Machine, n, p.Hard)
			}
		case routing.Wake:
			if m.waking[o.Machine] {
				t.Fatalf("%s is woken twice at once", o.Machine)
			}
			m.waking[o.Machine] = true
		case routing.Create:
			if m.making {
				t.Fatal("two are made at once")
			}
			m.making = true
		case routing.Refuse:
			if !m.held[o.Ticket] {
				t.Fatalf("%d is refused and does not wait", o.Ticket)
			}
			delete(m.held, o.Ticket)
		}
	}
}

// least returns the least key of a map, so that a run repeats; none where it is empty.
func least[K cmp.Ordered, V any](m map[K]V) []K {
	all := slices.Sorted(maps.Keys(m))
	return all[:min(1, len(all))]
}
