package lifecycle_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/machine"
)

// TestCommandsOfTheVersionBefore: what a member of the version before sends is read, and it finds in what it is sent
// the names that it knows.
func TestCommandsOfTheVersionBefore(t *testing.T) {
	cut := map[string]*string{"k": nil}
	checkBoth(t, lifecycle.Command{Verb: lifecycle.Stop, App: "app", Machine: m1, Signal: "TERM",
		Timeout: 90 * time.Second, Kill: true,
		Metadata: cut, Launch: &machine.Launch{Name: "x"}}, `"timeout":90000000000`,
		`{"verb":"stop","app":"app","machine":"`+m1+
			`","signal":"TERM","timeout":90000000000,"kill":true,"launch":{"name":"x"},"metadata":{"k":null}}`)
	checkBoth(t, lifecycle.LeaseCommand{App: "app", Machine: m1, Owner: "ann", TTL: time.Minute}, `"ttl":60000000000`,
		`{"app":"app","machine":"`+m1+`","owner":"ann","ttl":60000000000}`)
	checkBoth(t, lifecycle.CordonCommand{Owner: "ann", Reason: "disk", TTL: time.Hour, Drain: true},
		`"ttl":3600000000000`,
		`{"owner":"ann","reason":"disk","ttl":3600000000000,"drain":true}`)
	checkBoth(t, lifecycle.CordonCommand{Owner: "ann", Reason: "disk"}, `"owner"`, `{"owner":"ann","reason":"disk"}`)
}

// checkBoth holds a command against what the version before sends for it, and what it must find.
func checkBoth[C any](t *testing.T, want C, finds, before string) {
	t.Helper()
	sent, err := json.Marshal(want)
	if err != nil || !strings.Contains(string(sent), finds) {
		t.Errorf("%s, %v: it does not have %s", sent, err, finds)
	}
	for _, text := range []string{string(sent), before} {
		var got C
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s is read otherwise:\n%s", text, diff)
		}
	}
}

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
