package fsm_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/fault"
)

var epoch = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// shop is a host whose subjects only remember what was done to them.
type shop struct {
	log  []string
	open bool // what the await step waits for
}

func do(kind string) func(*shop, time.Time, *fsm.Run) *fsm.Effect {
	return func(*shop, time.Time, *fsm.Run) *fsm.Effect { return &fsm.Effect{Kind: kind} }
}

func defs() []*fsm.Def[*shop] {
	return []*fsm.Def[*shop]{{
		Op: "build",
		Steps: []fsm.Step[*shop]{
			{Name: "dig", Deadline: 10 * time.Second, Do: do("dig"), Undo: do("fill"),
				Done: func(s *shop, _ time.Time, _ *fsm.Run,
					data any) {
					s.log = append(s.log, fmt.Sprint("dug ", data))
				}},
			{Name: "door", Deadline: 20 * time.Second, Do: func(s *shop, _ time.Time, _ *fsm.Run) *fsm.Effect {
				if s.open {
					return nil
				}
				return &fsm.Effect{Kind: fsm.Await}
			}},
			{Name: "roof", Deadline: time.Second, Tries: 3, Do: do("roof"), Undo: do("unroof")},
			{Name: "paint", Deadline: time.Second, BestEffort: true, Do: do("paint")},
		},
		Finish: func(s *shop, _ time.Time, _ *fsm.Run, err error) { s.log = append(s.log, fmt.Sprintf("end %v", err)) },
	}, {
		Op: "raze",
		Steps: []fsm.Step[*shop]{
			{Name: "shut", Deadline: time.Second, Do: do("shut"), Undo: do("unshut"), InsistsUndo: true},
			{Name: "fell", Deadline: 10 * time.Second, Insists: true, Do: do("fell")},
			{Name: "sweep", Deadline: 10 * time.Second, Insists: true, Do: do("sweep")},
		},
		Finish: func(s *shop, _ time.Time, _ *fsm.Run, err error) { s.log = append(s.log, fmt.Sprintf("end %v", err)) },
	}}
}

func newEngine(s *shop) *fsm.Engine[*shop] {
	return fsm.NewEngine(s, rand.New(rand.NewPCG(1, 2)), defs()...)
}

func kinds(o fsm.Out) string {
	var k []string
	for _, e := range o.Effects {
		k = append(k, e.Kind)
	}
	return strings.Join(k, ",")
}

// walk drives one engine by hand.
type walk struct {
	t   *testing.T
	e   *fsm.Engine[*shop]
	s   *shop
	now time.Time
	seq uint64
}

func newWalk(t *testing.T) *walk {
	s := &shop{}
	w := &walk{t: t, e: newEngine(s), s: s, now: epoch}
	var o fsm.Out
	if err := w.e.Start(w.now, "build", "k", "run-1", map[string]int{"n": 1}, &o); err != nil {
		t.Fatal(err)
	}
	if !o.Sync || len(o.Records) == 0 {
		t.Fatal("a run must be durable before its first effect")
	}
	w.saw(o, "dig")
	return w
}

func (w *walk) saw(o fsm.Out, want string) fsm.Out {
	w.t.Helper()
	if got := kinds(o); got != want {
		w.t.Fatalf("asked for %q, want %q", got, want)
	}
	for _, e := range o.Effects {
		w.seq = e.Seq
	}
	return o
}

func (w *walk) result(err error, data any) fsm.Out {
	var o fsm.Out
	w.e.Result(w.now, fsm.Result{Key: "k", Seq: w.seq, Err: err, Data: data}, &o)
	return o
}

func (w *walk) tick(d time.Duration) fsm.Out {
	w.now = w.now.Add(d)
	var o fsm.Out
	w.e.Tick(w.now, &o)
	return o
}

func (w *walk) notify() fsm.Out {
	var o fsm.Out
	w.e.Notify(w.now, "k", &o)
	return o
}

