package wal_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/store/disk/disktest"
	"github.com/soukhq/souk/store/journal"
	"github.com/soukhq/souk/store/journal/bolt"
	"github.com/soukhq/souk/store/journal/journaltest"
	"github.com/soukhq/souk/store/journal/wal"
)

func TestMain(m *testing.M) {
	if !journaltest.Child(openSmall) {
		os.Exit(m.Run())
	}
}

func openSize(dir string, size int64) (journal.Journal, error) {
	path := filepath.Join(dir, "journal")
	inner, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		return nil, err
	}
	j, err := wal.Open(inner, path, wal.Options{Size: size})
	if err != nil {
		inner.Close()
		return nil, err
	}
	return j, nil
}

func open(dir string) (journal.Journal, error) { return openSize(dir, 256<<10) }

// openSmall makes logs of a few frames, so that they take turns all the time.
func openSmall(dir string) (journal.Journal, error) { return openSize(dir, 8<<10) }

func TestWALConformsToJournal(t *testing.T)      { journaltest.Run(t, open) }
func TestSmallWALConformsToJournal(t *testing.T) { journaltest.Run(t, openSmall) }

func TestCrashLosesNoCommit(t *testing.T) { journaltest.Crash(t, openSmall, 3) }

func TestLongCrashLosesNoCommit(t *testing.T) { journaltest.Crash(t, openSmall, 12) }

// crashed gives a directory as kill -9 leaves it after some commits, with the state that was acknowledged.
func crashed(t *testing.T, commits int, size int64) (dir string, want map[string]string) {
	t.Helper()
	live := t.TempDir()
	j, err := openSize(live, size)
	if err != nil {
		t.Fatal(err)
	}
	want = map[string]string{}
	for i := range commits {
		key, value := fmt.Sprintf("k%d", i%7), strings.Repeat(fmt.Sprintf("value %d ", i), 1+i%90)
		batch := []fsm.Record{{Bucket: "b", Key: key, Value: []byte(value)},
			{Bucket: "c", Key: "n", Value: []byte(fmt.Sprint(i))}}
		want["b/"+key], want["c/n"] = value, fmt.Sprint(i)
		if i%5 == 4 {
			batch = append(batch, fsm.Record{Bucket: "b", Key: "k0"})
			delete(want, "b/k0")
		}
		if err := j.Commit(batch); err != nil {
			t.Fatal(err)
		}
	}
	dir = t.TempDir() // a copy of the files, taken while the journal is open, is what a kill leaves
	copyAll(t, live, dir)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(live); len(left) != 1 {
		t.Errorf("a closed journal leaves %v", left)
	}
	return dir, want
}

func copyAll(t *testing.T, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, dir string, size int64) map[string]string {
	t.Helper()
	j, err := openSize(dir, size)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	return journaltest.Read(t, j)
}

func same(a, b map[string]string) bool { return fmt.Sprint(a) == fmt.Sprint(b) }

func TestReplayRestoresEveryCommit(t *testing.T) {
	for _, n := range []int{0, 1, 2, 40} {
		dir, want := crashed(t, n, 64<<10)
		if got := read(t, dir, 64<<10); !same(got, want) {
			t.Errorf("after %d commits there is %v, wanted %v", n, got, want)
		}
		if got := read(t, dir, 0); !same(got, want) { // closed, and of another size
			t.Errorf("opened again there is %v", got)
		}
	}
}

// usedLog gives the path and the content of the log that has frames.
func usedLog(t *testing.T, dir string) (string, []byte) {
	t.Helper()
	var path string
	var newest []byte
	for _, name := range []string{"journal.log-a", "journal.log-b"} {
		raw, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(raw, []byte("value")) && (newest == nil || bytes.Compare(raw[8:9], newest[8:9]) > 0) {
			// by generation
			path, newest = filepath.Join(dir, name), raw
		}
	}
	if newest == nil {
		t.Fatal("no log has frames")
	}
	return path, newest
}

func refused(t *testing.T, what, dir string, size int64) {
	t.Helper()
	j, err := openSize(dir, size)
	if err == nil {
		j.Close()
	}
	if e := fault.As(err); e == nil || e.Code != "journal_damaged" || !strings.Contains(e.Text, "restore") {
		t.Errorf("%s: %v", what, err)
	}
}

