package reaper

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/soukhq/souk/runtime/reaper/cgroup"
)

// TestKillReadsPausedUnderTheLock: a machine may be suspended or resumed while it is killed. The race detector
// finds a read of the life's record outside of the lock.
func TestKillReadsPausedUnderTheLock(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "s1"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "s1", "cgroup.events"), []byte("populated 0\nfrozen 0\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	tree := &cgroup.Tree{V2: dir}
	r := &Reaper{tree: tree}
	l := &life{m: &machine{id: "m1"}, child: true, rec: lifeRecord{PID: 1 << 30}} // no such group of processes
	l.slot.group = tree.Group("s1")
	var wg sync.WaitGroup
	wg.Go(func() {
		for k := range 2000 {
			r.mu.Lock()
			l.rec.Paused = k%2 == 0
			r.mu.Unlock()
		}
	})
	for range 200 {
		if !r.killMain(t.Context(), l) {
			t.Fatal("the group is empty, and was not seen to be")
		}
	}
	wg.Wait()
}
