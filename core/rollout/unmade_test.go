package rollout

import (
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// TestMissingImageFailsTheRolloutEarly: a missing image fails the rollout after a few tries, long before the deadline;
// an uncertain reason never replaces a certain one.
func TestMissingImageFailsTheRolloutEarly(t *testing.T) {
	w := newWorld(map[string]int{"web": 1})
	w.settle(t)
	w.deploy("gone", map[string]int{"web": 1})
	gone := fault.New(fault.NotFound, "image_unknown", "the registry does not have it")
	began, said := w.now, ""
	for i := range 60 {
		w.step(t)
		for len(w.under) > 0 {
			o := w.under[0]
			w.under = w.under[1:]
			err := error(gone)
			if o.Verb != Make {
				err = w.carryOut(&o.Order, carried, o.Worker)
			} else if i%2 == 1 && w.now.Sub(began) > 5*time.Second {
				err = fault.New(fault.Unavailable, "no_answer", "the worker does not answer")
			}
			o.by.Done(w.now, &o.Order, err)
		}
		if len(w.want.Unmade) > 0 {
			said = w.want.Unmade[0].Why
		}
		if w.want.Progress.Undo {
			break
		}
		w.now = w.now.Add(time.Second)
	}
	p := w.want.Progress
	if !p.Undo || !strings.Contains(p.Why, "does not have it") || w.now.Sub(began) > 10*time.Second {
		t.Errorf("after %v: %+v", w.now.Sub(began), p)
	}
	if said != "the registry does not have it" {
		t.Errorf("it says %q", said)
	}
	if err := (&release.Tenure{Notes: release.Notes{Unmade: make([]release.Failure,
		release.MaxUnmade+1)}}).Check(); err == nil {
		t.Error("a tenure may tell of any number")
	}
}

// TestYieldingStewardStopsDeadlines: while it gives way to another it makes no machines, which does not count against the
// deadline of a release.
func TestYieldingStewardStopsDeadlines(t *testing.T) {
	w := newWorld(map[string]int{"web": 1})
	w.settle(t)
	r := &release.Release{Schema: release.Schema, Groups: []release.Group{{Name: "web", Replicas: 1,
		Config: &machine.Config{Image: "next"},
		Update: &release.Update{Deadline: during(yieldFor / 2)}}}}
	w.follow(release.Change{Release: r.ID(), Why: release.WhyDeploy}, r)
	rival := cluster.WorkerID("n")
	for cluster.Steward([]cluster.WorkerID{"m", rival}, w.want.App) != rival {
		rival += "n"
	}
	for range 2 {
		w.step(t)
		for len(w.under) > 0 { // another member's term is in force at each worker
			o := w.under[0]
			w.under = w.under[1:]
			in := cluster.Term{Number: o.Term.Number + 1, Member: rival}
			w.term = max(w.term, in.Number)
			o.by.Done(w.now, &o.Order, o.Term.RefuseOld("shop", in))
		}
		w.now = w.now.Add(time.Second)
	}
	if w.step(t); w.steward.office.rivalry.until.IsZero() {
		t.Fatal("it does not yield")
	}
	began := w.now
	for range 40 {
		w.step(t)
		for len(w.under) > 0 {
			w.end(0, carried, "w1")
		}
		for _, m := range w.machines {
			m.Ready = m.State == machine.Started
		}
		w.now = w.now.Add(time.Second)
	}
	if p := w.want.Progress; p.Undo || p.State != release.Done || len(w.machines) != 1 {
		t.Errorf("%v later: %+v, %d machines", w.now.Sub(began), p, len(w.machines))
	}
}
