package routing_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/core/routing"
)

// shares has so many requests served, one after the other, and returns how many each machine got.
func shares(b *bench, first routing.Ticket, n int) map[string]int {
	got := map[string]int{}
	for i := range n {
		t := first + routing.Ticket(i)
		for _, o := range b.Arrive(b.now, b.rng, routing.Ask{Ticket: t}) {
			if o.Do == routing.Send {
				got[o.Machine]++
			}
		}
		b.Done(b.now, b.rng, t)
		b.now = b.now.Add(10 * time.Millisecond)
	}
	return got
}

// fair reports an uneven share: each of three machines gets 25 to 42 % of the requests.
func fair(got map[string]int, n int) error {
	for i := range 3 {
		if share := 100 * got[fmt.Sprint("m", i)] / n; share < 25 || share > 42 {
			return fmt.Errorf("m%d gets %d %% of %d requests: %v", i, share, n, got)
		}
	}
	return nil
}

// TestMachinesShareLoadEqually: also where one of three is at the member that is asked, or the last report of a load, which
// is up to a second old, says that one has something to do.
func TestMachinesShareLoadEqually(t *testing.T) {
	for name, edit := range map[string]func(*routing.Backend){
		"all alike":               func(*routing.Backend) {},
		"one is here":             func(b *routing.Backend) { b.Where = routing.Here },
		"one has had a request":   func(b *routing.Backend) { b.Load = 1 },
		"one has had some":        func(b *routing.Backend) { b.Load = 3 },
		"one has stood longer":    func(b *routing.Backend) { b.Moved = time.Unix(1e8, 0) },
		"one is of a near region": func(b *routing.Backend) { b.Where, b.Region = routing.InRegion, "here" },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(routing.Policy{Autostart: true}, with(backend("m0", routing.Up), edit),
				with(backend("m1", routing.Up), func(b *routing.Backend) { b.Where = routing.InRegion }),
				with(backend("m2", routing.Up), func(b *routing.Backend) { b.Where = routing.InRegion }))
			if err := fair(shares(b, 1, 300), 300); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestSlowMachineKeepsItsShareUpToALimit: one that has not answered yet gets its share of what comes meanwhile, up to a few requests; one
// from which nothing comes then gets nothing more.
func TestSlowMachineKeepsItsShareUpToALimit(t *testing.T) {
	b := newBench(routing.Policy{Autostart: true}, backend("m0", routing.Up), backend("m1", routing.Up),
		backend("m2", routing.Up))
	stuck := map[routing.Ticket]bool{}
	got, until := 0, 0
	for tk := routing.Ticket(1); tk <= 300; tk++ {
		if say(b.Arrive(b.now, b.rng, routing.Ask{Ticket: tk})) == fmt.Sprintf("send %d m0", tk) {
			stuck[tk] = true
			got, until = got+1, int(tk)
			continue
		}
		b.Done(b.now, b.rng, tk)
	}
	if got != 3 || until > 15 {
		t.Errorf("one from which nothing comes gets %d requests, the last as number %d", got, until)
	}
	for tk := range stuck {
		b.Done(b.now, b.rng, tk)
	}
	if err := fair(shares(b, 1000, 300), 300); err != nil {
		t.Error(err)
	}
	held, gets := routing.Ticket(0), 0 // now one request of it is always under way
	for tk := routing.Ticket(2000); tk < 2300; tk++ {
		if say(b.Arrive(b.now, b.rng, routing.Ask{Ticket: tk})) == fmt.Sprintf("send %d m0", tk) {
			gets++
			b.Done(b.now, b.rng, held)
			held = tk
			continue
		}
		b.Done(b.now, b.rng, tk)
	}
	if gets < 75 {
		t.Errorf("a slow one gets %d of 300 requests", gets)
	}
}

// TestNewMachineGetsItsShareOnceReady: an owner sends a request back because its new machine's port does not accept
// yet, and nothing requires a wake. A second later the machine has its share, without news from the fleet.
func TestNewMachineGetsItsShareOnceReady(t *testing.T) {
	p := routing.Policy{Autostart: true}
	list := []routing.Backend{backend("m0", routing.Up), backend("m1", routing.Up), backend("m2", routing.Up)}
	b := newBench(p, list...)
	for tk := routing.Ticket(1); tk <= 20; tk++ {
		outs := b.Arrive(b.now, b.rng, routing.Ask{Ticket: tk})
		for len(outs) == 1 && outs[0].Do == routing.Send && outs[0].Machine == "m2" {
			outs = b.Corrected(b.now, b.rng, tk, routing.DoesNotRun, errors.New("no listener"))
		}
		if got := say(outs); got != fmt.Sprintf("send %d m0", tk) && got != fmt.Sprintf("send %d m1", tk) {
			t.Fatalf("a request that was sent back: %q", got)
		}
		b.Done(b.now, b.rng, tk)
	}
	b.now = b.now.Add(time.Second)
	if err := fair(shares(b, 100, 300), 300); err != nil {
		t.Error(err)
	}
}

// TestRecoveredMachinesRegainTheirShare: with random news from fleet and owners, once all machines are up, reachable,
// uncordoned and pass their checks, each has its share again: within a second, or 5 s after one could not be reached.
func TestRecoveredMachinesRegainTheirShare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := routing.Policy{Autostart: true, Soft: rapid.SampledFrom([]int{0, 0, 5}).Draw(t, "soft")}
		b := newBench(p)
		sent, waking, next, unreached := map[routing.Ticket]bool{}, map[string]bool{}, routing.Ticket(0), false
		do := func(outs []routing.Out) {
			for _, o := range outs {
				switch o.Do {
				case routing.Send:
					sent[o.Ticket] = true
				case routing.Wake:
					waking[o.Machine] = true
				}
			}
		}
		view := func(power func() routing.Power, often int) {
			var list []routing.Backend
			for i := range 3 {
				x := backend(fmt.Sprint("m", i), power())
				rare := func(what string) bool { return often > 0 && rapid.IntRange(0, often).Draw(t, what) == 0 }
				x.Failing, x.Cordoned, x.Unheard = rare("fails"), rare("cordoned"), rare("unheard")
				x.Unproven = rare("new")
				x.Load = rapid.IntRange(0, 3).Draw(t, "load")
				if !rare("gone") {
					list = append(list, x)
				}
			}
			do(b.View(b.now, b.rng, p, list))
		}
		any := func() routing.Power { return routing.Power(rapid.IntRange(0, 3).Draw(t, "power")) }
		up := func() routing.Power { return routing.Up }
		woken := func(fails bool) {
			for _, id := range least(waking) {
				delete(waking, id)
				var err error
				if fails {
					err = errors.New("x")
				}
				do(b.Woken(b.now, b.rng, id, err))
			}
		}
		view(up, 0)
		t.Repeat(map[string]func(*rapid.T){
			"view": func(t *rapid.T) { view(any, 4) },
			"up":   func(t *rapid.T) { view(up, 0) },
			"arrive": func(*rapid.T) {
				next++
				do(b.Arrive(b.now, b.rng, routing.Ask{Ticket: next, Source: "s"}))
			},
			"answer": func(t *rapid.T) {
				for _, tk := range least(sent) {
					delete(sent, tk)
					if why := rapid.IntRange(-1, 3).Draw(t, "why"); why >= 0 {
						unreached = unreached || why == 0 || why == 3
						do(b.Corrected(b.now, b.rng, tk, routing.Correction(why), errors.New("x")))
					} else {
						do(b.Done(b.now, b.rng, tk))
					}
				}
			},
			"woken": func(t *rapid.T) { woken(rapid.Bool().Draw(t, "fails")) },
			"time": func(t *rapid.T) {
				b.now = b.now.Add(time.Duration(rapid.IntRange(1, 3000).Draw(t, "ms")) * time.Millisecond)
				do(b.Tick(b.now, b.rng))
			},
		})
		view(up, 0)
		for len(waking) > 0 || len(sent) > 0 { // whatever was under way ends
			woken(false)
			for _, tk := range least(sent) {
				delete(sent, tk)
				do(b.Done(b.now, b.rng, tk))
			}
		}
		if b.now = b.now.Add(time.Second); unreached {
			b.now = b.now.Add(4 * time.Second)
		}
		if err := fair(shares(b, next+1, 300), 300); err != nil {
			t.Fatal(err)
		}
	})
}
