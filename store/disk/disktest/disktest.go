// Package disktest provides small disks for tests to fill.
package disktest

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// Mount mounts a disk of a size ("1m", in tmpfs's form) over a directory until the test ends. If that is not possible,
// the test is skipped; in CI it fails.
func Mount(t testing.TB, dir, size string) {
	t.Helper()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size+",mode=700"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skipf("a small disk cannot be made: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}
