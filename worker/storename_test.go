package worker

import (
	"os"
	"path/filepath"
	"testing"
)

// TestStoreNameIsPerDirectoryAndBoot: a directory has one name by whatever path, and another that takes its path has another name, as hosts
// that share a kernel have directories of one path.
func TestStoreNameIsPerDirectoryAndBoot(t *testing.T) {
	dir := t.TempDir()
	at, link := filepath.Join(dir, "images"), filepath.Join(dir, "link")
	if err := os.Mkdir(at, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(at, link); err != nil {
		t.Fatal(err)
	}
	name := storeName("boot", at)
	if storeName("boot", link) != name {
		t.Error("one directory has two names")
	}
	if storeName("another boot", at) == name {
		t.Error("directories of two hosts have one name")
	}
	if err := os.Rename(at, filepath.Join(dir, "other")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(at, 0o700); err != nil {
		t.Fatal(err)
	}
	if storeName("boot", at) == name {
		t.Error("two directories of one path have one name")
	}
	if a, b := storeName("boot", "nowhere/1"), storeName("boot", "nowhere/2"); a == b {
		t.Error("two paths have one name")
	}
}
