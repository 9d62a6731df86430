package routing_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/core/routing"
)

func standing(id string, power routing.Power) routing.Standing {
	return routing.Standing{Backend: backend(id, power), Made: routing.IsNameOf("web", id),
		Slept: power == routing.Asleep}
}

// refill says what a step wants.
func refill(r routing.Refill) string {
	text := fmt.Sprintf("%d+%d, lacks %d", r.Asleep, r.Coming, r.Lacks)
	if r.Like != "" {
		text += ", like " + r.Like
	}
	return text
}

func TestSparesFollowTheWarmCount(t *testing.T) {
	p := routing.Policy{Warm: 1, CreateUpTo: 3}
	now := time.Unix(1e9, 0)
	var s routing.Spares
	expect := func(what, want string, list ...routing.Standing) {
		t.Helper()
		if got := refill(s.Step(now, &p, list)); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	web, web2, web3 := standing("web", routing.Up), standing("web-2", routing.Asleep), standing("web-3", routing.Asleep)
	up := func(m routing.Standing) routing.Standing { m.Power, m.Slept, m.Load = routing.Up, false, 1; return m }
	unheard := func(m routing.Standing) routing.Standing { m.Unheard = true; return m }
	expect("none sleeps", "0+0, lacks 1, like web", web)
	s.Making()
	expect("one is made", "0+0, lacks 1", web)
	s.Made(now, nil, 0)
	expect("it is not heard of yet", "0+0, lacks 1", web)
	expect("it is being made", "0+1, lacks 0", web, standing("web-2", routing.Coming))
	expect("it is there", "1+0, lacks 0", web, web2)
	expect("it is used", "0+0, lacks 1, like web", web, up(web2))
	expect("as many as may be", "0+0, lacks 0", web, up(web2), up(web3))
	expect("they rest", "2+0, lacks 0", web, web2, web3)
	expect("they cannot be heard", "0+0, lacks 0", web, unheard(web2), unheard(web3))
	expect("one is gone", "0+0, lacks 1", web, unheard(web2))
	now = now.Add(routing.SettleFor)
	expect("a while later", "0+0, lacks 1, like web", web, unheard(web2))
	expect("the other decides", "1+0, lacks 0", unheard(web), web2)
	now = now.Add(routing.SettleFor)
	expect("and makes good", "0+0, lacks 1, like web-2", unheard(web), up(web2))
	s.Made(now, errors.New("no room"), time.Minute)
	now = now.Add(time.Minute - 1)
	expect("a refusal says when", "0+0, lacks 1", unheard(web), up(web2))
	now = now.Add(1)
	expect("that is over", "0+0, lacks 1, like web-2", unheard(web), up(web2))
	leaves := web
	leaves.Power, leaves.Leaving = routing.Gone, true
	expect("one is being destroyed", "0+0, lacks 1", leaves, up(web2))
	expect("nobody says what to make", "0+0, lacks 1", unheard(web))
	expect("all are destroyed", "0+0, lacks 1")
	for _, edit := range []func(*routing.Standing){func(m *routing.Standing) { m.Cordoned = true },
		func(m *routing.Standing) { m.Autostart = false }, func(m *routing.Standing) { m.Power = routing.Gone }} {
		m := web2
		edit(&m)
		s = routing.Spares{}
		expect("it cannot be woken", "0+0, lacks 1, like web", web, m)
	}
}

// TestRunningSpareCountsUntilSuspended: one that is up only until it is suspended counts as on its way, for a time, and not once it was
// used or has slept.
func TestRunningSpareCountsUntilSuspended(t *testing.T) {
	p := routing.Policy{Warm: 1, CreateUpTo: 3, Autostop: routing.IsSuspended}
	now := time.Unix(1e9, 0)
	var s routing.Spares
	web, web2 := standing("web", routing.Up), standing("web-2", routing.Up)
	r := s.Step(now, &p, []routing.Standing{web, web2})
	if refill(r) != "0+1, lacks 0" || !r.Again.After(now) {
		t.Error(refill(r), r.Again)
	}
	if got := refill(s.Step(r.Again, &p, []routing.Standing{web, web2})); got != "0+0, lacks 1, like web" {
		t.Errorf("it never is suspended: %s", got)
	}
	for _, was := range []routing.Standing{standing("web-2", routing.Asleep),
		{Backend: routing.Backend{Machine: "web-2", Power: routing.Up, Load: 1}, Made: true}} {
		s = routing.Spares{}
		s.Step(now, &p, []routing.Standing{web, was})
		if got := refill(s.Step(now, &p, []routing.Standing{web, web2})); got != "0+0, lacks 1, like web" {
			t.Errorf("it was used: %s", got)
		}
	}
}

func TestNewMachineTakesTheFirstFreeName(t *testing.T) {
	taken := map[string]bool{"web-2": true, "web-4": true}
	if got := routing.NameOf("web", func(n string) bool { return taken[n] }); got != "web-3" {
		t.Error(got)
	}
	for name, want := range map[string]bool{"web-2": true, "web-12": true, "web": false, "web-1": false, "web-x": false,
		"other-2": false} {
		if routing.IsNameOf("web", name) != want {
			t.Error(name)
		}
	}
}

// warmed is a service that two deciders keep spares for, each of which sees it late.
type warmed struct {
	t       *rapid.T
	p       routing.Policy
	history [][]routing.Standing // by seconds; what is so now comes last
	seen    [2]int               // up to which each sees it
	spares  [2]routing.Spares
	at      time.Time
	rests   bool // machines go back to sleep, which a decider that sees it late cannot know
}

func (w *warmed) now() []routing.Standing { return w.history[len(w.history)-1] }

// asleep counts the spares that are there, or are being made.
func (w *warmed) asleep() (n int) {
	for _, m := range w.now() {
		if m.Sleeps() || m.Power == routing.Coming {
			n++
		}
	}
	return n
}

// second passes a second.
func (w *warmed) second(events bool) {
	w.at = w.at.Add(time.Second)
	next := slices.Clone(w.now())
	for i := range next {
		if next[i].Power == routing.Coming && rapid.Bool().Draw(w.t, "made") {
			next[i].Power = routing.Asleep
		}
	}
	if i := rapid.IntRange(0, 3*max(1, len(next))).Draw(w.t, "of"); events && i < len(next) {
		switch m := &next[i]; rapid.IntRange(0, 4).Draw(w.t, "event") {
		case 0:
			next = slices.Delete(next, i, i+1)
		case 1:
			if m.Power == routing.Up && w.rests {
				m.Power, m.Load = routing.Asleep, 0
			}
		default:
			if m.Power == routing.Asleep {
				m.Power, m.Load = routing.Up, 1
			}
		}
	}
	w.history = append(w.history, next)
	for i := range w.spares {
		w.seen[i] = max(w.seen[i], len(w.history)-1-rapid.IntRange(0, 3).Draw(w.t, "late"))
		w.step(i)
	}
}

func (w *warmed) step(i int) {
	view := w.history[w.seen[i]]
	s := &w.spares[i]
	r := s.Step(w.at, &w.p, view)
	if r.Like == "" {
		return
	}
	s.Making()
	called := func(list []routing.Standing) func(string) bool {
		return func(name string) bool {
			return slices.ContainsFunc(list, func(m routing.Standing) bool { return m.Machine == name })
		}
	}
	if rapid.IntRange(0, 4).Draw(w.t, "fails") == 0 || !called(w.now())(r.Like) { // nobody says any more what it was
		s.Made(w.at, errors.New("no room"), 0)
		return
	}
	name := routing.NameOf("web", called(view))
	if !called(w.now())(name) { // else the other has made it
		if n := w.asleep(); n >= w.p.Warm && !w.rests {
			w.t.Fatalf("%s is made beside %d spares of %d", name, n, w.p.Warm)
		}
		w.history[len(w.history)-1] = append(slices.Clone(w.now()), standing(name, routing.Coming))
		if len(w.now()) > w.p.CreateUpTo {
			w.t.Fatalf("there are %d machines of %d", len(w.now()), w.p.CreateUpTo)
		}
		w.seen[i] = len(w.history) - 1 // of what it made itself its own fleet tells at once
	}
	s.Made(w.at, nil, 0)
}

// TestTwoDecidersNeverExceedWarmCount: whatever two deciders see late, what they make fails, and machines come and go,
// there are never more machines than may be, none is made that is not missing, and in the end none is missing.
func TestTwoDecidersNeverExceedWarmCount(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &warmed{t: t, at: time.Unix(1e9, 0), rests: rapid.Bool().Draw(t, "rests")}
		w.p.CreateUpTo = rapid.IntRange(2, 6).Draw(t, "up to")
		w.p.Warm = rapid.IntRange(1, w.p.CreateUpTo-1).Draw(t, "warm")
		w.history = [][]routing.Standing{{standing("web", routing.Up)}}
		for range rapid.IntRange(0, 60).Draw(t, "seconds") {
			w.second(true)
		}
		before := len(w.now())
		for range 120 {
			w.second(false)
		}
		if before == 0 {
			if len(w.now()) > 0 {
				t.Fatal("all were destroyed, and one is made")
			}
			return
		}
		others := len(w.now()) - w.asleep()
		if got, want := w.asleep(), min(w.p.Warm, w.p.CreateUpTo-others); got < want || got > want && !w.rests {
			t.Fatalf("%d spares, want %d", got, want)
		}
	})
}
