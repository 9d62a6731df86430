package reaper

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/soukhq/souk/runtime/reaper/output"
)

// stocked gives a stock that lacks nothing, in a directory of their own.
func stocked(t *testing.T) *stock {
	t.Helper()
	s, err := openStock(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s.fillStock()
	t.Cleanup(func() {
		for _, p := range s.pairs {
			p.closeEnds()
			for _, one := range p {
				_ = one.s.file.Close()
			}
		}
	})
	if len(s.dirs) != minStock || len(s.pairs) != minStock || s.making {
		t.Fatalf("there are %d directories and %d pairs, want %d", len(s.dirs), len(s.pairs), minStock)
	}
	return s
}

// TestDirectoryStockReplacesNothing: machines get directories that were made before, then new ones, all alike, and none that is
// there is replaced: a machine may work in it.
func TestDirectoryStockReplacesNothing(t *testing.T) {
	s := stocked(t)
	for _, id := range []string{"a", "b", "c", "d", "e", "f"} {
		if _, err := s.makeMachineDir(id); err != nil {
			t.Fatal(err)
		}
		st, err := os.Lstat(filepath.Join(s.dir.Name(), id))
		if err != nil || !st.IsDir() || st.Mode().Perm() != 0o700&^umask() {
			t.Fatalf("the directory of %s is %v, %v", id, st, err)
		}
	}
	if len(s.dirs) != 0 {
		t.Errorf("%d unused directories are left", len(s.dirs))
	}
	s.fillStock()
	at := filepath.Join(s.dir.Name(), "a")
	before, err := os.Stat(at)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.makeMachineDir("a"); err != nil {
		t.Fatal(err)
	}
	after, err := os.Stat(at)
	if err != nil || !os.SameFile(before, after) {
		t.Errorf("the empty directory of a machine was replaced (%v)", err)
	}
}

func umask() os.FileMode {
	m := syscall.Umask(0)
	syscall.Umask(m)
	return os.FileMode(m)
}

// TestOldDirectoryStockIsRemoved: what a reaper that was killed has left is removed, and what one that ends has made. Machines'
// directories are not.
func TestOldDirectoryStockIsRemoved(t *testing.T) {
	old := stocked(t)
	if _, err := old.makeMachineDir("a"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(old.dir.Name(), "a", "kept"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	young, err := openStock(old.dir.Name())
	if err != nil {
		t.Fatal(err)
	}
	onlyA(t, old.dir.Name())
	young.fillStock()
	young.close()
	young.fillStock() // that was asked for before
	onlyA(t, old.dir.Name())
	if _, err := os.Stat(filepath.Join(old.dir.Name(), "a", "kept")); err != nil {
		t.Error(err)
	}
	if CheckID(filepath.Base(stockPrefix+"1")) == nil {
		t.Error("an unused directory could be taken for a machine")
	}
}

// TestStockLeavesAnotherReapersDirectory: a stock whose directory was removed and recreated for another reaper leaves
// that directory alone.
func TestStockLeavesAnotherReapersDirectory(t *testing.T) {
	first := stocked(t)
	dir := first.dir.Name()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	second, err := openStock(dir)
	if err != nil {
		t.Fatal(err)
	}
	second.fillStock()
	if _, err := first.makeDir(stockPrefix + "9"); err == nil {
		t.Error("a directory was made in another's place")
	}
	first.close()
	if es, err := os.ReadDir(dir); err != nil || len(es) != minStock {
		t.Errorf("of the other's %d directories are left %v, %v", minStock, es, err)
	}
	second.close()
}

func onlyA(t *testing.T, dir string) {
	t.Helper()
	es, err := os.ReadDir(dir)
	if err != nil || len(es) != 1 || es[0].Name() != "a" {
		t.Errorf("there is %v, %v; want the machine's directory alone", es, err)
	}
}

// TestPipeStockCarriesOutput: a pair that was made beforehand, and one that was not, take what is written to their ends.
func TestPipeStockCarriesOutput(t *testing.T) {
	s := stocked(t)
	for range minStock + 1 {
		p, err := s.takePipes()
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(t.TempDir(), "log")
		log := output.Open(dir, 1<<20, 2, func() {})
		var pumps pumps
		streams := p.openStreams(log.Sink)
		pumps.expectPumps(len(streams))
		for i, name := range streamNames {
			if _, err := syscall.Write(p[i].end, []byte("on "+name+"\n")); err != nil {
				t.Fatal(err)
			}
		}
		p.closeEnds() // before the pumps: what was written is there all the same
		for _, one := range streams {
			pumps.runPump(one)
		}
		select {
		case <-pumps.whenRested():
		case <-time.After(time.Minute):
			t.Fatal("a pipe whose ends are closed has no end")
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
		raw, err := os.ReadFile(filepath.Join(dir, "00000001.log"))
		if err != nil || !strings.Contains(string(raw), " stdout F on stdout\n") ||
			!strings.Contains(string(raw), " stderr F on stderr\n") {
			t.Errorf("the log has %q, %v", raw, err)
		}
	}
}

// TestEarlyExitWaitsForItsOutput: the end of a life that is shorter than its start waits for its output.
func TestEarlyExitWaitsForItsOutput(t *testing.T) {
	var p pumps
	p.expectPumps(1)
	select {
	case <-p.whenRested():
		t.Error("a pump that is to run is not waited for")
	default:
	}
}
