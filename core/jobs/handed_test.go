package jobs_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/soukhq/souk/core/auction"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/core/scheduler/shell"
)

const tokenWorker = "w1"

// grantedToken makes a dispatcher with a job of two tasks. The first has a token, and is granted to tokenWorker.
func grantedToken(t *testing.T) (d *jobs.Dispatcher, now time.Time, token shell.Token, grant jobs.Grant) {
	t.Helper()
	d, now = jobs.NewDispatcher(auction.DefaultRules(64)), time.Unix(1e9, 0)
	d.Resume()
	d.Open(now)
	spec := settled(t, jobs.Spec{First: 1, Last: 2, Scheduler: "sparrow"})
	if err := d.Submit(now, jobs.ID(1), spec); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Flush(); err != nil {
		t.Fatal(err)
	}
	d.Saved(now)
	d.Report(now, jobs.Report{Worker: tokenWorker, Full: true})
	list := d.Handouts()
	if len(list) != 1 {
		t.Fatalf("handed out: %+v", list)
	}
	token = shell.Token{Lane: shell.Lane{Scheduler: "sparrow"}, Generation: 1, Batch: 1}
	d.HandedOut(&list[0], token)
	d.Take()
	if !d.OrderToken(now, tokenWorker, token) {
		t.Fatal("the task was not granted")
	}
	for _, o := range d.Take().Orders {
		for _, g := range o.Grants {
			grant = g
		}
	}
	return d, now, token, grant
}

// TestGrantOfAnEndedGenerationIsTakenBackAtItsWorker: the task is handed out again, so the worker, where it may wait for
// room, must not begin it.
func TestGrantOfAnEndedGenerationIsTakenBackAtItsWorker(t *testing.T) {
	d, now, token, grant := grantedToken(t)
	d.GenerationOver(now, shell.Generation{Lane: token.Lane, Number: token.Generation})
	var taken []jobs.Life
	for _, o := range d.Take().Orders {
		taken = append(taken, o.Withdraw...)
	}
	if !slices.Contains(taken, grant.Life) {
		t.Errorf("%v were taken back, which lack %v", taken, grant.Life)
	}
	list := d.Handouts()
	if len(list) != 1 || list[0].Batch.Tasks != 2 {
		t.Errorf("handed out again: %+v", list)
	}
}

// TestRepliesToAnEarlierProcessAnswerNoGrant: a restarted keeper counts its grants from 1 again, so that a late reply to a
// grant of the process before has the number of a new grant. The new grant stays open, and what runs under the old one is
// ended.
func TestRepliesToAnEarlierProcessAnswerNoGrant(t *testing.T) {
	for _, answer := range []auction.Reply{auction.Refuse, auction.Accept} {
		d, now, _, grant := grantedToken(t)
		old := grant.Life
		old.Index, old.Attempt = 2, 1
		offer := jobs.Offer{Slot: grant.Slot, Number: grant.Granted.Offer}
		d.Report(now, jobs.Report{Worker: tokenWorker,
			Replies: []jobs.Reply{{Offer: offer, Answer: answer, Life: old}}})
		killed := killedBy(d)
		want := answer == auction.Accept
		if slices.Contains(killed, old) != want || slices.Contains(killed, grant.Life) {
			t.Errorf("after the reply %v to the old grant %v were ended", answer, killed)
		}
		d.Report(now, jobs.Report{Worker: tokenWorker,
			Replies: []jobs.Reply{{Offer: offer, Answer: auction.Accept, Life: grant.Life}}})
		j, err := d.Status(now, jobs.ID(1))
		if err != nil || j.Running != 1 || j.Waiting != 1 {
			t.Errorf("after the reply %v to the old grant, and one to the new: %+v, %v", answer, j, err)
		}
		if killed := killedBy(d); len(killed) > 0 {
			t.Errorf("after the reply %v to the old grant, the new one was ended: %v", answer, killed)
		}
	}
}

// killedBy takes the dispatcher's orders, and returns the lives that they end.
func killedBy(d *jobs.Dispatcher) (list []jobs.Life) {
	for _, o := range d.Take().Orders {
		list = append(list, o.Kill...)
	}
	return list
}

// TestSchedulerThatIsGoneIsSaidOnce: a job of an old journal may name a scheduler that souk has no longer. Its tasks wait,
// the job says why, and only the first of many tries is news.
func TestSchedulerThatIsGoneIsSaidOnce(t *testing.T) {
	d, now := jobs.NewDispatcher(auction.DefaultRules(64)), time.Unix(1e9, 0)
	d.Resume()
	d.Open(now)
	if err := d.Submit(now, jobs.ID(1), settled(t, jobs.Spec{First: 1, Last: 2, Scheduler: "gone"})); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Flush(); err != nil {
		t.Fatal(err)
	}
	d.Saved(now)
	d.Report(now, jobs.Report{Worker: tokenWorker, Full: true})
	for i := range 3 {
		list := d.Handouts()
		if len(list) != 1 {
			t.Fatalf("handed out: %+v", list)
		}
		if first := d.HandoutFailed(&list[0], errors.New("no scheduler is named gone")); first != (i == 0) {
			t.Errorf("try %d is the first: %v", i, first)
		}
		if more := d.Handouts(); len(more) != 0 {
			t.Errorf("it is tried again at once: %+v", more)
		}
		now = now.Add(time.Second)
		d.Open(now)
	}
	const why = "gone cannot find workers for it: no scheduler is named gone; cancel the job, and submit it with " +
		"another scheduler"
	if j, err := d.Status(now, jobs.ID(1)); err != nil || j.State != jobs.Waiting || j.Why != why {
		t.Errorf("%+v, %v", j, err)
	}
}
