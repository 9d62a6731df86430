package mem_test

import (
	"errors"
	"testing"

	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/store/journal"
	"github.com/soukhq/souk/store/journal/journaltest"
	"github.com/soukhq/souk/store/journal/mem"
)

func TestMemConformsToJournal(t *testing.T) {
	dirs := map[string]*mem.Journal{}
	journaltest.Run(t, func(dir string) (journal.Journal, error) {
		j := mem.New()
		if old := dirs[dir]; old != nil {
			j = old.Reopen()
		}
		dirs[dir] = j
		return j, nil
	})
}

func put(key string) []fsm.Record {
	return []fsm.Record{{Bucket: "b", Key: key, Value: []byte(key)}}
}

func TestCrashedJournalRefusesUntilReopened(t *testing.T) {
	for _, c := range []struct {
		name  string
		order func(j *mem.Journal)
		want  int // records after a reopen
	}{
		{"never", func(*mem.Journal) {}, 5},
		{"at the first", func(j *mem.Journal) { j.FailAfter(0) }, 0},
		{"before the fourth", func(j *mem.Journal) { j.FailAfter(3) }, 3},
		{"behind the fourth", func(j *mem.Journal) { j.LoseAnswerAfter(3) }, 4},
		{"taken back", func(j *mem.Journal) { j.FailAfter(3); j.FailAfter(-1) }, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := mem.New()
			c.order(j)
			failed := false
			for _, k := range []string{"1", "2", "3", "4", "5"} {
				err := j.Commit(put(k))
				if failed && err == nil {
					t.Fatalf("commit %s succeeds after the crash", k)
				}
				failed = failed || err != nil
			}
			again := j.Reopen()
			if got := len(journaltest.Read(t, again)); got != c.want || again.Commits() != 0 {
				t.Errorf("%d records, want %d", got, c.want)
			}
			if err := again.Commit(put("6")); err != nil {
				t.Errorf("after the reopen: %v", err)
			}
			if err := j.Commit(put("6")); fault.CodeOf(err) != "journal_closed" {
				t.Errorf("the crashed journal answers %v", err)
			}
		})
	}
}

func TestHookFailsCommitsAndSnapshotCopies(t *testing.T) {
	j := mem.New()
	refused := fault.New(fault.Unavailable, "", "not now")
	j.Hook(func(b []fsm.Record) error {
		if b[0].Key == "2" {
			return refused
		}
		return nil
	})
	if err := j.Commit(put("1")); err != nil {
		t.Fatal(err)
	}
	before := j.Snapshot()
	if err := j.Commit(put("2")); !errors.Is(err, refused) {
		t.Errorf("%v, want the hook's own", err)
	}
	j.Hook(nil)
	if err := j.Commit(put("2")); err != nil || j.Commits() != 2 {
		t.Errorf("%v after %d commits", err, j.Commits())
	}
	if got := len(journaltest.Read(t, mem.FromSnapshot(before))); got != 1 {
		t.Errorf("the snapshot holds %d records, want 1", got)
	}
}
