package batch_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/core/share"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/runtime/fake"
	"github.com/soukhq/souk/store/journal/mem"
	"github.com/soukhq/souk/worker/batch"
)

func readShares(t *testing.T, file string) (saved share.Saved) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(raw, &saved)
	}
	if err != nil {
		t.Fatal(err)
	}
	return saved
}

// TestUseOutlivesARestart: what namespaces have used is in a file when souk ends, counts after the next start, and goes
// on to count for a task that ran on. A damaged file is as none.
func TestUseOutlivesARestart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "shares.json")
	if err := os.WriteFile(file, []byte("{damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	rt, j, dir := fake.New(fake.Options{}), mem.New(), t.TempDir()
	shopJournal := mem.New()
	open := func() (*host, *shop) {
		h := openHostWith(t, rt, j, batch.RunnerOptions{Worker: "w1", Slots: 4, SharesFile: file})
		s := openShop(t, shopJournal, dir, "boot", h)
		h.run()
		return h, s
	}
	h, s := open()
	sp := spec(1, "sleep", "1000")
	sp.Namespace = "ml"
	if _, err := s.Submit(t.Context(), job1, sp); err != nil {
		t.Fatal(err)
	}
	s.until(job1, 1)
	s.stop()
	h.stop()
	first := readShares(t, file)
	if len(first.Used) != 1 || first.Used[0].Namespace != "ml" || first.Used[0].Hours <= 0 {
		t.Fatalf("%+v", first)
	}
	j, shopJournal = j.Reopen(), shopJournal.Reopen()
	h, s = open()
	s.until(job1, 1)
	waittest.Until(t, "the task that ran on counts", func() bool {
		rec, err := h.Record(t.Context())
		return err == nil && !rec.Tasks.IsZero()
	})
	h.stop()
	if next := readShares(t, file); len(next.Used) != 1 || next.Used[0].Hours <= first.Used[0].Hours {
		t.Errorf("%+v, and after a restart %+v", first, next)
	}
}

// TestJobSaysThatOthersGoFirst: while a worker has said so of its namespace.
func TestJobSaysThatOthersGoFirst(t *testing.T) {
	file := filepath.Join(t.TempDir(), "shares.json")
	if err := os.WriteFile(file, []byte(`{"at":"2100-01-01T00:00:00Z","used":[{"namespace":"ml","hours":5}]}`),
		0o600); err != nil {
		t.Fatal(err)
	}
	h := openHostWith(t, fake.New(fake.Options{}), mem.New(), batch.RunnerOptions{Worker: "w1", Slots: 4,
		SharesFile: file})
	s := openShop(t, mem.New(), t.TempDir(), "boot", h)
	for i, namespace := range []string{"", "ml"} {
		sp := spec(100, "sleep", "1000")
		sp.Namespace = namespace
		if _, err := s.Submit(t.Context(), jobs.ID(uint64(i+1)), sp); err != nil {
			t.Fatal(err)
		}
	}
	h.run()
	waittest.Until(t, "the job says why it waits", func() bool {
		x, err := s.Status(t.Context(), jobs.ID(2))
		return err == nil && strings.Contains(x.Why, "namespace ml has had more than its share on 1 of 1 worker,")
	})
	r, err := s.JobReport(t.Context(), jobs.ID(2))
	if err != nil || len(r.Shares) != 1 || r.Shares[0].Hours < 4.9 || r.Shares[0].Due != 0.5 ||
		r.Shares[0].Order() <= 0 {
		t.Errorf("%+v, %v", r.Shares, err)
	}
	if first, err := s.Status(t.Context(), jobs.ID(1)); err != nil || first.Running != 2 {
		t.Errorf("%+v, %v", first, err)
	}
}