func TestRunCompletesItsStepsInOrder(t *testing.T) {
	w := newWalk(t)
	w.saw(w.result(nil, "deep"), "")
	w.saw(w.notify(), "") // the door is still closed
	w.s.open = true
	w.saw(w.notify(), "roof")
	w.saw(w.result(nil, nil), "paint")
	o := w.result(nil, nil)
	if len(o.Finished) != 1 || o.Finished[0].Err != nil {
		t.Fatalf("%+v", o)
	}
	if diff := cmp.Diff([]string{"dug deep", "end <nil>"}, w.s.log); diff != "" {
		t.Fatal(diff)
	}
	if w.e.Active("k") != nil {
		t.Fatal("the run is over and still active")
	}
}

func TestSecondRunOfAKeyConflicts(t *testing.T) {
	w := newWalk(t)
	var o fsm.Out
	err := w.e.Start(w.now, "build", "k", "run-2", nil, &o)
	if !fault.Is(err, fault.Conflict) || len(o.Effects) > 0 {
		t.Fatalf("%v, %+v", err, o)
	}
	if err := w.e.Start(w.now, "nonsense", "other", "run-3", nil, &o); !fault.Is(err, fault.Internal) {
		t.Fatal(err)
	}
}

func TestTransientFailureRetriesWithBackoffAndReason(t *testing.T) {
	w := newWalk(t)
	o := w.result(fault.New(fault.Unavailable, "x", "no shovel"), nil)
	if kinds(o) != "" || w.e.Active("k").Reason != "no shovel" || len(o.Records) != 1 {
		t.Fatalf("a failed try waits, and its reason is written: %+v", o)
	}
	wait := w.e.Next().Sub(w.now)
	if wait < 40*time.Millisecond || wait > 60*time.Millisecond {
		t.Fatalf("first backoff %v", wait)
	}
	w.saw(w.tick(wait), "dig")
	o = w.result(fault.New(fault.Unavailable, "x", "no shovel"), nil)
	if len(o.Records) != 0 {
		t.Fatal("the same reason is not written twice")
	}
}

func TestFinalFailureUndoesStepsInReverse(t *testing.T) {
	w := newWalk(t)
	w.s.open = true
	w.saw(w.result(nil, "deep"), "roof")
	o := w.saw(w.result(fault.New(fault.Invalid, "beam", "no beam fits"), nil), "unroof")
	if !o.Sync {
		t.Fatal("the turn must be durable before anything is undone")
	}
	w.saw(w.result(nil, nil), "fill")
	o = w.result(nil, nil)
	if len(o.Finished) != 1 || fault.CodeOf(o.Finished[0].Err) != "beam" {
		t.Fatalf("%+v", o.Finished)
	}
}

// newRaze is a run that is about to fell.
func newRaze(t *testing.T) *walk {
	w := &walk{t: t, s: &shop{}, now: epoch}
	w.e = newEngine(w.s)
	var o fsm.Out
	if err := w.e.Start(w.now, "raze", "k", "run-1", nil, &o); err != nil {
		t.Fatal(err)
	}
	w.saw(o, "shut")
	w.saw(w.result(nil, nil), "fell")
	return w
}

// TestInsistentStepRetriesPastItsDeadline: an insistent step is repeated when it takes too long, and does not fail by
// its deadline; only an impossible step ends it.
func TestInsistentStepRetriesPastItsDeadline(t *testing.T) {
	w := newRaze(t)
	for range 50 {
		o := w.saw(w.tick(10*time.Second), "fell")
		if !slices.Equal(o.Cancels, []string{"k"}) || w.e.Active("k").Reason == "" {
			t.Fatalf("the late one is cancelled, and a reason shown: %+v", o)
		}
	}
	w.saw(w.result(fault.New(fault.Unavailable, "wind", "it stands"), nil), "")
	w.saw(w.tick(10*time.Second), "fell")
	w.saw(w.result(fault.New(fault.Precondition, "listed", "it must not be felled"), nil), "unshut")
	for range 50 {
		w.saw(w.tick(time.Second), "unshut")
	}
	if o := w.result(nil, nil); len(o.Finished) != 1 || fault.CodeOf(o.Finished[0].Err) != "listed" {
		t.Fatalf("%+v", o.Finished)
	}
}

