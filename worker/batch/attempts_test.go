package batch

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/store/disk/disktest"
	"github.com/soukhq/souk/store/journal"
)

// TestHalfWrittenAttemptsAreCutOff: lines that were written half are cut off before the next, so that none is glued to them and
// lost.
func TestHalfWrittenAttemptsAreCutOff(t *testing.T) {
	dir := t.TempDir()
	disktest.Mount(t, dir, "64k")
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 56<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	failures := 0
	write := func(write func() error) error {
		err := write()
		if err != nil {
			failures++
			if err := os.Remove(ballast); err != nil {
				return err
			}
			return write()
		}
		return nil
	}
	g, err := openAttemptLog(dir, write, func(string, int, int, cluster.WorkerID) {})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.rewriteFile(func(func(string, int, int, cluster.WorkerID)) {}); err != nil {
		t.Fatal(err)
	}
	const each = 100
	for n := range 10 {
		o := &jobs.Orders{Worker: "w1"}
		for i := range each {
			o.Grants = append(o.Grants, jobs.Grant{Life: jobs.Life{Job: "job", Index: n*each + i, Attempt: 1}})
		}
		if err := g.noteGrants([]*jobs.Orders{o}); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.close(); err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	if _, err := openAttemptLog(dir, write, func(job string, index, attempt int, _ cluster.WorkerID) {
		seen[fmt.Sprint(job, index, attempt)]++
	}); err != nil {
		t.Fatal(err)
	}
	if len(seen) != 10*each || failures != 1 {
		t.Errorf("%d attempts are known after %d failures, of %d", len(seen), failures, 10*each)
	}
}

// TestLaterAttemptsAreOnTheDisk: after a power loss the attempt of a task that was given out last may not be known, but the
// one before is: SkipAttempts skips one number.
func TestLaterAttemptsAreOnTheDisk(t *testing.T) {
	g, err := openAttemptLog(t.TempDir(), journal.Once, func(string, int, int, cluster.WorkerID) {})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.rewriteFile(func(func(string, int, int, cluster.WorkerID)) {}); err != nil {
		t.Fatal(err)
	}
	for attempt, want := range map[int]bool{1: false, 2: true, jobs.NewAttempt(3, 1): false} {
		o := &jobs.Orders{Worker: "w1", Grants: []jobs.Grant{{Life: jobs.Life{Job: "job", Attempt: attempt}}}}
		if err := g.noteGrants([]*jobs.Orders{o}); err != nil {
			t.Fatal(err)
		}
		if is := g.disk == g.size; is != want {
			t.Errorf("attempt %d is on the disk: %v, want %v", attempt, is, want)
		}
	}
	if err := g.close(); err != nil {
		t.Fatal(err)
	}
}
