package disk_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/store/disk"
	"github.com/soukhq/souk/store/disk/disktest"
)

// smallDisk returns a directory with a disk of its own, of 128 MiB.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	disktest.Mount(t, dir, "128m")
	return dir
}

// take has a file take bytes of the disk, or all that there are.
func take(t *testing.T, path string, n int) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 1 << 20; n > 0 && size > 0; {
		wrote, err := f.Write(make([]byte, min(size, n)))
		n -= wrote
		if disk.IsFull(err) {
			size /= 2
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// TestWriteOnAFullDiskUsesTheReserve: a write that finds no free byte gets a piece of the reserve, and no more than it needs; when
// the reserve is used up it waits until somebody makes room, and fails when nobody looks for that any more.
func TestWriteOnAFullDiskUsesTheReserve(t *testing.T) {
	dir := smallDisk(t)
	r := disk.Open(dir, slog.New(slog.DiscardHandler))
	if err := r.Full(); err != nil {
		t.Fatal(err)
	}
	ballast := filepath.Join(dir, "ballast")
	take(t, ballast, 1<<30)
	write := func(name string, n int) error {
		return r.Write(func() error { return os.WriteFile(filepath.Join(dir, name), make([]byte, n), 0o600) })
	}
	if err := write("one", 100); err != nil {
		t.Error(err)
	}
	if err := r.Full(); !fault.Is(err, fault.Exhausted) || fault.CodeOf(err) != "disk_full" {
		t.Errorf("nothing new is to be taken: %v", err)
	}
	if info, err := os.Stat(filepath.Join(dir, "reserve")); err != nil || info.Size() != disk.Bytes-1<<20 {
		t.Errorf("the reserve is %+v, %v; want one piece less", info, err)
	}
	if err := write("large", disk.Bytes+1<<20); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("a write that is larger than all there is, and nobody looks for room: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { r.Keep(ctx); close(ended) }()
	wrote := make(chan error, 1)
	go func() { wrote <- write("large", disk.Bytes+2<<20) }()
	if err := os.Truncate(ballast, 0); err != nil {
		t.Fatal(err)
	}
	if err := <-wrote; err != nil {
		t.Errorf("a write that waited for room: %v", err)
	}
	waittest.Succeed(t, "new work is taken, as there is room", r.Full)
	if info, err := os.Stat(filepath.Join(dir, "reserve")); err != nil || info.Size() != disk.Bytes {
		t.Errorf("the reserve is %+v, %v; want all of it", info, err)
	}
	cancel()
	<-ended
}

// TestDiskIsFullBeforeTheReserve: nothing new is taken when little is left beside the reserve, which stays whole.
func TestDiskIsFullBeforeTheReserve(t *testing.T) {
	dir := smallDisk(t)
	disk.Open(dir, slog.New(slog.DiscardHandler))
	take(t, filepath.Join(dir, "ballast"), 90<<20)
	r := disk.Open(dir, slog.New(slog.DiscardHandler))
	if err := r.Full(); fault.CodeOf(err) != "disk_full" {
		t.Errorf("6 MiB are left: %v", err)
	}
	if info, err := os.Stat(filepath.Join(dir, "reserve")); err != nil || info.Size() != disk.Bytes {
		t.Errorf("the reserve is %+v, %v; want all of it", info, err)
	}
}

// TestDiskWithoutReserveIsNeverFull: a process that keeps none writes once, and is never full.
func TestDiskWithoutReserveIsNeverFull(t *testing.T) {
	var r *disk.Reserve
	n := 0
	if err := r.Write(func() error { n++; return unix.ENOSPC }); !disk.IsFull(err) || n != 1 || r.Full() != nil {
		t.Errorf("%v after %d writes, %v", err, n, r.Full())
	}
}
