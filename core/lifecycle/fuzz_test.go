package lifecycle_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/core/lifecycle"
)

// FuzzRestoreNeverPanics: a journal's records pass their checksum and may still be anything (a bug of another souk, a hostile
// disk). Each is refused with an error or restored; neither panics, and the ledger adds up.
func FuzzRestoreNeverPanics(f *testing.F) {
	for _, sc := range slices.Concat(scenarios(), termScenarios()) {
		w := newWorld()
		if sc.world != nil {
			sc.world(w)
		}
		d := newDriver(w)
		d.crashAt = 3 // in the middle: with a run on its way
		for _, a := range sc.acts {
			if !attempt(d, a) {
				break
			}
		}
		for _, r := range w.records() {
			f.Add(r.Bucket, r.Key, r.Value)
		}
	}
	f.Fuzz(func(t *testing.T, bucket, key string, value []byte) {
		s := lifecycle.New(cluster.Record{Worker: "w1", State: cluster.Ready, Capacity: capacity},
			rand.New(rand.NewPCG(1, 2)))
		err := s.Restore(lifecycle.Decode(fsm.Record{Bucket: bucket, Key: key, Value: value}))
		if err != nil {
			return
		}
		s.Recover(epoch, nil, false)
		s.Tick(epoch)
		if next := s.Next(); !next.IsZero() {
			s.Tick(next)
		}
		s.Check()
	})
}
