package loopfs_test

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/needs"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/runtime/loopfs"
)

// TestMain is, with these variables, the process that is killed while it copies.
func TestMain(m *testing.M) {
	if from := os.Getenv("LOOPFS_COPY"); from != "" {
		_ = loopfs.Copy(context.Background(), from, from+".copy")
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func able(t *testing.T) {
	t.Helper()
	if err := loopfs.Able(); err != nil {
		needs.Skip(t, err)
	}
	needs.Programs(t, "e2fsck")
}

const mib = 1 << 20

// devices lists the loop devices of files below a directory.
func devices(t *testing.T, dir string) (out []string) {
	t.Helper()
	all, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if b, err := os.ReadFile(f); err == nil && strings.Contains(string(b), dir) {
			out = append(out, f)
		}
	}
	return out
}

func gone(t *testing.T, dir string) {
	t.Helper()
	waittest.See(t, "no device is left", func() []string { return devices(t, dir) },
		func(left []string) bool { return len(left) == 0 })
}

func mounted(t *testing.T, file string) *loopfs.Mounted {
	t.Helper()
	m, err := loopfs.Mount(file)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func end(t *testing.T, m *loopfs.Mounted) {
	t.Helper()
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}

func room(t *testing.T, m *loopfs.Mounted) int64 {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(m.Dir(), &st); err != nil {
		t.Fatal(err)
	}
	return int64(st.Blocks) * st.Bsize / mib
}

func TestLoopFileSystemKeepsItsSizeAndGrows(t *testing.T) {
	able(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "v.img")
	if err := loopfs.Make(t.Context(), file, 64*mib); err != nil {
		t.Fatal(err)
	}
	gone(t, dir)
	if err := loopfs.Make(t.Context(), filepath.Join(dir, "w"), mib); !fault.Is(err, fault.Invalid) {
		t.Errorf("one of 1 MiB: %v", err)
	}
	var st unix.Stat_t
	if err := unix.Stat(file, &st); err != nil || st.Size != 64*mib || st.Blocks*512 < 64*mib {
		t.Errorf("the file has %d bytes, and %d of the disk: %v", st.Size, st.Blocks*512, err)
	}
	m := mounted(t, file)
	if es, err := os.ReadDir(m.Dir()); err != nil || len(es) > 0 {
		t.Errorf("it has %v, %v", es, err)
	}
	f, err := os.Create(m.Dir() + "/all")
	if err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(f, endless{})
	if !errors.Is(err, unix.ENOSPC) || n < 40*mib || n > 64*mib {
		t.Errorf("of 64 MiB %d bytes could be written: %v", n, err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	other := mounted(t, file) // the same file system, not another one in the same file
	if st, err := os.Stat(other.Dir() + "/all"); err != nil || st.Size() != n {
		t.Errorf("mounted twice it shows %v, %v", st, err)
	}
	if len(devices(t, dir)) != 1 {
		t.Errorf("it has the devices %q", devices(t, dir))
	}
	end(t, other)

	before := room(t, m)
	pending, err := loopfs.Grow(t.Context(), file, 64*mib, 192*mib)
	if err != nil {
		t.Fatal(err)
	}
	if got := room(t, m); pending != (got == before) {
		t.Errorf("it grew from %d to %d MiB while it is mounted, and is said to be pending: %v", before, got, pending)
	}
	end(t, m)
	if err := loopfs.Settle(t.Context(), file); err != nil {
		t.Fatal(err)
	}
	m = mounted(t, file)
	if got := room(t, m); got < before+100 {
		t.Errorf("it has %d MiB, and had %d of 64", got, before)
	}
	if st, err := os.Stat(m.Dir() + "/all"); err != nil || st.Size() != n {
		t.Errorf("what was in it is %v, %v", st, err)
	}
	end(t, m)
	if pending, err := loopfs.Grow(t.Context(), file, 192*mib, 256*mib); err != nil || pending {
		t.Errorf("it grew while nobody had it: %v, %v", pending, err)
	}
	gone(t, dir)
}

// TestGrownEmptyFileSystemHasNoLostAndFound: e2fsck's directory is not left in one that has nothing in it. What e2fsck found stays.
func TestGrownEmptyFileSystemHasNoLostAndFound(t *testing.T) {
	able(t)
	file := filepath.Join(t.TempDir(), "v.img")
	if err := loopfs.Make(t.Context(), file, 16*mib); err != nil {
		t.Fatal(err)
	}
	grow := func(size int64) *loopfs.Mounted {
		t.Helper()
		if err := errors.Join(os.Truncate(file, size), loopfs.Settle(t.Context(), file)); err != nil {
			t.Fatal(err)
		}
		return mounted(t, file)
	}
	m := grow(32 * mib)
	if es, err := os.ReadDir(m.Dir()); err != nil || len(es) > 0 {
		t.Errorf("it has %v, %v", es, err)
	}
	found := filepath.Join(m.Dir(), "lost+found", "#12")
	if err := errors.Join(os.Mkdir(filepath.Dir(found), 0o700), os.WriteFile(found, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	end(t, m)
	m = grow(48 * mib)
	if _, err := os.Stat(filepath.Join(m.Dir(), "lost+found", "#12")); err != nil {
		t.Error(err)
	}
	end(t, m)
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// TestCopyIsASnapshotOfARunningVolume: a copy has what was there at one moment, and what it is copied from goes on.
func TestCopyIsASnapshotOfARunningVolume(t *testing.T) {
	able(t)
	dir := t.TempDir()
	file, to := filepath.Join(dir, "v.img"), filepath.Join(dir, "copy.img")
	if err := loopfs.Make(t.Context(), file, 64*mib); err != nil {
		t.Fatal(err)
	}
	m := mounted(t, file)
	ctx, stop := context.WithCancel(t.Context())
	var writer sync.WaitGroup
	begun := make(chan struct{})
	writer.Go(func() { // each file is whole, or not there
		for i := 0; ctx.Err() == nil; i++ {
			if err := os.WriteFile(m.Dir()+"/part", make([]byte, 100_000), 0o600); err != nil {
				t.Error(err)
			}
			if err := os.Rename(m.Dir()+"/part", m.Dir()+"/whole"); err != nil {
				t.Error(err)
			}
			if i == 3 {
				close(begun)
			}
		}
	})
	<-begun
	var second sync.WaitGroup // at once: neither has it go on before the other is done
	second.Go(func() {
		if err := loopfs.Copy(t.Context(), file, to+"2"); err != nil {
			t.Error(err)
		}
	})
	if err := loopfs.Copy(t.Context(), file, to); err != nil {
		t.Error(err)
	}
	second.Wait()
	stop()
	writer.Wait()
	c := mounted(t, to)
	if st, err := os.Stat(c.Dir() + "/whole"); err != nil || st.Size() != 100_000 {
		t.Errorf("the copy has %v, %v", st, err)
	}
	end(t, c)
	end(t, m)
	gone(t, dir)
	sound(t, to)
	sound(t, to+"2")
	if _, err := loopfs.Grow(t.Context(), to, 64*mib, 64*mib); err != nil {
		t.Fatal(err)
	}
	if got := taken(t, to); got < 64*mib {
		t.Errorf("a copy that is to be used takes %d bytes of the disk, not its size", got)
	}
	sound(t, to)
	gone(t, dir)
}

// sound checks a file system that nobody uses.
func sound(t *testing.T, file string) {
	t.Helper()
	if out, err := exec.Command("e2fsck", "-f", "-n", file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// taken returns what a file takes of the disk.
func taken(t *testing.T, file string) int64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(file, &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks * 512
}

// TestGrowthWithoutRoomChangesNothing: where the disk is too small for what a file system is to have, it stays as it is, and so
// does the disk.
func TestGrowthWithoutRoomChangesNothing(t *testing.T) {
	able(t)
	dir := t.TempDir()
	disk := filepath.Join(dir, "disk.img")
	if err := loopfs.Make(t.Context(), disk, 128*mib); err != nil {
		t.Fatal(err)
	}
	m := mounted(t, disk)
	at := strings.Replace(m.Dir(), "self", strconv.Itoa(os.Getpid()), 1) // for other processes too
	file := at + "/v.img"
	if err := loopfs.Make(t.Context(), file, 32*mib); err != nil {
		t.Fatal(err)
	}
	free := func() uint64 {
		var st unix.Statfs_t
		if err := unix.Statfs(m.Dir(), &st); err != nil {
			t.Fatal(err)
		}
		return st.Bfree
	}
	before := free()
	if _, err := loopfs.Grow(t.Context(), file, 32*mib, 512*mib); !fault.Is(err, fault.Exhausted) {
		t.Errorf("it grew to more than its disk has: %v", err)
	}
	if st, err := os.Stat(file); err != nil || st.Size() != 32*mib || free() != before {
		t.Errorf("it has %d bytes, and the disk %d blocks less: %v", st.Size(), before-free(), err)
	}
	if err := loopfs.Copy(t.Context(), file, at+"/copy"); err != nil {
		t.Fatal(err)
	}
	if _, err := loopfs.Grow(t.Context(), at+"/copy", 32*mib, 512*mib); !fault.Is(err, fault.Exhausted) {
		t.Errorf("a copy: %v", err)
	}
	sound(t, file)
	if err := os.Remove(at + "/copy"); err != nil {
		t.Error(err)
	}
	pending, err := loopfs.Grow(t.Context(), file, 32*mib, 64*mib) // where there is room it still does
	if err != nil || pending {
		t.Errorf("%v, %v", pending, err)
	}
	gone(t, "v.img")
	end(t, m)
	gone(t, dir)
}

// TestCopyReadsOnlyWrittenBlocks: a copy takes as long as what was written, however large the volume is, and whoever has
// read in it.
func TestCopyReadsOnlyWrittenBlocks(t *testing.T) {
	able(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "v.img")
	if err := loopfs.Make(t.Context(), file, 512*mib); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := io.Copy(io.Discard, f); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		if err := loopfs.Copy(t.Context(), file, filepath.Join(dir, strconv.Itoa(i))); err != nil {
			t.Fatal(err)
		}
		if n := known(t, f); n > 64*mib {
			t.Errorf("after copy %d of a volume in which is nothing %d MiB of it have been read", i+1, n/mib)
		}
	}
	gone(t, dir)
}

// known returns how much of a file is written, or in the page cache.
func known(t *testing.T, f *os.File) (sum int64) {
	t.Helper()
	for at := int64(0); ; {
		begin, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return sum
		}
		if err == nil {
			at, err = unix.Seek(int(f.Fd()), begin, unix.SEEK_HOLE)
		}
		if err != nil {
			t.Fatal(err)
		}
		sum += at - begin
	}
}

// TestKilledCopyUnfreezesItsSource: what is copied goes on, whenever that is.
func TestKilledCopyUnfreezesItsSource(t *testing.T) {
	able(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "v.img")
	if err := loopfs.Make(t.Context(), file, 64*mib); err != nil {
		t.Fatal(err)
	}
	m := mounted(t, file)
	for wait := time.Duration(0); wait < 40*time.Millisecond; wait += 2 * time.Millisecond {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "LOOPFS_COPY="+file)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(wait, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait() // it was killed, or was faster
		written := make(chan error, 1)
		go func() { written <- os.WriteFile(m.Dir()+"/x", []byte("x"), 0o600) }()
		select {
		case err := <-written:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(waittest.Patience):
			t.Fatal("the file system stays frozen")
		}
		to := file + ".copy"
		if err := loopfs.Copy(t.Context(), file, to); err != nil { // nobody else writes into it any more
			t.Fatal(err)
		}
		sound(t, to)
	}
	end(t, m)
	gone(t, dir)
}