// TestFlippedBitsAreRefusedUnchanged flips bits all over the frames of a log: each is seen, and the files are left as they are.
func TestFlippedBitsAreRefusedUnchanged(t *testing.T) {
	const size = 16 << 10
	dir, _ := crashed(t, 12, size)
	path, raw := usedLog(t, dir)
	end := strings.LastIndex(string(raw), "value")
	for at := 0; at < end; at += 13 {
		bad := []byte(string(raw))
		bad[at] ^= 1 << (at % 8)
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		work := t.TempDir()
		copyAll(t, dir, work)
		refused(t, fmt.Sprint("bit at byte ", at), work, size)
		if t.Failed() {
			return
		}
	}
}

func TestLostLogFileIsRefused(t *testing.T) {
	const size = 16 << 10
	dir, _ := crashed(t, 6, size)
	path, raw := usedLog(t, dir)
	for name, spoil := range map[string]func(string) error{
		"missing": os.Remove,
		"short":   func(p string) error { return os.Truncate(p, 900) },
		"empty":   func(p string) error { return os.Truncate(p, 0) },
		"zeros":   func(p string) error { return os.WriteFile(p, make([]byte, len(raw)), 0o600) },
	} {
		work := t.TempDir()
		copyAll(t, dir, work)
		if err := spoil(filepath.Join(work, filepath.Base(path))); err != nil {
			t.Fatal(err)
		}
		refused(t, name, work, size)
	}
}

// TestTornLastFrameIsDropped loses sectors of the last frame, as a power cut may: all before it is there, and it is not.
func TestTornLastFrameIsDropped(t *testing.T) {
	const size = 64 << 10
	dir, want := crashed(t, 9, size)
	path, raw := usedLog(t, dir)
	j, err := openSize(dir, size) // one more commit, of many sectors
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	if err := j.Commit([]fsm.Record{{Bucket: "b", Key: "before", Value: []byte("value before")}}); err != nil {
		t.Fatal(err)
	}
	want["b/before"] = "value before"
	mark, err := os.ReadFile(filepath.Join(dir, "journal.mark")) // a write that was cut off was noted nowhere
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Commit([]fsm.Record{{Bucket: "b", Key: "torn",
		Value: []byte(strings.Repeat("value torn ", 500))}}); err != nil {
		t.Fatal(err)
	}
	path, raw = usedLog(t, dir)
	torn := strings.Index(string(raw), "value torn")
	first, last := torn/512, strings.LastIndex(string(raw), "value torn")/512
	for round := range 200 {
		bad, lost := []byte(string(raw)), 0
		random := rand.New(rand.NewPCG(7, uint64(round)))
		for s := first; s <= last; s++ {
			if random.IntN(2) == 0 {
				from := s * 512
				if s == first {
					from = (torn - 20) &^ 31 // the frame before it is older, and durable
				}
				clear(bad[max(from, torn-64) : (s+1)*512])
				lost++
			}
		}
		if lost == 0 {
			continue
		}
		work := t.TempDir()
		copyAll(t, dir, work)
		if err := errors.Join(os.WriteFile(filepath.Join(work, filepath.Base(path)), bad, 0o600),
			os.WriteFile(filepath.Join(work, "journal.mark"), mark, 0o600)); err != nil {
			t.Fatal(err)
		}
		if got := read(t, work, size); !same(got, want) {
			t.Fatalf("round %d: there is %d records, wanted %d", round, len(got), len(want))
		}
	}
}

// TestRestoredOldLogIsRefused puts a log of before back: it is of a generation that the journal no longer waits for, or has gone on
// from.
func TestRestoredOldLogIsRefused(t *testing.T) {
	const size = 8 << 10
	dir, _ := crashed(t, 4, size)
	_, raw := usedLog(t, dir)
	later, _ := crashed(t, 300, size)
	path, _ := usedLog(t, later)
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, "a log of before", later, size)
}

