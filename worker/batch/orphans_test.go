package batch_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/auction"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/runtime/fake"
	"github.com/soukhq/souk/store/journal/mem"
	"github.com/soukhq/souk/worker/batch"
)

// buy has a runner start a task of one CPU for a buyer, and returns it.
func buy(t *testing.T, h *host, buyer cluster.WorkerID, sink reports, job string, argv ...string) jobs.Life {
	t.Helper()
	h.runner.Connect(jobs.Hello{Buyer: buyer, Jobs: []string{job}}, sink)
	shape := jobs.ShapeOf(cluster.Resources{CPU: 1000, Memory: 64})
	h.runner.Order(buyer, &jobs.Orders{Bulletin: &jobs.Bulletin{Bids: []jobs.ShapeBid{{Shape: shape, Quota: 1,
		Bid: auction.Bid{Short: 1, Long: 1}}}}})
	for m := range sink {
		if len(m.Offers) == 0 {
			continue
		}
		l := jobs.Life{Job: job, Attempt: 1, CPU: 1000, Memory: 64}
		h.runner.Order(buyer, &jobs.Orders{Grants: []jobs.Grant{{Slot: m.Offers[0].Slot, Life: l,
			Granted: auction.TaskGrant{Offer: m.Offers[0].Number},
			Terms:   &jobs.Terms{Job: job, App: "app", Command: argv, Shape: l.Shape()}}}})
		return l
	}
	return jobs.Life{}
}

// runs counts what runs and what has ended and is kept at a host.
func (h *host) runs() (running, kept int) {
	list, err := h.rt.List(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	for _, s := range list {
		if s.Running {
			running++
		} else {
			kept++
		}
	}
	return running, kept
}

// TestOrphansEnd: the tasks and results of a buyer that does not come back end: a day after its connection, or a minute after it if its
// member was removed. Those of a buyer that is connected stay.
func TestOrphansEnd(t *testing.T) {
	for name, removed := range map[string]bool{"its member was removed": true, "it is away for a day": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var gone atomic.Bool
				h := openHostWith(t, fake.New(fake.Options{}), mem.New(), batch.RunnerOptions{Worker: "w1", Slots: 4,
					Removed: func(id cluster.WorkerID) bool { return id == "b1" && gone.Load() }})
				h.run()
				sink := make(reports, 1000)
				buy(t, h, "b1", sink, jobs.ID(1), "sleep", "3600")
				other := make(reports, 1000)
				buy(t, h, "b2", other, jobs.ID(2), "sleep", "3600")
				synctest.Wait()
				if running, _ := h.runs(); running != 2 {
					t.Fatalf("%d tasks run", running)
				}
				h.runner.Disconnect("b1", sink)
				waittest.Pass(23 * time.Hour)
				if running, _ := h.runs(); running != 2 {
					t.Fatalf("%d tasks run while the buyer may come back", running)
				}
				if gone.Store(removed); !removed {
					waittest.Pass(time.Hour)
				}
				waittest.Pass(time.Minute)
				synctest.Wait()
				if running, kept := h.runs(); running != 1 || kept != 0 {
					t.Errorf("%d tasks run, %d are kept", running, kept)
				}
			})
		})
	}
}

// TestBuyerWithManyHeldResultsGetsNoOffers: a buyer that does not record its results is offered nothing more, until
// another one has taken over their job.
func TestBuyerWithManyHeldResultsGetsNoOffers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := openHost(t, "w1", fake.New(fake.Options{}), mem.New())
		h.run()
		sink := make(reports, 100_000)
		h.runner.Connect(hello, sink)
		shape := jobs.ShapeOf(cluster.Resources{CPU: 1000, Memory: 64})
		bid := &jobs.Orders{Bulletin: &jobs.Bulletin{Bids: []jobs.ShapeBid{{Shape: shape, Quota: 1 << 20,
			Bid: auction.Bid{Short: 1, Long: 1}}}}}
		h.runner.Order(hello.Buyer, bid)
		terms := &jobs.Terms{Job: job1, App: "app", Command: []string{"true"}, Shape: shape.Resources()}
		begun, results := 0, 0
		for idle := false; !idle; {
			select {
			case m := <-sink:
				results += len(m.Results)
				o := &jobs.Orders{}
				for _, x := range m.Offers {
					begun++
					o.Grants = append(o.Grants, jobs.Grant{Slot: x.Slot, Terms: terms,
						Life:    jobs.Life{Job: job1, Index: begun, Attempt: 1, CPU: 1000, Memory: 64},
						Granted: auction.TaskGrant{Offer: x.Number}})
				}
				h.runner.Order(hello.Buyer, o)
			case <-time.After(time.Minute):
				idle = true
			}
		}
		if results < 4096 || results > 4096+4 {
			t.Errorf("%d tasks were begun, %d have ended", begun, results)
		}
		// another member takes the job over, with its results
		heir := jobs.Hello{Buyer: "heir", Jobs: []string{job1}, Epochs: map[string]int{job1: 1}}
		if m := h.runner.Connect(heir, make(reports, 1000)); len(m.Results) != results {
			t.Errorf("of %d results the heir gets %d", results, len(m.Results))
		}
		h.runner.Order(hello.Buyer, bid)
		for offers := 0; offers == 0; {
			select {
			case m := <-sink:
				offers += len(m.Offers)
			case <-time.After(time.Minute):
				t.Fatal("the first buyer, which has nothing left to record, gets no offers")
			}
		}
	})
}
