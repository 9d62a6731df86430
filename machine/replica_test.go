package machine_test

import (
	"strings"
	"testing"

	"github.com/soukhq/souk/machine"
)

// TestReplicaOrderIsValidated: what a steward may ask for is taken, and people read it in one line; what it may not is refused.
func TestReplicaOrderIsValidated(t *testing.T) {
	of := func(edit func(*machine.Replica)) *machine.Replica {
		r := &machine.Replica{Group: "web", Index: 2, Epoch: 4096, Spec: "5bec", Release: "1a2b3c4d5e6f7081"}
		edit(r)
		return r
	}
	for _, c := range []struct {
		name string
		r    *machine.Replica
		text string // "": it is refused
	}{
		{"usual", of(func(*machine.Replica) {}), "web/2 of release 1a2b3c4d, epoch 4096"},
		{"a short release", of(func(r *machine.Replica) { r.Release = "1a" }), "web/2 of release 1a, epoch 4096"},
		{"no release", of(func(r *machine.Replica) { r.Release = "" }), "web/2, epoch 4096"},
		{"the greatest", of(func(r *machine.Replica) {
			r.Group, r.Index, r.Epoch = strings.Repeat("a", 48), machine.MaxReplicas-1, machine.MaxEpoch
		}), strings.Repeat("a", 48) + "/999 of release 1a2b3c4d, epoch 2147483647"},
		{"no group", of(func(r *machine.Replica) { r.Group = "" }), ""},
		{"a group with a slash", of(func(r *machine.Replica) { r.Group = "web/1" }), ""},
		{"a long group", of(func(r *machine.Replica) { r.Group = strings.Repeat("a", 49) }), ""},
		{"a negative index", of(func(r *machine.Replica) { r.Index = -1 }), ""},
		{"a large index", of(func(r *machine.Replica) { r.Index = machine.MaxReplicas }), ""},
		{"a large epoch", of(func(r *machine.Replica) { r.Epoch = machine.MaxEpoch + 1 }), ""},
		{"no spec", of(func(r *machine.Replica) { r.Spec = "" }), ""},
		{"a long spec", of(func(r *machine.Replica) { r.Spec = strings.Repeat("a", 65) }), ""},
		{"a long release", of(func(r *machine.Replica) { r.Release = strings.Repeat("a", 65) }), ""},
	} {
		if err := c.r.Check(); (err == nil) != (c.text != "") {
			t.Errorf("%s: %v", c.name, err)
		} else if err == nil && c.r.String() != c.text {
			t.Errorf("%s is %q", c.name, c.r)
		}
	}
}

// TestReplicaNamesAreNoMachineNames: what names a replica on a command line is no id and no name of a machine.
func TestReplicaNamesAreNoMachineNames(t *testing.T) {
	for s, want := range map[string]bool{"web/0": true, "web-2/999": true, "web": false, "web/": false, "/0": false,
		"web/00": false, "web/-1": false, "web/+1": false, "web/1000": false, "Web/0": false,
		"web/0/1": false, "web/x": false,
		"./web/0": false, "": false} {
		if got := machine.IsSlot(s); got != want {
			t.Errorf("%q names a replica: %v", s, got)
		}
		if want && (machine.ValidName(s) || machine.ValidID(s)) {
			t.Errorf("%q may be a machine's name", s)
		}
	}
	kept, run := machine.Replica{Group: "web", Index: 7}, machine.Replica{Group: "web", Run: machine.RunScheduled}
	if kept.Slot() != "web/7" || !machine.IsSlot(kept.Slot()) || run.Slot() != "" {
		t.Errorf("the replicas are %q and %q", kept.Slot(), run.Slot())
	}
}