// TestZeroedFramesAreRefused writes zeros over a stretch of the log in use, from anywhere to anywhere, after kill -9: frames that
// were promised are gone, so it is refused, also where they were the last.
func TestZeroedFramesAreRefused(t *testing.T) {
	const size = 64 << 10
	dir, _ := crashed(t, 24, size)
	path, raw := usedLog(t, dir)
	end := bytes.LastIndex(raw, []byte("value"))
	for from := 512; from < end-512; from += 1024 {
		for _, to := range []int{from + 512, from + 4096, len(raw)} {
			bad := bytes.Clone(raw)
			clear(bad[from:min(to, len(raw))])
			work := t.TempDir()
			copyAll(t, dir, work)
			if err := os.WriteFile(filepath.Join(work, filepath.Base(path)), bad, 0o600); err != nil {
				t.Fatal(err)
			}
			refused(t, fmt.Sprintf("zeros from byte %d to %d of %d", from, to, end), work, size)
		}
	}
}

// TestLogsWithoutJournalAreRefused takes the journal away from its logs: a new one must not begin beside them.
func TestLogsWithoutJournalAreRefused(t *testing.T) {
	const size = 64 << 10
	for _, commits := range []int{1, 24, 200} {
		dir, want := crashed(t, commits, size)
		path := filepath.Join(dir, "journal")
		if err := os.Rename(path, path+".away"); err != nil {
			t.Fatal(err)
		}
		refused(t, "the journal gone", dir, size)
		if err := os.Rename(path+".away", path); err != nil {
			t.Fatal(err)
		}
		if got := read(t, dir, size); !same(got, want) {
			t.Errorf("put back, there is %v, wanted %v", got, want)
		}
	}
}

// TestOlderJournalBesideNewerLogsIsRefused puts a journal of before beside logs that went on.
func TestOlderJournalBesideNewerLogsIsRefused(t *testing.T) {
	const size = 8 << 10
	old, _ := crashed(t, 4, size)
	later, _ := crashed(t, 300, size)
	raw, err := os.ReadFile(filepath.Join(old, "journal"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(later, "journal"), raw, 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, "a journal of before", later, size)
}

// TestFullDiskLosesNoAcknowledgedCommit commits on a disk that is full, and that has a page more each time a write has failed: nothing of it is
// seen, and all is there afterwards. Where the write is not done again, what was acknowledged before is.
func TestFullDiskLosesNoAcknowledgedCommit(t *testing.T) {
	for _, patient := range []bool{true, false} {
		t.Run(fmt.Sprint("patient ", patient), func(t *testing.T) {
			dir := t.TempDir()
			disktest.Mount(t, dir, "2m")
			onFullDisk(t, dir, patient)
		})
	}
}

func onFullDisk(t *testing.T, dir string, patient bool) {
	t.Helper()
	ballast, failures := filepath.Join(dir, "ballast"), 0
	left := int64(0)
	write := func(write func() error) error {
		err := write()
		for patient && errors.Is(err, unix.ENOSPC) {
			failures++
			left -= 4096
			if err := os.Truncate(ballast, left); err != nil {
				return err
			}
			err = write()
		}
		return err
	}
	path := filepath.Join(dir, "journal")
	inner, err := bolt.Open(path, bolt.Options{Write: write})
	if err != nil {
		t.Fatal(err)
	}
	j, err := wal.Open(inner, path, wal.Options{Size: 16 << 10, Write: write})
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(ballast)
	for err == nil {
		var n int
		n, err = f.Write(make([]byte, 4096))
		left += int64(n)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for i := range 300 {
		key, value := fmt.Sprint("k", i), strings.Repeat(fmt.Sprint("value ", i, " "), 40)
		if err = j.Commit([]fsm.Record{{Bucket: "b", Key: key, Value: []byte(value)}}); err != nil {
			break
		}
		want["b/"+key] = value
	}
	closed := j.Close()
	if patient && (err != nil || closed != nil || failures == 0) {
		t.Errorf("a commit: %v; the end: %v; %d writes have failed", err, closed, failures)
	} else if !patient && fault.CodeOf(err) != "journal_write" {
		t.Errorf("a commit on a full disk that is not repeated: %v", err)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	got := read(t, dir, 16<<10)
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%s was acknowledged and is %.20q", k, got[k])
		}
	}
}
