package services

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/store/catalog"
)

// Write appends to the log of all members.
func (b *board) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.log.Write(p)
}

// logged returns what was logged so far.
func (b *board) logged() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.log.String()
}

// drop has an app be gone.
func (b *board) drop(app string) {
	b.mu.Lock()
	delete(b.all, app)
	b.mu.Unlock()
	for _, v := range b.seen {
		v.mark(app)
	}
}

// mark tells that an app has changed.
func (v *view) mark(app string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.changed[app] = true
	close(v.moved)
	v.moved = make(chan struct{})
}

// TestRecreatedAppStartsBeyondOldTerms: workers go on to obey the terms of an app that was destroyed. The first steward of another
// app of its name begins beyond them where the member has heard of them, and where it has not, that nothing is wrong.
func TestRecreatedAppStartsBeyondOldTerms(t *testing.T) {
	for _, heard := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			b := newBed(t)
			if !heard {
				b.inForce = map[string]cluster.Term{"shop": {Number: 7, Member: "m9"}}
			} else {
				b.inForce = map[string]cluster.Term{}
				b.put("shop", func(s *catalog.Service) {
					s.Tenure = release.Tenure{Term: cluster.Term{Number: 7, Member: "m9"}}
				})
			}
			b.member("m1")
			if heard {
				b.deploy("shop", "one", 2)
				b.in(time.Minute)
				if n := b.machines("shop"); n != 2 {
					t.Fatalf("%d machines", n)
				}
				for _, m := range slices.Collect(b.fleet.Snapshot().MachinesOf("shop")) {
					b.fleet.Update(func(e *fleet.Edit) { e.Gone(m.Worker, m.ID) })
				}
				b.drop("shop")
				b.in(time.Second)
			}
			b.put("shop", func(s *catalog.Service) { s.App.ID = "another" })
			b.deploy("shop", "two", 2)
			b.in(5 * time.Second)
			if n := b.machines("shop"); n != 2 {
				t.Errorf("%d machines", n)
			}
			if log := b.logged(); strings.Contains(log, "WARN") || heard == strings.Contains(log, "is in force") {
				t.Errorf("heard %v: logged\n%s", heard, log)
			}
		})
	}
}
