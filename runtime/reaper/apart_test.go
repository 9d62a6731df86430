package reaper

import (
	"os"
	"path/filepath"
	"testing"
)

// TestMakeApartIsPrivateAndRepeatable: the directory is there once, for this user only, with what it held, and nothing is left beside it,
// also after a reaper that was killed before it had given the directory its name.
func TestMakeApartIsPrivateAndRepeatable(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "machines")
	if err := os.Mkdir(filepath.Join(parent, "machines.new-1234"), 0o700); err != nil { // killed there
		t.Fatal(err)
	}
	for range 2 {
		if err := makeApart(dir); err != nil {
			t.Fatal(err)
		}
		st, err := os.Lstat(dir)
		if err != nil || !st.IsDir() || st.Mode().Perm() != 0o700 {
			t.Fatalf("it is %v, %v; want a directory for this user only", st, err)
		}
		if err := os.MkdirAll(filepath.Join(dir, "m1"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "m1")); err != nil {
		t.Error("what it held is gone")
	}
	es, err := os.ReadDir(parent)
	if err != nil || len(es) != 1 {
		t.Errorf("beside it there is %v, %v", es, err)
	}
}

// TestMakeApartKeepsNonEmptyDirectories: what looks like a leftover and is none is not deleted.
func TestMakeApartKeepsNonEmptyDirectories(t *testing.T) {
	parent := t.TempDir()
	file := filepath.Join(parent, "machines.new-1234", "kept")
	if err := os.MkdirAll(file, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := makeApart(filepath.Join(parent, "machines")); err == nil {
		t.Error("a directory that holds something was taken for a leftover")
	}
	if _, err := os.Stat(file); err != nil {
		t.Error("what a directory held is gone")
	}
}