// TestIrreversibleStepIsRetriedUntilDone: once an irreversible step is done, the later steps are retried until they
// succeed, whatever fails.
func TestIrreversibleStepIsRetriedUntilDone(t *testing.T) {
	w := newRaze(t)
	w.saw(w.result(nil, nil), "sweep")
	for range 20 {
		w.saw(w.result(fault.New(fault.Precondition, "broom", "there is no broom"), nil), "")
		if !strings.Contains(w.e.Active("k").Reason, "no broom") {
			t.Fatalf("the reason must be shown: %+v", w.e.Active("k"))
		}
		w.saw(w.tick(10*time.Second), "sweep")
	}
	if o := w.result(nil, nil); len(o.Finished) != 1 || o.Finished[0].Err != nil {
		t.Fatalf("%+v", o.Finished)
	}
}

// TestMissedTimeExtendsDeadlinesOnce: time that souk missed extends the deadlines of running steps, once; a restart
// gives a step its whole time again.
func TestMissedTimeExtendsDeadlinesOnce(t *testing.T) {
	w := newWalk(t)
	w.now = w.now.Add(4 * time.Second)
	w.e.Missed(w.now, time.Hour) // longer than the run has lived
	w.saw(w.tick(9*time.Second), "")
	w.now = w.now.Add(45 * time.Second)
	w.e.Missed(w.now, 45*time.Second)
	if left := w.e.Next().Sub(w.now); left != time.Second {
		t.Fatalf("%v left of its deadline", left)
	}
	w.saw(w.tick(0), "")
	var o fsm.Out
	w.now = w.now.Add(time.Hour) // souk was away
	w.e.Resume(w.now, &o)
	w.saw(o, "dig")
	if left := w.e.Next().Sub(w.now); left != 10*time.Second {
		t.Fatalf("%v left of its deadline after a restart", left)
	}
	w.saw(w.tick(10*time.Second), "fill")
}

func TestRetriesAreBounded(t *testing.T) {
	w := newWalk(t)
	w.s.open = true
	w.saw(w.result(nil, "deep"), "roof")
	for range 2 {
		w.saw(w.result(fault.New(fault.Unavailable, "rain", "it rains"), nil), "")
		w.saw(w.tick(w.e.Next().Sub(w.now)), "roof")
	}
	w.saw(w.result(fault.New(fault.Unavailable, "rain", "it rains"), nil), "unroof")
}

func TestExceededDeadlineCancelsTheEffect(t *testing.T) {
	w := newWalk(t)
	o := w.saw(w.tick(10*time.Second), "fill")
	if !slices.Equal(o.Cancels, []string{"k"}) {
		t.Fatalf("the late effect must be cancelled: %+v", o)
	}
	stale := w.seq - 1
	var late fsm.Out
	w.e.Result(w.now, fsm.Result{Key: "k", Seq: stale, Data: "deep"}, &late)
	if len(late.Records) > 0 || len(w.s.log) > 0 {
		t.Fatal("a stale result must be dropped")
	}
	o = w.result(nil, nil)
	if err := o.Finished[0].Err; fault.CodeOf(err) != "deadline" ||
		!strings.Contains(err.Error(), `failed at step "dig": it took longer than 10s`) {
		t.Fatal(err)
	}

	w = newWalk(t) // an awaiting step has one too
	w.saw(w.result(nil, "deep"), "")
	w.saw(w.tick(20*time.Second), "fill")

	w = newWalk(t) // Pass goes on instead
	w.s.open = true
	w.saw(w.result(nil, "deep"), "roof")
	w.saw(w.result(nil, nil), "paint")
	if o := w.tick(time.Second); len(o.Finished) != 1 || o.Finished[0].Err != nil {
		t.Fatalf("%+v", o)
	}
}

