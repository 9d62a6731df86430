package lifecycle_test

import (
	"testing"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// TestHaltedWorkerStartsNothing: a halted worker grants and starts nothing. Running machines continue and can be
// stopped and destroyed. When the halt ends, due work is done and an earlier cordon still stands.
func TestHaltedWorkerStartsNothing(t *testing.T) {
	w := newWorld()
	d := newDriver(w)
	always := func(g *lifecycle.Grant) { g.Launch.Config.Restart = &machine.Restart{Policy: "always"} }
	for _, id := range []string{m1, v1, v2} {
		d.grant(grantOf(id, always))
		d.settle(time.Second)
	}
	halt := func(why string) { d.take(d.sup.Halt(d.now, why)) }
	state := func(id string) machine.State { return d.sup.Machine("app", id).State }
	if _, err := d.sup.Cordon(d.now, lifecycle.CordonCommand{Owner: "ann", Reason: "disks"}); err != nil {
		t.Fatal(err)
	}
	halt("there are two")
	if c := d.sup.Record(d.now).Cordon; c == nil || c.Owner != lifecycle.HaltOwner || c.Reason != "there are two" {
		t.Errorf("its record says %+v", c)
	}
	d.end(m1, 1)
	d.settle(2 * time.Hour)
	if s := state(m1); s == machine.Started || state(v1) != machine.Started {
		t.Errorf("what ended is %s, what runs is %s", s, state(v1))
	}
	const fresh = "1234567890abcd"
	evicting := func(g *lifecycle.Grant) { g.Evict, g.Request.Start = true, true }
	grants := []uint64{d.grant(grantOf(fresh)), d.grant(grantOf(fresh, evicting))}
	refused := map[string]uint64{
		"start":   d.do(lifecycle.Command{Verb: lifecycle.Start, App: "app", Machine: m1}),
		"restart": d.do(lifecycle.Command{Verb: lifecycle.Restart, App: "app", Machine: v1}),
		"volume": d.volume(lifecycle.VolumeCommand{Verb: "create", App: "app", Volume: "vol_9",
			Spec: machine.Volume{SizeGB: 1}}),
	}
	d.settle(time.Minute)
	for what, ticket := range refused {
		if r := d.replies[ticket]; fault.CodeOf(r.Err) != lifecycle.CodeHalted {
			t.Errorf("%s: %v", what, r.Err)
		}
	}
	for _, ticket := range grants { // with what a buyer needs to go on to another worker
		err := d.replies[ticket].Err
		if r, ok := fault.Detail[market.Refusal](err); !ok || !fault.Is(err, fault.Exhausted) ||
			r.Record.State != cluster.Cordoned || r.Record.Cordon.Owner != lifecycle.HaltOwner {
			t.Errorf("a grant: %v, %+v", err, r)
		}
	}
	if _, err := d.sup.Cordon(d.now, lifecycle.CordonCommand{End: true}); fault.CodeOf(err) != lifecycle.CodeHalted {
		t.Errorf("somebody ends its cordon: %v", err)
	}
	if d.sup.Machine("app", fresh) != nil || state(v1) != machine.Started {
		t.Error("something was begun or ended")
	}
	d.do(lifecycle.Command{Verb: lifecycle.Stop, App: "app", Machine: v1})
	d.do(lifecycle.Command{Verb: lifecycle.Destroy, App: "app", Machine: v2, Kill: true})
	d.settle(time.Minute)
	if state(v1) != machine.Stopped || state(v2) != machine.Destroyed {
		t.Errorf("stopped and destroyed, they are %s and %s", state(v1), state(v2))
	}
	halt("")
	d.settle(time.Minute)
	if rec := d.sup.Record(d.now); state(m1) != machine.Started || rec.State != cluster.Cordoned ||
		rec.Cordon.Owner != "ann" {
		t.Errorf("afterwards what was due is %s, and the cordon is %+v", state(m1), rec.Cordon)
	}
	if len(w.violations) > 0 {
		t.Error(w.violations)
	}
}
