package jobs_test

import (
	"testing"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/jobs"
)

// TestMergedResultIsShownWithItsAttempt: a task that runs in its second attempt ends with the result that another member has of the first.
// It is shown as the result of the first.
func TestMergedResultIsShownWithItsAttempt(t *testing.T) {
	b := newBuying(t, 1, 1)
	b.NoteAttempt(b.id, 0, jobs.NewAttempt(0, 2), "w2")
	l := b.first()
	l.Attempt = jobs.NewAttempt(0, 2)
	b.report("w2", l)
	first := jobs.Result{Attempt: jobs.NewAttempt(0, 1), Worker: "w1", Began: 1, Ended: 2}
	if err := b.Merge(b.now, &jobs.Copy{Job: b.id, Merge: true, Groups: [][]jobs.Result{{first}}}); err != nil {
		t.Fatal(err)
	}
	list, _, err := b.Tasks(b.now, b.id, jobs.TaskQuery{Limit: 1})
	if err != nil || len(list) != 1 || list[0].State != "succeeded" || list[0].Attempt != 1 || list[0].Worker != "w1" {
		t.Errorf("%+v, %v", list, err)
	}
}

// TestHeirThatComesBackIsOneAgain: the only other member does not answer, so that the job has no heir, for the present. Once it is heard
// again, it is the heir.
func TestHeirThatComesBackIsOneAgain(t *testing.T) {
	b := newBuying(t, 1, 1)
	alive := func(cluster.WorkerID) bool { return false }
	look := func(after time.Duration) bool {
		b.now = b.now.Add(after)
		b.Heirs(b.now, []cluster.WorkerID{"h"}, alive)
		if _, err := b.Flush(); err != nil {
			t.Fatal(err)
		}
		b.Saved(b.now)
		return len(b.Copies(b.now)) > 0
	}
	if !look(0) {
		t.Fatal("nothing is copied to the heir")
	}
	b.NotCopied("h")
	if look(time.Minute - time.Second) {
		t.Fatal("a member that does not answer is still the heir")
	}
	if look(time.Second) {
		t.Fatal("a member that did not answer is the heir though it was not heard since")
	}
	b.ProbeHeir("h")
	if !look(time.Second) {
		t.Error("a member that is heard again is no heir")
	}
}

// TestStoppedKeeperLearnsOfTheTakeover: a member was stopped while another took its job over. It saw no member go, and has
// nothing to send, so the other member has to say so once it hears it again.
func TestStoppedKeeperLearnsOfTheTakeover(t *testing.T) {
	stopped, other := newBuying(t, 1, 1), newBuying(t, 1, 1)
	keeper := &jobs.Succession{Self: "m1", Dispatcher: stopped.Dispatcher, Copies: jobs.NewCopies()}
	taker := &jobs.Succession{Self: "m2", Dispatcher: other.Dispatcher, Copies: jobs.NewCopies()}
	other.Rival(other.now, jobs.Claim{Job: other.id, Epoch: 1, By: "m3"})
	other.Reclaim(other.now, other.id) // in epoch 2
	send := taker.HearClaims(other.now, "m1", keeper.Claims([]string{other.id}))
	for i := range send {
		keeper.Take(stopped.now, "m2", &send[i])
	}
	if own := keeper.Dispatcher.ClaimOf("m1", stopped.id); own != nil {
		t.Errorf("after %+v m1 claims %+v", send, own)
	}
	if own := taker.Dispatcher.ClaimOf("m2", other.id); own == nil {
		t.Error("m2 does not keep the job")
	}
}

// TestRefusedCopyIsNotSentAgain: a member that refuses copies gets nothing more, and the job has no heir.
func TestRefusedCopyIsNotSentAgain(t *testing.T) {
	b := newBuying(t, 1, 1)
	look := func() int {
		b.Heirs(b.now, []cluster.WorkerID{"h"}, func(cluster.WorkerID) bool { return false })
		if _, err := b.Flush(); err != nil {
			t.Fatal(err)
		}
		b.Saved(b.now)
		return len(b.Copies(b.now))
	}
	if look() == 0 {
		t.Fatal("nothing is copied to the heir")
	}
	b.Copied(b.now, "h", []jobs.CopyAnswer{{Job: b.id, State: jobs.CopyRefused}})
	if list := b.Copies(b.now); len(list) > 0 {
		t.Errorf("it is sent at once: %+v", list)
	}
	if b.now = b.now.Add(time.Second); look() > 0 || b.status().Heir != "" {
		t.Errorf("it is still the heir: %+v", b.status())
	}
}