func TestFailedUndoIsReportedAndEndsTheRun(t *testing.T) {
	w := newWalk(t)
	w.saw(w.result(fault.New(fault.Invalid, "rock", "there is rock"), nil), "fill")
	o := w.result(fault.New(fault.Invalid, "sand", "no sand"), nil)
	if len(o.Finished) != 1 ||
		!strings.Contains(o.Finished[0].Err.Error(), "there is rock; and step dig could not be undone: no sand") {
		t.Fatalf("%+v", o.Finished)
	}
}

func TestAbortCancelsTheRunningEffect(t *testing.T) {
	w := newWalk(t)
	var o fsm.Out
	w.e.Abort(w.now, "k", "the street is closed", &o)
	if fault.CodeOf(o.Finished[0].Err) != "aborted" || len(o.Cancels) != 1 || len(o.Effects) != 0 ||
		w.e.Active("k") != nil {
		t.Fatalf("%+v", o)
	}
}

func TestHistoryIsBounded(t *testing.T) {
	s := &shop{open: true}
	e := newEngine(s)
	kept := map[string]bool{}
	now := epoch
	for i := range 3 * fsm.MaxHistory {
		var o fsm.Out
		if err := e.Start(now, "build", "k", fmt.Sprintf("run-%03d", i), nil, &o); err != nil {
			t.Fatal(err)
		}
		for len(o.Finished) == 0 {
			seq := o.Effects[len(o.Effects)-1].Seq
			e.Result(now, fsm.Result{Key: "k", Seq: seq}, &o)
		}
		for _, r := range o.Records {
			if r.Bucket == fsm.HistoryBucket {
				kept[r.Key] = r.Value != nil
			}
		}
	}
	n := 0
	for _, v := range kept {
		if v {
			n++
		}
	}
	if n != fsm.MaxHistory {
		t.Fatalf("%d histories kept, want %d", n, fsm.MaxHistory)
	}
}

