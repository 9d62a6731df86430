package decision_test

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/decision"
	"github.com/soukhq/souk/core/decision/decisiontest"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// crowded makes the seller of a worker that has some machines, up and down, and gives their ids.
func crowded(rng *rand.Rand) (*market.Seller, []string) {
	rec := cluster.Record{Worker: "w1", Region: "local", State: cluster.Ready, Incarnation: 3,
		Capacity: cluster.Resources{CPU: 4000, Memory: 4096, Disk: 10000, GPU: 2000},
		GPUs:     []cluster.GPU{{Kind: "l4"}, {Kind: "a100"}}}
	s := market.NewSeller(rec)
	ids := []string{"a", "b", "c", "d", "e", "f"}
	for _, id := range ids {
		r := placement.Request{App: "app-" + id, Machine: id, Resources: wants(rng)}
		if s.Grant(decisiontest.Epoch(), r, "", rng.IntN(2) == 0) != nil {
			r.Resources = cluster.Resources{Memory: 1}
			if err := s.Grant(decisiontest.Epoch(), r, "", false); err != nil {
				panic(err)
			}
		}
	}
	if rng.IntN(3) == 0 { // whom the worker takes is no matter for who is there
		s.SetCordon(&cluster.Cordon{Owner: "me", Reason: "a test"})
	}
	return s, ids
}

func wants(rng *rand.Rand) cluster.Resources {
	return cluster.Resources{CPU: rng.Int64N(2000), Memory: rng.Int64N(2000), Disk: rng.Int64N(4000),
		GPU: []int64{0, 0, 250, 500, 1000, 2000}[rng.IntN(6)]}
}

// TestRefusedStartRecomputesFromItsRecord (invariant 9): what a worker said to a machine of its own, which asked to start or
// to grow, follows from the record alone, also after it went through JSON.
func TestRefusedStartRecomputesFromItsRecord(t *testing.T) {
	refused, codes := 0, map[string]bool{}
	seeds(t, 2000, func(t *rapid.T, seed uint64) {
		rng := rand.New(rand.NewPCG(seed, 9))
		s, ids := crowded(rng)
		id, why := ids[rng.IntN(len(ids))], decision.Start
		var err error
		switch rng.IntN(3) {
		case 0:
			err = s.SetUp(decisiontest.Epoch(), id, true)
		case 1:
			_, err = s.Claim(decisiontest.Epoch(), placement.Request{App: "app-" + id, Machine: id, Start: true,
				Scheduling: machine.Scheduling{Band: machine.BandBatch}}, "")
		default:
			err, why = s.Resize(decisiontest.Epoch(), id, wants(rng)), decision.Update
		}
		f := fault.As(err)
		if f == nil {
			return
		}
		refusal, _ := fault.Detail[market.Refusal](f)
		d, ok := decision.FromOwner("X", decisiontest.Epoch(), why, &refusal, decision.Timings{Ask: 1, Total: 1})
		if !ok {
			t.Fatal("the refusal does not tell by what it was judged")
		}
		refused++
		for _, c := range d.Considered[0].Failing {
			codes[c.Code] = true
		}
		raw, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		var again decision.Decision
		if err := json.Unmarshal(raw, &again); err != nil {
			t.Fatal(err)
		}
		for _, d := range []*decision.Decision{d, &again} {
			d.Records = []*cluster.Record{&refusal.Record}
			if wrong := decision.Verify(d, lookup(d), placement.Default()); len(wrong) > 0 {
				t.Fatalf("%v\n%s", wrong, raw)
			}
		}
		if again.Considered[0].Failing[0].Had += "!"; len(decision.Verify(&again, lookup(&again),
			placement.Default())) == 0 {
			t.Fatal("a clause that was tampered with passes")
		}
		told := strings.Join(decision.Explain(d), "\n")
		if !strings.HasPrefix(told, "It was not "+map[string]string{decision.Start: "started",
			decision.Update: "updated"}[why]+": its own worker, w1, said no: ") ||
			!strings.Contains(told, "w1 could not: ") || d.Pending == "" || d.Reason == "" {
			t.Fatalf("%s: %s", d.Pending, told)
		}
	})
	for _, code := range []string{"cpu", "memory", "disk", "gpu", placement.CodeGPUDevice} {
		if !codes[code] {
			t.Errorf("of %d refusals none was for %s: the draws are poor", refused, code)
		}
	}
}

// TestRefusalWithoutRecordIsNotLogged: an older souk does not tell by what it judged, so nothing could be computed
// again.
func TestRefusalWithoutRecordIsNotLogged(t *testing.T) {
	if _, ok := decision.FromOwner("X", decisiontest.Epoch(), decision.Start, &market.Refusal{},
		decision.Timings{}); ok {
		t.Error("it was recorded")
	}
}
