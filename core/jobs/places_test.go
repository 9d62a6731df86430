package jobs_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/auction"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
)

var alice = cluster.UnixUser{Name: "alice", UID: 1001}

// TestNoSlotIsOfferedForAUserWithoutAnswer: a worker offers slots for tasks of a Unix user once it knows that it has the
// user, and while it does; other tasks do not wait for that.
func TestNoSlotIsOfferedForAUserWithoutAnswer(t *testing.T) {
	s := jobs.NewSlots(8, auction.DefaultRules(8))
	bids := bidAt(1, 1000, 2)
	bids.Bids[0].Shape.User = alice
	bids.Bids = append(bids.Bids, bidAt(2, 1000, 1).Bids...)
	rec := cluster.Record{Worker: "w", State: cluster.Ready, Incarnation: 1,
		Capacity:   cluster.Resources{CPU: 8000, Memory: 4096},
		Attributes: cluster.Attributes{cluster.UnixUsersAttribute: cluster.Text("all")}}
	offered := func() (hers, others int) {
		for _, o := range s.Offers(epoch, rec)["a"] {
			if o.Shape.User == alice {
				hers++
			} else {
				others++
			}
		}
		return hers, others
	}
	s.Hear("a", bids)
	if got := s.PlacesWithoutAnswer(); !slices.Equal(got, []jobs.Place{{User: alice}}) {
		t.Fatalf("to be looked up: %v", got)
	}
	if hers, others := offered(); hers != 0 || others != 1 {
		t.Fatalf("before an answer: %d for alice, %d for others", hers, others)
	}
	s.SetPlace(jobs.PlaceAnswer{Place: jobs.Place{User: alice}, Why: "she has another number here"})
	if hers, _ := offered(); hers != 0 || len(s.PlacesWithoutAnswer()) != 0 || len(s.RefusedPlaces()) != 1 {
		t.Fatalf("after a bad answer: %d, %v, %v", hers, s.PlacesWithoutAnswer(), s.RefusedPlaces())
	}
	s.SetPlace(jobs.PlaceAnswer{Place: jobs.Place{User: alice}})
	if hers, _ := offered(); hers != 2 || len(s.RefusedPlaces()) != 0 {
		t.Fatalf("after a good answer: %d, %v", hers, s.RefusedPlaces())
	}
	s.Hear("a", &jobs.Bulletin{})
	if left := s.KeepPlaces(); len(left) != 0 {
		t.Errorf("kept though no bid has them: %v", left)
	}
	s.Hear("a", bids)
	if got := s.PlacesWithoutAnswer(); len(got) != 1 {
		t.Errorf("to be looked up anew: %v", got)
	}
}

// TestJobOfAUserSaysWhyItWaits: where no worker runs tasks as its user, or has the user.
func TestJobOfAUserSaysWhyItWaits(t *testing.T) {
	d := jobs.NewDispatcher(auction.DefaultRules(8))
	spec := settled(t, jobs.Spec{Owner: jobs.Owner{User: &alice}})
	if err := d.Submit(epoch, jobs.ID(1), spec); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Flush(); err != nil {
		t.Fatal(err)
	}
	d.Saved(epoch)
	now := epoch
	report := func(id cluster.WorkerID, whom string, users ...jobs.PlaceAnswer) (bids int) {
		t.Helper()
		now = now.Add(time.Second)
		rec := twoCPUs(id)
		if whom != "" {
			rec.Attributes = cluster.Attributes{cluster.UnixUsersAttribute: cluster.Text(whom)}
		}
		d.Report(now, jobs.Report{Worker: id, Record: rec, Full: true, Free: 4, Places: users})
		d.Open(now)
		for _, o := range d.Take().Orders {
			if o.Worker == id && o.Bulletin != nil {
				bids += len(o.Bulletin.Bids)
			}
		}
		return bids
	}
	why := func() string {
		t.Helper()
		j, err := d.Status(now, jobs.ID(1))
		if err != nil {
			t.Fatal(err)
		}
		return j.Why
	}
	if n := report("w1", ""); n != 0 || !strings.Contains(why(),
		"Unix user alice: the worker runs nothing as a Unix user") {
		t.Errorf("%d bids; %s", n, why())
	}
	if n := report("w1", "bob,carol"); n != 0 || !strings.Contains(why(), "only") {
		t.Errorf("%d bids; %s", n, why())
	}
	refusal := jobs.PlaceAnswer{Place: jobs.Place{User: alice}, Why: "user alice has the number 1002 on this host"}
	if n := report("w1", "all", refusal); n != 1 || !strings.Contains(why(),
		"Unix user alice: user alice has the number 1002") {
		t.Errorf("%d bids; %s", n, why())
	}
	if n := report("w2", "@lab"); n != 1 || strings.Contains(why(), "on 2 of 2") {
		t.Errorf("with another worker that may have her: %d bids; %s", n, why())
	}
	if n := report("w1", "all"); n != 1 || strings.Contains(why(), "1002") {
		t.Errorf("once w1 has her: %d bids; %s", n, why())
	}
}

// TestPropagatedLimitsAreChecked: before anything changes.
func TestPropagatedLimitsAreChecked(t *testing.T) {
	umask := func(n uint32) *uint32 { return &n }
	for _, c := range []struct {
		h    jobs.Propagated
		want string // of the error; "": none
	}{
		{jobs.Propagated{}, ""},
		{jobs.Propagated{Umask: umask(0o777), Limits: map[string]int64{"nofile": jobs.Unlimited, "core": 0}}, ""},
		{jobs.Propagated{Umask: umask(0o1000)}, "umask"},
		{jobs.Propagated{Limits: map[string]int64{"nice": 1}}, "is no limit"},
		{jobs.Propagated{Limits: map[string]int64{"nofile": -2}}, "from 0 up"},
	} {
		s := jobs.Spec{App: "a", Command: []string{"true"}, Propagated: c.h}
		err := s.Settle()
		if (err == nil) != (c.want == "") || err != nil && (!fault.Is(err, fault.Invalid) ||
			!strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v", c.h, err)
		}
	}
}

// TestUsersThatHaveNoTaskLeaveNoQueue: a thousand users come and go, and what is kept of them is bounded.
func TestUsersThatHaveNoTaskLeaveNoQueue(t *testing.T) {
	d := jobs.NewDispatcher(auction.DefaultRules(8))
	d.Open(epoch)
	now := epoch
	for n := range uint32(1000) {
		now = now.Add(time.Second)
		user := cluster.UnixUser{Name: "u", UID: 1000 + n}
		id := jobs.ID(uint64(n))
		if err := d.Submit(now, id, settled(t, jobs.Spec{Owner: jobs.Owner{User: &user}})); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Flush(); err != nil {
			t.Fatal(err)
		}
		d.Saved(now)
		if n%10 == 0 {
			continue // it waits on
		}
		if err := d.Cancel(now, id, "enough"); err != nil {
			t.Fatal(err)
		}
	}
	now = now.Add(time.Second)
	d.Open(now)
	if n := d.NumQueues(); n < 100 || n > 200 {
		t.Errorf("%d queues for 100 jobs that wait", n)
	}
	if n := d.List(now, ""); len(n) != 1000 {
		t.Errorf("%d jobs", len(n))
	}
}
