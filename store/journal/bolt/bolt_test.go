package bolt_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	"go.uber.org/goleak"

	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/store/journal"
	"github.com/soukhq/souk/store/journal/bolt"
	"github.com/soukhq/souk/store/journal/journaltest"
)

func TestMain(m *testing.M) {
	if journaltest.Child(open) {
		return
	}
	goleak.VerifyTestMain(m)
}

func open(dir string) (journal.Journal, error) {
	return bolt.Open(filepath.Join(dir, "journal"), bolt.Options{})
}

func TestBoltConformsToJournal(t *testing.T) { journaltest.Run(t, open) }

func TestCrashLosesNoCommit(t *testing.T) { journaltest.Crash(t, open, 3) }

func TestLongCrashLosesNoCommit(t *testing.T) { journaltest.Crash(t, open, 12) }

// filled makes a journal with small and large records and gives its path.
func filled(t testing.TB, records, size int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "journal")
	j, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for from := 0; from < records; from += 5000 {
		var batch []fsm.Record
		for i := from; i < min(records, from+5000); i++ {
			batch = append(batch, fsm.Record{Bucket: fmt.Sprint("bucket", i%3), Key: fmt.Sprintf("key-%07d", i),
				Value: []byte(strings.Repeat("v", size))})
		}
		if err := j.Commit(batch); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestSecondOpenIsRefused(t *testing.T) {
	path := filled(t, 1, 1)
	j, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = bolt.Open(path, bolt.Options{LockTimeout: 30 * time.Millisecond})
	if !fault.Is(err, fault.Conflict) || !strings.Contains(fmt.Sprint(err), "another souk uses this directory") {
		t.Errorf("second open: %v", err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j, err = bolt.Open(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestForeignFilesAreRefusedUnchanged(t *testing.T) {
	whole, err := os.ReadFile(filled(t, 500, 300))
	if err != nil {
		t.Fatal(err)
	}
	used := len(strings.TrimRight(string(whole), "\x00"))
	foreign := filepath.Join(t.TempDir(), "foreign")
	db, err := bbolt.Open(foreign, 0o600, &bbolt.Options{NoFreelistSync: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Update(func(tx *bbolt.Tx) error { _, err := tx.CreateBucket([]byte("b")); return err }),
		db.Close()); err != nil {
		t.Fatal(err)
	}
	other, err := os.ReadFile(foreign)
	if err != nil {
		t.Fatal(err)
	}
	flip := func(at int) []byte {
		b := append([]byte{}, whole...)
		b[at] ^= 0x10
		return b
	}
	for name, content := range map[string][]byte{
		"empty":                 {},
		"one byte":              {1},
		"text":                  []byte(strings.Repeat("this is a file of notes\n", 2000)),
		"zeros":                 make([]byte, 1<<16),
		"another bbolt file":    other,
		"cut in the first meta": whole[:40],
		"cut behind the metas":  whole[:8192],
		"cut in the middle":     whole[:used/2],
		"cut at the end":        whole[:used-4096],
		"first meta flipped":    flip(16 + 48),
		"second meta flipped":   flip(4096 + 16 + 48),
		"a value flipped":       flip(strings.Index(string(whole), "vvvvvvvvvvvv")),
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "journal")
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
			j, err := bolt.Open(path, bolt.Options{})
			if err == nil {
				t.Fatal(errors.Join(errors.New("it was opened"), j.Close()))
			}
			e := fault.As(err)
			if e.Kind != fault.Internal || e.Code != "journal_damaged" ||
				!strings.Contains(e.Text, "restore it from a backup") {
				t.Errorf("%s %s: %v", e.Kind, e.Code, err)
			}
			t.Log(err)
			if after, err := os.ReadFile(path); err != nil || string(after) != string(content) {
				t.Errorf("the file was changed: %v", err)
			}
		})
	}
}

func TestInvalidPathsAreRefused(t *testing.T) {
	dir := t.TempDir()
	for name, path := range map[string]string{"a directory": dir, "in a directory that is not there": filepath.Join(dir,
		"no", "journal")} {
		_, err := bolt.Open(path, bolt.Options{})
		if !fault.Is(err, fault.Internal) {
			t.Errorf("%s: %v", name, err)
		}
		t.Log(err)
	}
}

// TestTruncationWhileOpenIsAnError takes the file away under an open journal: the next use is an error and not a crash.
func TestTruncationWhileOpenIsAnError(t *testing.T) {
	path := filled(t, 5000, 500)
	j, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	r := []fsm.Record{{Bucket: "bucket1", Key: "k", Value: []byte("v")}}
	if err := j.Commit(r); !fault.Is(err, fault.Internal) {
		t.Errorf("first commit: %v", err)
	}
	if err := j.Commit(r); !fault.Is(err, fault.Internal) {
		t.Errorf("second commit: %v", err)
	}
	if err := j.Close(); err != nil {
		t.Error(err)
	}
}

func TestOpenLeavesNoOtherFiles(t *testing.T) {
	path := filled(t, 1, 1)
	names, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(names) != 1 {
		t.Errorf("%v %v, want the journal alone", names, err)
	}
}