func TestReplayParksUnknownRuns(t *testing.T) {
	w := newWalk(t)
	good := fsm.Record{Bucket: fsm.RunBucket, Key: "k"}
	good.Value, _ = json.Marshal(w.e.Active("k"))
	edit := func(old, new string) fsm.Record {
		r := good
		r.Value = bytes.Replace(good.Value, []byte(old), []byte(new), 1)
		if bytes.Equal(r.Value, good.Value) {
			t.Fatalf("%q is not in %s", old, good.Value)
		}
		return r
	}
	for _, tc := range []struct {
		name string
		rec  fsm.Record
		want string
	}{
		{"another operation", edit(`"op":"build"`, `"op":"blast"`), "this souk has no such operation"},
		{"another step", edit(`"roof"`, `"tent"`), `was begun with the steps ["dig" "door" "tent" "paint"]`},
		{"beyond the last step", edit(`"at":0`, `"at":9`), "it stands at step 9 of 4"},
		{"before the first step", edit(`"at":0`, `"at":-1`), "it stands at step -1 of 4"},
		{"undone for no reason", edit(`"at":0`, `"at":0,"undoing":true`), "for no reason"},
		{"another key", edit(`"key":"k"`, `"key":"z"`), `is filed under another key ("z")`},
		{"no JSON", fsm.Record{Bucket: fsm.RunBucket, Key: "k", Value: []byte("{")}, "does not read"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := newEngine(&shop{})
			err := e.Restore(tc.rec)
			if fault.CodeOf(err) != "replay" || !strings.Contains(err.Error(), tc.want) {
				t.Fatal(err)
			}
			var o fsm.Out
			e.Resume(epoch, &o)
			if len(o.Effects) > 0 {
				t.Fatal("a parked run must not go on")
			}
			if err := e.Start(epoch, "build", "k", "run-2", nil, &o); fault.CodeOf(err) != "parked" {
				t.Fatal(err)
			}
			e.Abort(epoch, "k", "let go", &o)
			if err := e.Start(epoch, "build", "k", "run-2", nil, &o); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestEveryRunEndsWithinItsDeadlines: whatever the effects answer, and wherever it is stopped and resumed, a run ends, within the sum of
// its deadlines going forward and back; what was done and not undone is exactly what a success leaves.
func TestEveryRunEndsWithinItsDeadlines(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &shop{open: rapid.Bool().Draw(t, "open")}
		e, now := newEngine(s), epoch
		journal := map[string]fsm.Record{}
		var effects []fsm.Effect
		var end *fsm.Finished
		apply := func(o fsm.Out) {
			for _, r := range o.Records {
				if r.Value == nil {
					delete(journal, r.Bucket+r.Key)
				} else {
					journal[r.Bucket+r.Key] = r
				}
			}
			if len(o.Cancels) > 0 {
				effects = nil
			}
			effects = append(effects, o.Effects...)
			for i := range o.Finished {
				end = &o.Finished[i]
			}
		}
		var o fsm.Out
		if err := e.Start(now, "build", "k", "run-1", nil, &o); err != nil {
			t.Fatal(err)
		}
		apply(o)
		for i := 0; end == nil; i++ {
			if i > 1000 {
				t.Fatalf("it does not end: %+v", e.Active("k"))
			}
			var o fsm.Out
			switch c := rapid.IntRange(0, 9).Draw(t, "what"); {
			case c == 0: // a crash
				e, effects = newEngine(s), nil
				for _, k := range slices.Sorted(maps.Keys(journal)) {
					if err := e.Restore(journal[k]); err != nil {
						t.Fatal(err)
					}
				}
				e.Resume(now, &o)
			case c == 1:
				s.open = true
				e.Notify(now, "k", &o)
			case c < 8 && len(effects) > 0:
				err := rapid.SampledFrom([]error{nil, nil, fault.New(fault.Unavailable, "t", "later"),
					fault.New(fault.Invalid, "f", "never")}).Draw(t, "err")
				res := fsm.Result{Key: "k", Seq: effects[0].Seq, Err: err}
				effects = effects[1:]
				e.Result(now, res, &o)
			default:
				if next := e.Next(); next.After(now) {
					now = next
				}
				e.Tick(now, &o)
			}
			apply(o)
		}
		if took := now.Sub(epoch); took > 2*40*time.Second {
			t.Fatalf("it took %v", took)
		}
		if _, left := journal[fsm.RunBucket+"k"]; left {
			t.Fatal("an ended run is still in the journal")
		}
		if last := s.log[len(s.log)-1]; last != fmt.Sprintf("end %v", end.Err) {
			t.Fatalf("Finish was told %q, the owner %v", last, end.Err)
		}
	})
}

// FuzzRestoreNeverPanics: no record makes a replay panic, or go on with what it does not know.
func FuzzRestoreNeverPanics(f *testing.F) {
	f.Add([]byte(`{"id":"1","op":"build","key":"k","steps":["dig","door","roof","paint"],"at":2,"began":"2026-11-21T12:00:00Z","step_began":"2026-11-21T12:00:00Z"}`))
	f.Add([]byte(`{"id":"1","op":"build","key":"k","steps":["dig","door","roof","paint"],"at":-1,"undoing":true}`))
	f.Add([]byte(`{"op":"build","key":"k","steps":null,"at":4}`))
	f.Fuzz(func(t *testing.T, value []byte) {
		e := newEngine(&shop{open: true})
		err := e.Restore(fsm.Record{Bucket: fsm.RunBucket, Key: "k", Value: value})
		var o fsm.Out
		e.Resume(epoch, &o)
		if err != nil && len(o.Effects) > 0 {
			t.Fatal("a refused record has effects")
		}
		for i := 0; i < 100 && e.Active("k") != nil; i++ {
			var o fsm.Out
			if next := e.Next(); next.After(epoch) {
				e.Tick(next, &o)
			} else {
				e.Tick(epoch, &o)
			}
		}
	})
}
