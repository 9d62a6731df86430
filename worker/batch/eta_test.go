package batch_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/soukhq/souk/core/eta"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/runtime/fake"
	"github.com/soukhq/souk/store/journal/mem"
	"github.com/soukhq/souk/worker/batch"
)

// TestForecastsOutliveARestart: what came of forecasts is in a file when souk ends, and the next job after a start has an
// ETA by it. A damaged file is as none.
func TestForecastsOutliveARestart(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "eta.json")
	if err := os.WriteFile(file, []byte("{damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	rt, j, shopJournal := fake.New(fake.Options{}), mem.New(), mem.New()
	open := func() (*host, *shop) {
		h := openHostWith(t, rt, j, batch.RunnerOptions{Worker: "w1", Slots: 4})
		s := openShop(t, shopJournal, dir, "boot", h)
		h.run()
		return h, s
	}
	h, s := open()
	for n := range 2 * eta.Least {
		sp := spec(1, "true")
		sp.EstimateMS = 1
		if _, err := s.Submit(t.Context(), jobs.ID(uint64(n+1)), sp); err != nil {
			t.Fatal(err)
		}
		waittest.Until(t, "the job ends", func() bool {
			x, err := s.Status(t.Context(), jobs.ID(uint64(n+1)))
			return err == nil && x.State.Final()
		})
	}
	s.stop()
	h.stop()
	var saved eta.Saved
	if raw, err := os.ReadFile(file); err != nil || json.Unmarshal(raw, &saved) != nil || saved.Kinds["end"].Of == 0 {
		t.Fatalf("%s, %v", raw, err)
	}
	j, shopJournal = j.Reopen(), shopJournal.Reopen()
	h, s = open()
	defer h.stop()
	if _, err := s.Submit(t.Context(), jobs.ID(100), spec(100, "sleep", "1000")); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "the job has an ETA", func() bool {
		x, err := s.Status(t.Context(), jobs.ID(100))
		return err == nil && x.ETA != nil && x.ETA.Ends != nil && x.Queue != nil
	})
}
