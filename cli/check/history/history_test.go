package history_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/soukhq/souk/cli/check/history"
	"github.com/soukhq/souk/cluster"
)

func create(call, ret int64, machine, worker, instance string, out history.Outcome) history.Op {
	return history.Op{
		Kind:     history.Create,
		Call:     call,
		Return:   ret,
		Machine:  machine,
		App:      "a",
		Worker:   cluster.WorkerID(worker),
		Instance: instance,
		Outcome:  out,
	}
}

func op(kind history.Kind, call, ret int64, machine, worker string, out history.Outcome) history.Op {
	return history.Op{
		Kind:    kind,
		Call:    call,
		Return:  ret,
		Machine: machine,
		App:     "a",
		Worker:  cluster.WorkerID(worker),
		Outcome: out,
	}
}

func TestHistoryModelsFindEachViolation(t *testing.T) {
	hold := func(call, ret int64, token string, expires int64) history.Op {
		o := op(history.Hold, call, ret, "", "w1", history.Yes)
		o.Token, o.Expires = token, expires
		return o
	}
	lease := func(kind history.Kind, call, ret int64, nonce string, out history.Outcome) history.Op {
		o := op(kind, call, ret, "m1", "w1", out)
		o.Nonce = nonce
		return o
	}
	redeem := func(call, ret int64, token string, out history.Outcome) history.Op {
		o := create(call, ret, "m9", "w1", "i9", out)
		o.Token = token
		if out == history.No {
			o.Code = "no_capacity"
		}
		return o
	}
	failed := func(call, ret int64, out history.Outcome) history.Op {
		o := redeem(call, ret, "t", out)
		o.Code = "launch_failed"
		return o
	}
	m1 := create(1, 2, "m1", "w1", "i1", history.Yes)
	for _, tc := range []struct {
		name string
		ops  []history.Op
		bad  int
	}{
		{"one", []history.Op{m1}, 0},
		{"told twice the same", []history.Op{m1, create(3, 4, "m1", "w1", "i1", history.Yes)}, 0},
		{"run twice", []history.Op{m1, create(3, 4, "m1", "w2", "i2", history.Yes)}, 1},
		{"made anew", []history.Op{m1, create(3, 4, "m1", "w1", "i2", history.Yes)}, 1},
		{"destroyed", []history.Op{m1, op(history.Destroy, 3, 4, "m1", "w1", history.Yes)}, 0},
		{"back again", []history.Op{m1, op(history.Destroy, 3, 4, "m1", "w1", history.Yes),
			create(5, 6, "m1", "w1", "i1", history.Yes)}, 1},
		{"lost", []history.Op{m1, op(history.Destroy, 3, 4, "m1", "w1", history.No)}, 1},
		{"unsure may be done", []history.Op{m1, op(history.Destroy, 3, 4, "m1", "w1", history.Unsure),
			op(history.Destroy, 5, 6, "m1", "w1", history.No)}, 0},
		{"refused and there", []history.Op{m1, create(3, 4, "m1", "w1", "", history.No)}, 1},
		{"lease of two", []history.Op{m1, lease(history.Lease, 3, 4, "n1", history.Yes),
			lease(history.Lease, 5, 6, "n2", history.No)}, 0},
		{"lease refused to the first", []history.Op{m1, lease(history.Lease, 5, 6, "n2", history.No)}, 1},
		{"lease lost", []history.Op{m1, lease(history.Lease, 3, 4, "n1", history.Yes),
			lease(history.ReleaseLease, 5, 6, "n1", history.No)}, 1},
		{"room is enough", []history.Op{m1, create(1, 2, "m2", "w1", "i", history.Yes)}, 0},
		{"over capacity", []history.Op{m1, create(1, 2, "m2", "w1", "i", history.Yes),
			create(3, 4, "m3", "w1", "i", history.Yes)}, 1},
		{"over capacity, or not", []history.Op{m1, create(1, 2, "m2", "w1", "i", history.Yes),
			create(3, 9, "m3", "w1", "i", history.Yes), op(history.Destroy, 4, 5, "m2", "w1", history.Yes)}, 0},
		{"room given back, or not", []history.Op{m1, create(1, 2, "m2", "w1", "i", history.Yes),
			op(history.Destroy, 3, 4, "m2", "w1", history.Unsure), create(5, 6, "m3", "w1", "i", history.Yes)}, 0},
		{"room given back once", []history.Op{m1, create(1, 2, "m2", "w1", "i", history.Yes),
			op(history.Destroy, 3, 4, "m2", "w1", history.Unsure), op(history.Destroy, 5, 6, "m2", "w1", history.Yes),
			create(7, 8, "m3", "w1", "i", history.Yes), create(9, 10, "m4", "w1", "i", history.Yes)}, 1},
		{"over capacity by a hold", []history.Op{m1, hold(3, 4, "t", 100), create(5, 6, "m2", "w1", "i", history.Yes)},
			1},
		{"two holds too many", []history.Op{m1, hold(3, 4, "t", 100), hold(5, 6, "u", 100)}, 1},
		{"a hold ends", []history.Op{m1, hold(3, 4, "t", 20), hold(25, 26, "u", 100)}, 0},
		{"a hold ends with its worker",
			[]history.Op{m1, hold(3, 4, "t", 100), op(history.Killed, 5, 6, "", "w1", history.Yes),
				hold(7, 8, "u", 100)}, 0},
		{"a hold is redeemed", []history.Op{m1, hold(3, 4, "t", 100), redeem(5, 6, "t", history.Yes)}, 0},
		{"a hold is redeemed, and the launch fails", []history.Op{m1, hold(3, 4, "t", 100), failed(5, 6, history.No),
			create(7, 8, "m3", "w1", "i", history.Yes)}, 0},
		{"a hold is redeemed, or not", []history.Op{m1, hold(3, 4, "t", 100), failed(5, 6, history.Unsure),
			create(7, 8, "m3", "w1", "i", history.Yes)}, 0},
		{"a launch of no hold fails", []history.Op{m1, hold(3, 4, "u", 100), failed(5, 6, history.No),
			create(7, 8, "m3", "w1", "i", history.Yes)}, 1},
		{"a hold is not kept", []history.Op{m1, hold(3, 4, "t", 100), redeem(5, 6, "t", history.No)}, 1},
	} {
		if got := history.Check(tc.ops, 2, time.Minute); len(got.Violations) != tc.bad || got.Unknown > 0 {
			t.Errorf("%s: %+v, want %d violations", tc.name, got, tc.bad)
		}
	}
}

