package stalls

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/internal/wait/waittest"
)

// TestStalledReaperIsReported: while the reaper does not answer, souk is not ready and an examination says why, soon; afterwards
// both are well again.
func TestStalledReaperIsReported(t *testing.T) {
	t.Parallel()
	s := start(t, 1)
	get := func(path string, into any) int {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.addr+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := (&http.Client{Timeout: time.Minute}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if into != nil {
			if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
				t.Fatal(err)
			}
		}
		return resp.StatusCode
	}
	until := func(code int) {
		t.Helper()
		waittest.See(t, fmt.Sprintf("/readyz is %d", code), func() int { return get("/readyz", nil) },
			func(got int) bool { return got == code })
	}
	answers := func() bool {
		t.Helper()
		var e api.Examinations
		if code := get("/v1/souk/doctor", &e); code != http.StatusOK || len(e.Workers) != 1 {
			t.Fatalf("%d, %+v", code, e)
		}
		i := slices.IndexFunc(e.Workers[0].Findings,
			func(f cluster.Finding) bool { return f.Name == "worker: its runtime answers" })
		if i < 0 {
			t.Fatalf("nothing is said of it: %+v", e.Workers[0].Findings)
		}
		return e.Workers[0].Findings[i].OK
	}
	until(http.StatusOK)
	if !answers() {
		t.Error("an examination finds fault with a runtime that answers")
	}
	reaper := s.reaper()
	if err := syscall.Kill(reaper, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(reaper, syscall.SIGCONT) }()
	until(http.StatusServiceUnavailable)
	if answers() {
		t.Error("an examination finds no fault with a runtime that does not answer")
	}
	if err := syscall.Kill(reaper, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	until(http.StatusOK)
	if !answers() {
		t.Error("an examination finds fault with a runtime that answers again")
	}
}
