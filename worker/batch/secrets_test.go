package batch_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/store/journal/mem"
	"github.com/soukhq/souk/worker/batch"
)

// TestTasksGetTheSecretsOfTheirJob: at their start, from the worker; while they have not arrived there the task is run
// again, and where they are gone it fails.
func TestTasksGetTheSecretsOfTheirJob(t *testing.T) {
	var late atomic.Int32
	late.Store(2)
	open := func(_ context.Context, app string, names []string, version uint64) (map[string]string, error) {
		switch {
		case slices.Contains(names, "GONE"):
			return nil, fault.New(fault.NotFound, fault.CodeSecret, "no secret GONE any more")
		case late.Add(-1) >= 0:
			return nil, fault.New(fault.Unavailable, fault.CodeSecret, "not here yet")
		}
		out := map[string]string{}
		for _, name := range names {
			out[name] = fmt.Sprintf("%s of %s at %d", name, app, version)
		}
		return out, nil
	}
	h, runs := openSeen(t, batch.RunnerOptions{Worker: "w1", Slots: 4, Secrets: open})
	s := openShop(t, mem.New(), t.TempDir(), "boot", h)
	h.run()
	sp := spec(1, "sleep", "1000")
	sp.Secrets = []machine.SecretRef{{Name: "KEY", EnvVar: "K"}, {Name: "LOW", EnvVar: "SOUK_INDEX"}}
	sp.SecretsVersion = 7
	if _, err := s.Submit(t.Context(), job1, sp); err != nil {
		t.Fatal(err)
	}
	s.until(job1, 1)
	j, err := s.Status(t.Context(), job1)
	if err != nil || j.Lost != 2 {
		t.Errorf("%d attempts were lost, %v", j.Lost, err)
	}
	if text := fmt.Sprintf("%+v", j); strings.Contains(text, "KEY of app") {
		t.Errorf("a value is told: %s", text)
	}
	if starts := runs.starts(); len(starts) != 1 || !slices.Contains(starts[0].Env, "K=KEY of app at 7") ||
		!slices.Contains(starts[0].Env, "SOUK_INDEX=1") {
		t.Errorf("started %+v", starts)
	}
	sp = spec(1, "true")
	sp.Secrets = []machine.SecretRef{{Name: "GONE", EnvVar: "GONE"}}
	j = s.submit(jobs.ID(2), sp)
	if j.State != jobs.Failed || j.FirstFail.ExitCode != 127 || !strings.Contains(j.FirstFail.Error, "GONE") {
		t.Errorf("%+v", j)
	}
}
