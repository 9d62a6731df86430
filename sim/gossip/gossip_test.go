package gossip_test

import (
	"reflect"
	"testing"

	"github.com/soukhq/souk/sim/gossip"
	"github.com/soukhq/souk/sim/ticks"
)

func lan() gossip.Knobs {
	return gossip.Knobs{Probe: 170 * ticks.Millisecond, ProbeTimeout: 80 * ticks.Millisecond,
		Gossip: 50 * ticks.Millisecond, Settle: 100 * ticks.Millisecond,
		Flush: 5 * ticks.Millisecond, Indirect: 6, Suspicion: 3, SuspicionMax: 6, Retransmit: 8, Awareness: 8,
		Push: 4, Fanout: 4, Patience: 20 * ticks.Millisecond}
}

// TestLiveMembersAreNeverDeclaredDead: no live member is declared dead in an hour at 10 % loss, and every member
// notices a death within 3 s.
func TestLiveMembersAreNeverDeclaredDead(t *testing.T) {
	for _, n := range []int{2, 3, 5, 10, 50} {
		for seed := range uint64(3) {
			r := gossip.Detect(gossip.DetectOptions{Members: n, Seed: seed, Loss: 0.1, Duration: 3600 * ticks.Second,
				Knobs: lan()})
			if r.False > 0 || r.Suspicions == 0 {
				t.Errorf("%d members, seed %d: %+v", n, seed, r)
			}
		}
		for seed := range uint64(100) {
			r := gossip.Detect(gossip.DetectOptions{Members: n, Seed: seed, Duration: 60 * ticks.Second,
				Kill: 5*ticks.Second + ticks.Time(seed), Knobs: lan()})
			if n > 2 && (r.AllDead == 0 || r.AllDead > 3*ticks.Second) || r.FirstDead == 0 || r.False > 0 {
				t.Errorf("%d members, seed %d: %+v", n, seed, r)
			}
		}
	}
}

// TestLargeClustersDetectDeathsIn3s: suspicion grows with the logarithm of the members, and a death is noticed by all within 3 s all
// the same; nor is anybody held for dead at 10 % loss, in as many member-hours as an hour of 17 members has.
func TestLargeClustersDetectDeathsIn3s(t *testing.T) {
	for n, seeds := range map[int]uint64{200: 50, 1000: 25} {
		for seed := range seeds {
			r := gossip.Detect(gossip.DetectOptions{Members: n, Seed: seed, Duration: 60 * ticks.Second,
				Kill: 5*ticks.Second + ticks.Time(seed)*777, Knobs: lan()})
			if r.AllDead == 0 || r.AllDead > 3*ticks.Second || r.False > 0 {
				t.Errorf("%d members, seed %d: %+v", n, seed, r)
			}
		}
		duration := 60_000 / int64(n) * ticks.Second
		if r := gossip.Detect(gossip.DetectOptions{Members: n, Seed: 7, Loss: 0.1, Duration: duration,
			Knobs: lan()}); r.False > 0 || r.Suspicions == 0 {
			t.Errorf("%d members at 10 %% loss: %+v", n, r)
		}
	}
}

// TestDefaultMemberlistDeclaresLiveMembersDead: with memberlist's own defaults for what is repeated, at the same pace, it is.
func TestDefaultMemberlistDeclaresLiveMembersDead(t *testing.T) {
	k := lan()
	k.Indirect, k.Retransmit = 3, 4
	if r := gossip.Detect(gossip.DetectOptions{Members: 50, Loss: 0.1, Duration: 3600 * ticks.Second,
		Knobs: k}); r.False == 0 {
		t.Errorf("the model finds no fault where there is one: %+v", r)
	}
}

func TestChangesReachAllDespiteLoss(t *testing.T) {
	o := gossip.PropagateOptions{Members: 300, Owners: 30, Machines: 5, Changes: 60, Every: 100 * ticks.Millisecond,
		Idle: 5 * ticks.Second, Seed: 7, Knobs: lan()}
	for _, loss := range []float64{0, 0.1, 0.3} {
		o.Loss = loss
		r, err := gossip.Propagate(o)
		if err != nil || r.Missing > 0 || !r.Same || len(r.All) != o.Changes || len(r.Each) != o.Changes*(o.Members-1) {
			t.Fatalf("loss %g: %v, %+v, %d all, %d each", loss, err, r, len(r.All), len(r.Each))
		}
		if again, err := gossip.Propagate(o); err != nil || !reflect.DeepEqual(r, again) {
			t.Fatalf("loss %g: it does not repeat", loss)
		}
		t.Logf("loss %g: p99 until all %.0f ms, each %.0f ms, idle %.0f B/s, busy %.0f B/s, %d pulls", loss,
			r.All.MS(0.99), r.Each.MS(0.99), r.IdleBytes, r.BusyBytes, r.Pulls)
	}
}

// TestChangeCostsAtMostFourTimesItsRecord: at any rate, with loss too, each change costs each member at most four times
// what it wrote, and is with all within 200 ms.
func TestChangeCostsAtMostFourTimesItsRecord(t *testing.T) {
	for _, rate := range []ticks.Time{10, 200, 1000} {
		for _, loss := range []float64{0, 0.1} {
			r, err := gossip.Propagate(gossip.PropagateOptions{Members: 100, Owners: 50, Changes: 300,
				Every: ticks.Second / rate,
				Idle:  5 * ticks.Second, Loss: loss, Seed: 3, Knobs: lan()})
			if err != nil || r.Missing > 0 || !r.Same {
				t.Fatalf("%d changes a second, loss %g: %+v, %v", rate, loss, r, err)
			}
			if r.Change > 4*r.Record || r.ChangeMost > 5*r.Record || r.All.MS(0.99) > 200 {
				t.Errorf("%d changes a second, loss %g: a change of %.0f bytes costs a member %.0f, one of them "+
					"%.0f; p99 %.0f ms",
					rate, loss, r.Record, r.Change, r.ChangeMost, r.All.MS(0.99))
			}
		}
	}
}

// TestIdleTrafficIsIndependentOfMachines: idle bytes are the same with a hundred times the machines.
func TestIdleTrafficIsIndependentOfMachines(t *testing.T) {
	o := gossip.PropagateOptions{Members: 50, Owners: 50, Machines: 1, Changes: 20, Every: 200 * ticks.Millisecond,
		Idle: 10 * ticks.Second, Knobs: lan()}
	few, err := gossip.Propagate(o)
	if err != nil {
		t.Fatal(err)
	}
	o.Machines = 100
	many, err := gossip.Propagate(o)
	if err != nil {
		t.Fatal(err)
	}
	if many.IdleBytes != few.IdleBytes || many.BusyBytes > 1.1*few.BusyBytes {
		t.Fatalf("idle %.0f and %.0f B/s, busy %.0f and %.0f", few.IdleBytes, many.IdleBytes, few.BusyBytes,
			many.BusyBytes)
	}
}
