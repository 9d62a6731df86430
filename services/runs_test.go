package services

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/store/catalog"
)

// deployJob has a release of one job wanted, which is due each minute.
func (b *bed) deployJob(app string) {
	b.want(app, release.Group{Name: "job", Replicas: 1, Config: &machine.Config{Image: "one"},
		Cron: &release.Cron{Schedule: "* * * * *", Overlap: release.AllowBoth}})
}

// TestJobStartsOnTimeOverStewardDeath: one member starts the job each minute without any other change, and the next
// steward does after its death.
func TestJobStartsOnTimeOverStewardDeath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		stops := map[cluster.WorkerID]func(){}
		for _, id := range []cluster.WorkerID{"w1", "w2", "w3"} {
			stops[id] = b.member(id)
		}
		b.in(10 * time.Second)
		b.deployJob("shop")
		b.in(3 * time.Minute)
		orders := b.take()
		if len(orders) != 3 || b.machines("shop") != 3 {
			t.Fatalf("%d runs in 3 minutes: %+v", len(orders), orders)
		}
		for i, o := range orders {
			if at := o.Replica.At(); i > 0 && !at.Equal(orders[i-1].Replica.At().Add(time.Minute)) {
				t.Errorf("%v after %v", at, orders[i-1].Replica.At())
			}
		}
		gone := orders[0].Term.Member
		stops[gone]()
		b.put("shop", func(s *catalog.Service) {
			b.heard = slices.DeleteFunc(b.heard, func(id cluster.WorkerID) bool { return id == gone })
		})
		b.in(2 * time.Minute)
		if orders := b.take(); len(orders) != 2 || orders[0].Term.Member == gone || b.machines("shop") != 5 {
			t.Fatalf("after the steward is gone: %+v", orders)
		}
	})
}

// TestJobOfAStuckStewardIsTakenOver: another member starts the job of a stuck steward, though the service was at rest.
func TestJobOfAStuckStewardIsTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		all := []cluster.WorkerID{"w1", "w2", "w3"}
		b.stuck = release.StewardOf("id-shop", all, release.Tenure{})
		for _, id := range all {
			if id != b.stuck {
				b.member(id)
			}
		}
		b.deployJob("shop")
		b.put("shop", func(s *catalog.Service) {
			b.heard = all
			s.Tenure.Runs = map[string]release.Ran{"job": {At: release.Minute(time.Now()), Rule: "* * * * * UTC"}}
			s.Tenure.Progress = release.Progress{Rollout: s.Head.Rollout, Release: s.Head.Release, State: release.Done}
		})
		b.in(time.Minute)
		b.take()
		b.in(stuckFor + askEvery + time.Minute)
		if orders := b.take(); len(orders) == 0 || orders[0].Term.Member == b.stuck {
			t.Fatalf("%+v", orders)
		}
	})
}
