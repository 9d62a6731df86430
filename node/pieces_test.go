package node_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/node"
)

// written returns a process with a machine and a job, which has ended.
func written(t *testing.T) (*process, *machine.Machine) {
	t.Helper()
	p := start(t)
	if _, err := p.cl.CreateApp(t.Context(), app); err != nil {
		t.Fatal(err)
	}
	m, err := p.cl.Launch(t.Context(), app, launch(), client.LaunchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.cl.SubmitJob(t.Context(), "", jobs.Spec{App: app, Command: []string{"true"}, First: 1,
		Last: 1}); err != nil {
		t.Fatal(err)
	}
	p.end()
	return p, m
}

// whole says that the machine runs as it did.
func (p *process) whole(m *machine.Machine) {
	p.t.Helper()
	p.start()
	got, err := p.cl.Machine(p.t.Context(), app, m.ID)
	if err != nil || got.InstanceID != m.InstanceID || got.State != machine.Started {
		p.t.Errorf("the machine was %+v, is %+v, %v", m, got, err)
	}
	p.end()
}

// TestMissingStateFileIsRefusedOrHarmless moves each file of a process away, one at a time: the process refuses to start, with what to do, or has
// lost nothing; once the file is back, all is as it was.
func TestMissingStateFileIsRefusedOrHarmless(t *testing.T) {
	p, m := written(t)
	var files []string
	if err := filepath.WalkDir(p.dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			files = append(files, path)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	refused := map[string]bool{}
	for _, path := range files {
		away := filepath.Join(t.TempDir(), "away")
		if err := os.Rename(path, away); err != nil {
			t.Fatal(err)
		}
		n, err := node.New(t.Context(), p.options())
		if err == nil {
			if err := n.Close(); err != nil {
				t.Error(err)
			}
			p.whole(m)
		} else {
			name, _ := filepath.Rel(p.dir, path)
			refused[name] = true
			if !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "back") {
				t.Errorf("without %s: %v", path, err)
			}
		}
		if err := os.Rename(away, path); err != nil {
			t.Fatal(err)
		}
		p.whole(m)
	}
	for _, name := range []string{"journal", "catalog.journal", "jobs.journal", "secrets.key", "jobs/given"} {
		if !refused[name] {
			t.Errorf("without %s it starts; refused are %v", name, slices.Sorted(maps.Keys(refused)))
		}
	}
}

// TestLostJournalEndsNoRunningMachine: also without the list of files a journal that is new does not end what runs.
func TestLostJournalEndsNoRunningMachine(t *testing.T) {
	p, m := written(t)
	journal := filepath.Join(p.dir, "journal")
	if err := os.Remove(filepath.Join(p.dir, "pieces")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(journal, journal+".away"); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the first refusal has made a journal, which must not help the second
		if _, err := node.New(t.Context(), p.options()); fault.CodeOf(err) != "journal_missing" {
			t.Fatalf("%v", err)
		}
	}
	if err := os.Rename(journal+".away", journal); err != nil {
		t.Fatal(err)
	}
	p.whole(m)
}

// TestAbandonedStateIsRecreatedOnce: what a person says is lost is made anew, once, and what was left of it is put aside.
func TestAbandonedStateIsRecreatedOnce(t *testing.T) {
	p, _ := written(t)
	journal := filepath.Join(p.dir, "journal")
	if err := os.Truncate(journal, 100); err != nil {
		t.Fatal(err)
	}
	if _, err := node.New(t.Context(), p.options()); fault.CodeOf(err) != "journal_damaged" ||
		!strings.Contains(err.Error(), "souk agent without "+journal) {
		t.Fatalf("%v", err)
	}
	if _, err := node.GiveUp(p.dir, filepath.Join(p.dir, "nothing"), time.Now()); fault.CodeOf(err) != "piece" {
		t.Errorf("%v", err)
	}
	aside, err := node.GiveUp(p.dir, journal, time.Now())
	if err != nil || len(aside) != 1 {
		t.Fatalf("%v, %v", aside, err)
	}
	p.start()
	list, err := p.cl.Machines(t.Context(), app, client.ListOptions{})
	if err != nil || len(list) != 0 {
		t.Errorf("%v, %v", list, err)
	}
	p.end()
	if err := os.Remove(journal); err != nil {
		t.Fatal(err)
	}
	if _, err := node.New(t.Context(), p.options()); fault.CodeOf(err) != "piece_missing" {
		t.Errorf("given up once it may be lost for ever: %v", err)
	}
}
