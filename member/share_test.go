package member

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/core/registry"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/store/catalog"
	"github.com/soukhq/souk/store/journal/mem"
)

// countingJournal counts commits.
type countingJournal struct {
	*mem.Journal
	commits int
}

func (j *countingJournal) Commit(batch []fsm.Record, written ...func()) error {
	j.commits++
	return j.Journal.Commit(batch, written...)
}

// sharedCatalog is a catalog that tells rows to put.
func sharedCatalog(t *testing.T, put func(_, _ string, _ []byte) error) (*catalog.Catalog, *countingJournal) {
	t.Helper()
	j := &countingJournal{Journal: mem.New()}
	c, err := catalog.Open(j, filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	keys := [][]byte{[]byte("a key that all members have")}
	err = c.Share(catalog.Sharing{Put: put, Keys: func() [][]byte { return keys },
		Failed: func(bucket, key string, err error) { t.Errorf("%s/%s: %v", bucket, key, err) }})
	if err != nil {
		t.Fatal(err)
	}
	return c, j
}

// TestImportCommitsOnlyChangedRows imports what changed and nothing else, and what overtook the row that it hangs on as soon as that
// comes.
func TestImportCommitsOnlyChangedRows(t *testing.T) {
	objects := newTown(t).add("m1").cluster.Objects()
	var told []registry.Change
	rows := map[string][]byte{}
	writer, _ := sharedCatalog(t, func(bucket, key string, value []byte) error {
		rows[bucket+"/"+key] = value
		told = append(told, registry.Change{Kind: registry.Kind(bucket), Key: key})
		return nil
	})
	reader, journal := sharedCatalog(t, func(string, string, []byte) error { return nil })
	i := importer{objects: objects, catalog: reader, log: slog.New(slog.DiscardHandler), waiting: map[rowKey]bool{}}
	hear := func(changes ...registry.Change) int {
		t.Helper()
		before := journal.commits
		for _, x := range changes {
			if _, err := objects.Put(x.Kind, x.Key, 1, rows[string(x.Kind)+"/"+x.Key]); err != nil {
				t.Fatal(err)
			}
		}
		i.importChanged(changes)
		return journal.commits - before
	}
	for n := range 20 {
		if _, err := writer.Apps.CreateApp(fmt.Sprintf("app-%d", n), "", "", ""); err != nil {
			t.Fatal(err)
		}
	}
	if n := hear(told...); n != 1 {
		t.Errorf("20 rows that are heard together cost %d commits", n)
	}
	told = nil
	if err := writer.Apps.SetDisconnect("app-7", catalog.DisconnectFast); err != nil {
		t.Fatal(err)
	}
	if n := hear(told...); n != 1 {
		t.Errorf("one row cost %d commits", n)
	}
	told = nil
	value := "hush"
	if _, err := writer.Apps.CreateApp("web", "", "", ""); err != nil {
		t.Fatal(err)
	}
	if _, _, err := writer.Secrets.SetSecrets("web", map[string]*string{"TOKEN": &value}); err != nil {
		t.Fatal(err)
	}
	app, secret := told[len(told)-2], told[len(told)-1]
	if n := hear(secret); n != 0 || len(i.waiting) != 1 {
		t.Errorf("a secret without its app cost %d commits, %d rows wait", n, len(i.waiting))
	}
	if n := hear(app); n != 2 || len(i.waiting) != 0 {
		t.Errorf("its app cost %d commits, %d rows wait", n, len(i.waiting))
	}
	m := &machine.Machine{App: "web", Config: &machine.Config{}}
	if got, err := reader.Secrets.OpenSecrets(m); err != nil || got["TOKEN"] != value {
		t.Errorf("%v, %v", got, err)
	}
	for _, x := range []registry.Change{secret, told[len(told)-2]} { // what another deletes is gone here too
		if err := objects.Delete(x.Kind, x.Key); err != nil {
			t.Fatal(err)
		}
		i.importChanged([]registry.Change{x})
	}
	if got, err := reader.Secrets.OpenSecrets(m); err == nil || len(got) > 0 {
		t.Errorf("an app that another member deleted is still here, with %v", got)
	}
	if _, err := reader.Apps.App("web"); !fault.Is(err, fault.NotFound) {
		t.Errorf("an app that another member deleted: %v", err)
	}
	if _, err := objects.Put("app", "odd", 1, []byte("{}")); err != nil {
		t.Fatal(err)
	}
	i.importAll()
	if len(i.waiting) != 0 {
		t.Errorf("what can never be used waits: %v", i.waiting)
	}
}
