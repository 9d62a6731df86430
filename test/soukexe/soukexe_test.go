package soukexe_test

import (
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/soukhq/souk/test/soukexe"
)

// TestSoukIsBuiltOnce: tests that ask at once, and later, get the same file, which runs.
func TestSoukIsBuiltOnce(t *testing.T) {
	t.Parallel()
	first, err := soukexe.Path(false)
	if err != nil {
		t.Fatal(err)
	}
	was, err := os.Stat(first)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			exe, err := soukexe.Path(false)
			if err != nil {
				t.Error(err)
				return
			}
			if is, err := os.Stat(exe); err != nil || !os.SameFile(was, is) {
				t.Errorf("%s is another file: %v", exe, err)
			}
		})
	}
	all.Wait()
	if out, err := exec.Command(first, "--version").CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
