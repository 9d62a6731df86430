package routing_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/soukhq/souk/core/routing"
	"github.com/soukhq/souk/fault"
)

func unproven(id string, power routing.Power) routing.Backend {
	return with(backend(id, power), func(b *routing.Backend) { b.Unproven, b.Failing = true, power == routing.Up })
}

// TestMachineWithoutPassedChecksGetsNoRequests: no request is sent to one that has not passed its checks since its start. Where there is no
// other its owner is asked, once for however many wait, and believed until the fleet tells the same.
func TestMachineWithoutPassedChecksGetsNoRequests(t *testing.T) {
	p := routing.Policy{Autostart: true}
	again := &fault.Error{Kind: fault.Unavailable, Text: "it ended", RetryAfter: 3 * time.Second}
	for _, power := range []routing.Power{routing.Up, routing.Coming} {
		a := unproven("a", power)
		b := newBench(p, a)
		got := []string{b.ask(1, routing.Ask{}), b.ask(2, routing.Ask{}), b.view(p, a),
			say(b.Woken(b.now, b.rng, "a", nil)), b.ask(3, routing.Ask{}), b.view(p, a), b.ask(4, routing.Ask{})}
		want := []string{"wake a", "", "", "send 1 a, send 2 a", "send 3 a", "", "send 4 a"}
		if !slices.Equal(got, want) {
			t.Errorf("it passes: %q, want %q", got, want)
		}
		b.view(p, backend("a", routing.Up)) // so says the fleet now, and a moment later that it fails
		failing := with(backend("a", routing.Up), func(b *routing.Backend) { b.Failing = true })
		if b.view(p, failing); b.ask(5, routing.Ask{}) != "refuse 5 4" {
			t.Error("it has passed and fails now, and is asked")
		}

		b = newBench(p, a, backend("b", routing.Up))
		if got := []string{b.ask(1, routing.Ask{}), b.ask(2, routing.Ask{})}; !slices.Equal(got,
			[]string{"send 1 b", "send 2 b"}) {
			t.Errorf("there is another: %q", got)
		}
		if got := say(b.Corrected(b.now, b.rng, 1, routing.NoAnswer, errors.New("x"))); got != "wake a" {
			t.Errorf("the other has just failed: %q", got)
		}

		b = newBench(p, a, backend("b", routing.Asleep))
		b.ask(1, routing.Ask{})
		if got := say(b.Woken(b.now, b.rng, "a", again)); got != "wake b" {
			t.Errorf("its owner says that it does not come up: %q", got)
		}

		b = newBench(p, a)
		b.ask(1, routing.Ask{})
		b.Woken(b.now, b.rng, "a", again)
		outs := b.Arrive(b.now, b.rng, routing.Ask{Ticket: 2})
		if len(outs) != 1 || outs[0].Do != routing.Refuse || outs[0].After != 3*time.Second || outs[0].Cause == nil {
			t.Errorf("until the next try: %+v", outs)
		}
		b.now = b.now.Add(3 * time.Second)
		if got := b.ask(3, routing.Ask{}); got != "wake a" {
			t.Errorf("at the next try: %q", got)
		}
		b.Woken(b.now, b.rng, "a", again)
		b.view(p, with(a, func(b *routing.Backend) { b.Moved = time.Unix(2e9, 0) }))
		if b.ask(4, routing.Ask{}) != "wake a" {
			t.Error("it was started again, and its owner is not asked")
		}
	}
}

// TestRequestWaitsHalfAMinuteForAReplacement: of a service whose machines are kept one is waited for, for half a minute from when one was first
// missed.
func TestRequestWaitsHalfAMinuteForAReplacement(t *testing.T) {
	p := routing.Policy{Autostart: true}
	cordoned := with(backend("a", routing.Asleep), func(b *routing.Backend) { b.Cordoned = true })
	held := with(cordoned, func(b *routing.Backend) {
		b.Held, b.HeldTill = errors.New("it ends"), time.Unix(1e9+60, 0)
	})
	for _, list := range [][]routing.Backend{nil, {cordoned}} {
		b := newBench(p, list...)
		if got := b.ask(1, routing.Ask{}); got != "refuse 1 1" && got != "refuse 1 3" {
			t.Errorf("of one that is not kept: %q", got)
		}
		b.Expect(true)
		got := []string{b.ask(2, routing.Ask{}), b.view(p, append(list, backend("b", routing.Up))...)}
		if !slices.Equal(got, []string{"", "send 2 b"}) {
			t.Errorf("%q", got)
		}
		b.Done(b.now, b.rng, 2)
		b.view(p, list...)
		b.ask(3, routing.Ask{})
		b.now = b.now.Add(30 * time.Second)
		if got := say(b.Tick(b.now, b.rng)); got != "refuse 3 1" && got != "refuse 3 3" {
			t.Errorf("none has come: %q", got)
		}
		if got := b.ask(4, routing.Ask{}); got != "refuse 4 1" && got != "refuse 4 3" {
			t.Errorf("none has come: %q", got)
		}
		b.view(p, append(list, unproven("c", routing.Up))...)
		b.view(p, list...)
		if got := b.ask(5, routing.Ask{}); got != "" {
			t.Errorf("one was there meanwhile: %q", got)
		}
	}
	b := newBench(p, held)
	b.Expect(true)
	outs := b.Arrive(b.now, b.rng, routing.Ask{Ticket: 1})
	if len(outs) != 1 || outs[0].Reason != routing.HeldDown || outs[0].After != time.Minute || outs[0].Cause == nil {
		t.Errorf("one that is held: %+v", outs)
	}
}
