package lifecycle_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/machine"
)

// TestAJournalOfTheVersionBefore: rows as they were written before a machine's had what it occupies. The stop that is
// on its way goes on with the grace it was begun with, and the machine has its room until then.
func TestAJournalOfTheVersionBefore(t *testing.T) {
	text, err := os.ReadFile("testdata/journal-0.txt")
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld()
	w.stubborn = true
	for line := range strings.Lines(string(text)) {
		f := strings.SplitN(strings.TrimSpace(line), "\t", 3)
		w.commit([]fsm.Record{{Bucket: f[0], Key: f[1], Value: []byte(f[2])}})
	}
	w.dirs[m1], w.procs[m1] = true, &proc{attempt: 1, running: true}
	d := newDriver(w)
	if m := d.sup.Machine("app", m1); m.State != machine.Stopping || d.sup.Record(d.now).Used.CPU != 100 {
		t.Fatalf("%s, %v", m.State, d.sup.Record(d.now).Used)
	}
	if l, err := d.sup.CurrentLease(d.now, "app", m1); err != nil || l.Owner != "the creator" {
		t.Fatal(l, err)
	}
	if v, exists := d.sup.VolumeOf("vol_1"); !exists || v.AttachedMachine == nil || *v.AttachedMachine != m1 {
		t.Fatalf("%+v", v)
	}
	d.settle(59 * time.Second)
	if m := d.sup.Machine("app", m1); m.State != machine.Stopping {
		t.Fatalf("%s before its grace is over", m.State)
	}
	d.settle(time.Minute)
	if m := d.sup.Machine("app", m1); m.State != machine.Stopped || len(m.Events) != 4 || len(w.violations) > 0 {
		t.Fatalf("%s, %+v, %v", m.State, m.Events, w.violations)
	}
}
