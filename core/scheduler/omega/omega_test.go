package omega_test

import (
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/core/scheduler/omega"
)

// TestFitsAgreesWithTheJudge holds the lean rule against the one judge.
func TestFitsAgreesWithTheJudge(t *testing.T) {
	room := rapid.Custom(func(t *rapid.T) omega.Amount {
		return omega.Amount{CPU: rapid.Int32Range(0, 8).Draw(t, "cpu"), Mem: rapid.Int32Range(0, 8).Draw(t, "mem")}
	})
	res := func(r omega.Amount) cluster.Resources {
		return cluster.Resources{CPU: int64(r.CPU), Memory: int64(r.Mem)}
	}
	rapid.Check(t, func(t *rapid.T) {
		capacity, want := room.Draw(t, "capacity"), room.Draw(t, "want")
		s := omega.NewState(1, capacity)
		rec := cluster.Record{State: cluster.Ready, Capacity: res(capacity)}
		for range rapid.IntRange(0, 4).Draw(t, "taken") {
			if used := room.Draw(t, "used"); s.Take(0, used) {
				rec.Used = rec.Used.Add(res(used))
			}
		}
		if lean, judged := want.Fits(s.Free(0)), placement.Judge(placement.Request{Resources: res(want)},
			rec).Fits; lean != judged {
			t.Fatalf("want %v of %v free: lean %v, judge %v", want, s.Free(0), lean, judged)
		}
	})
}

// TestConcurrentCommitsNeverOverCommit draws two schedulers with views of one cell that commit in turn, in every mode.
func TestConcurrentCommitsNeverOverCommit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const workers = 4
		each, want := omega.Amount{CPU: 4, Mem: 4}, omega.Amount{CPU: 1, Mem: rapid.Int32Range(0, 2).Draw(t, "mem")}
		rules := omega.Rules{Coarse: rapid.Bool().Draw(t, "coarse"), Gang: rapid.Bool().Draw(t, "gang")}
		cell := omega.NewState(workers, each)
		views := [2]*omega.State{omega.NewState(0, each), omega.NewState(0, each)}
		pools := [2]omega.Pool{omega.NewPool(workers), omega.NewPool(workers)}
		views[0].CopyFrom(cell)
		views[1].CopyFrom(cell)
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		placed := int32(0)
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			i := rapid.IntRange(0, 1).Draw(t, "who")
			if rapid.Bool().Draw(t, "sync") {
				views[i].CopyFrom(cell)
			}
			tasks := rapid.IntRange(1, 10).Draw(t, "tasks")
			claims := views[i].Place(rng, pools[i], want, tasks, nil)
			held := cell.Commit(rules, want, claims)
			if rules.Gang && held != 0 && held != len(claims) {
				t.Fatalf("a gang of %d was held in part: %d", len(claims), held)
			}
			placed += int32(held)
			var cpu int32
			for w := range int32(workers) {
				f := cell.Free(w)
				if f.CPU < 0 || f.Mem < 0 || f.CPU > each.CPU {
					t.Fatalf("worker %d has %v free", w, f)
				}
				cpu += each.CPU - f.CPU
			}
			if cpu != placed*want.CPU {
				t.Fatalf("%d milli-cores are taken by %d tasks", cpu, placed)
			}
		}
	})
}
