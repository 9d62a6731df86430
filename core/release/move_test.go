package release

import (
	"fmt"
	"github.com/soukhq/souk/cluster"
	"slices"
	"testing"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// slotOf is a machine of a slot that serves.
func slotOf(index int, change ...func(m *Standing)) Standing {
	m := Standing{ID: fmt.Sprint("m", index), Worker: cluster.WorkerID(fmt.Sprint("w", index)), State: machine.Started,
		Ready: true, Replica: machine.Replica{Group: "web", Index: index, Spec: "s"}}
	for _, f := range change {
		f(&m)
	}
	return m
}

// TestMovesPersistUntilDoneOrExpired: they stay over other changes, are written once, and end: with their time, with their machine, or by another.
func TestMovesPersistUntilDoneOrExpired(t *testing.T) {
	one := releaseOf("one", map[string]int{"web": 3})
	now := time.Unix(1e9, 0).UTC()
	h := next(t, nil, Change{Release: one.ID()}, one, nil)
	all := func(string) bool { return true }
	none := func(string) bool { return false }
	move := func(stands func(string) bool, moves ...MoveTo) (bool, error) {
		c, err := (&Service{App: "shop", Head: h, Release: one}).Move(moves, stands, now)
		if err != nil || len(c.Moves) == 0 {
			return false, err
		}
		c.At = now
		n := next(t, h, c, one, one)
		changed := !n.Same(h)
		h = n
		return changed, nil
	}
	says := func(want ...string) {
		t.Helper()
		got := []string{}
		for _, m := range h.Moves {
			got = append(got, m.Machine+" "+string(m.To))
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
	}
	if changed, err := move(all, MoveTo{Machine: "m1", To: "b"}); !changed || err != nil {
		t.Fatal(changed, err)
	}
	if changed, _ := move(all, MoveTo{Machine: "m1", To: "b"}); changed {
		t.Error("the same again is another head")
	}
	if changed, _ := move(all, MoveTo{Machine: "m9"}); changed {
		t.Error("that one stays which was not to go is another head")
	}
	_, _ = move(all, MoveTo{Machine: "m2", To: "b"}, MoveTo{Machine: "m1", To: "c"})
	says("m2 b", "m1 c")
	h = next(t, h, Change{Counts: map[string]int{"web": 4}, Why: WhyScale, At: now.Add(2 * moveWithin)}, one, one)
	says("m2 b", "m1 c")
	if h.MovesTo(now, "m1", "a") != "c" || h.MovesTo(now, "m1", "c") != "" ||
		h.MovesTo(now.Add(moveWithin), "m1", "a") != "" {
		t.Error("where they are to be:", h.Moves)
	}
	standing := []Standing{slotOf(0, func(m *Standing) { m.ID = "m1" }), slotOf(5),
		{ID: "m2", Worker: "a", Replica: machine.Replica{Group: "web", Index: 2}},
		{ID: "m7", Worker: "b", Replica: machine.Replica{Group: "web", Index: 2}}}
	got := h.Moved(now, standing)
	if len(got) != 3 || got[0].Worker != "c" || got[1] != standing[1] || got[2].ID != "m7" {
		t.Errorf("where they will be: %+v", got)
	}
	_, _ = move(all, MoveTo{Machine: "m1"})
	says("m2 b")
	var many []MoveTo
	for i := range MaxMoves {
		many = append(many, MoveTo{Machine: fmt.Sprint("x", i), To: "b"})
	}
	if _, err := move(all, many...); fault.CodeOf(err) != "moves" {
		t.Error("one more than there may be:", err)
	}
	if _, err := move(none, many...); err != nil || len(h.Moves) != MaxMoves {
		t.Error("the others are over:", err, len(h.Moves))
	}
	now = now.Add(moveWithin)
	_, _ = move(all, MoveTo{Machine: "m3", To: "a"})
	says("m3 a")
}