// TestCheckOfUnansweredCreatesStaysFast: creates that had no answer for long, beside others that came and went, and that filled
// the room before they were answered. The search must not try out where each of them could have been.
func TestCheckOfUnansweredCreatesStaysFast(t *testing.T) {
	const slots, waiting, turns, free = 24, 20, 60, 6
	var ops []history.Op
	for i := range int64(slots - free) {
		ops = append(ops, create(1, 2+i, fmt.Sprint("first", i), "w1", "i", history.Yes))
	}
	for i := range int64(waiting) { // begun before the turns, answered behind them
		ops = append(ops, create(20+i, 9000+i, fmt.Sprint("late", i), "w1", "i", history.Yes))
	}
	last := "first0"
	for k := range int64(turns) {
		next := fmt.Sprint("turn", k)
		ops = append(ops, op(history.Destroy, 100+20*k, 109+20*k, last, "w1", history.Yes),
			create(105+20*k, 119+20*k, next, "w1", "i", history.Yes))
		last = next
	}
	for i := range int64(free) {
		ops = append(ops, create(5000+10*i, 5001+10*i, fmt.Sprint("filler", i), "w1", "i", history.Yes))
	}
	for i := range int64(waiting) {
		id := fmt.Sprint("first", i+1)
		if i >= slots-free-1 {
			id = fmt.Sprint("filler", i-(slots-free-1))
		}
		ops = append(ops, op(history.Destroy, 8000, 8001+i, id, "w1", history.Yes))
	}
	if got := history.Check(ops, slots, 5*time.Second); len(got.Violations) > 0 || got.Unknown > 0 {
		t.Errorf("%+v", got)
	}
	ops = append(ops, create(9100, 9101, "one too many", "w1", "i", history.Yes))
	ops = append(ops, create(9102, 9103, "two too many", "w1", "i", history.Yes))
	if got := history.Check(ops[len(ops)-2:], 1, 5*time.Second); len(got.Violations) != 1 {
		t.Errorf("%+v, want one violation", got)
	}
}

func TestHistoryEndRequiresOrForbidsMachines(t *testing.T) {
	file := filepath.Join(t.TempDir(), "h")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	r := history.NewRecorder(f)
	for _, o := range []history.Op{
		create(1, 2, "kept", "w1", "i", history.Yes),
		create(1, 2, "destroyed", "w1", "i", history.Yes), op(history.Destroy, 3, 4, "destroyed", "w1", history.Yes),
		create(1, 2, "unsure", "", "", history.Unsure), create(1, 2, "refused", "", "", history.No),
		create(10, 12, "after the copy", "w2", "i", history.Yes),
		create(1, 2, "before the copy", "w2", "i", history.Yes),
		create(1, 4, "nowhere before the copy", "", "", history.Yes),
		create(4, 12, "made and forgotten", "", "", history.Yes),
		op(history.Restored, 5, 20, "", "w2", history.Yes),
	} {
		r.Add(o)
	}
	if _, err := r.Ops(); err != nil {
		t.Fatal(err)
	}
	ops, err := history.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][2]bool{
		"kept":            {true, false},
		"destroyed":       {false, true},
		"unsure":          {},
		"refused":         {false, true},
		"after the copy":  {},
		"before the copy": {true, false},

		"nowhere before the copy": {true, false},
		"made and forgotten":      {},
	}
	for _, m := range history.End(ops) {
		if got := [2]bool{m.Must, m.MustNot}; got != want[m.ID] {
			t.Errorf("%s: must, must not = %v, want %v", m.ID, got, want[m.ID])
		}
		delete(want, m.ID)
	}
	if len(want) > 0 {
		t.Error("nothing is said of", want)
	}
	if err := os.WriteFile(file, []byte("{}\nnonsense\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := history.Read(file); err == nil {
		t.Error("a history that is none is read")
	}
}
