package check

import (
	"testing"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cli/check/history"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/member"
)

func TestCheckFindsWorkersWithDifferingRegistries(t *testing.T) {
	is := func(worker cluster.WorkerID, digest string) api.Examination {
		return api.Examination{
			Worker: worker,
			Findings: []cluster.Finding{{Name: member.FindingRegistry, Have: member.DigestWord + digest +
				", of 2 workers"}},
		}
	}
	twin := func(e api.Examination) api.Examination {
		e.Findings = append(e.Findings, cluster.Finding{Name: member.FindingTwin, Have: "another"})
		return e
	}
	a, b := cluster.Member{ID: "a", State: cluster.MemberAlive}, cluster.Member{ID: "b", State: cluster.MemberAlive}
	dead := cluster.Member{ID: "b", State: cluster.MemberDead}
	for _, tc := range []struct {
		name    string
		members []cluster.Member
		ex      []api.Examination
		bad     int
	}{
		{"one", []cluster.Member{a, b}, []api.Examination{is("a", "1"), is("b", "1")}, 0},
		{"a process that is alone", nil, []api.Examination{{Worker: "a"}}, 0},
		{"other records", []cluster.Member{a, b}, []api.Examination{is("a", "1"), is("b", "2")}, 1},
		{"dead", []cluster.Member{a, dead}, []api.Examination{is("a", "1"), is("b", "1")}, 1},
		{"silent", []cluster.Member{a, b}, []api.Examination{is("a", "1"), {Worker: "b"}}, 1},
		{"a copy runs beside b", []cluster.Member{a, b}, []api.Examination{is("a", "1"), twin(is("b", "2"))}, 0},
		{"never met", []cluster.Member{a}, []api.Examination{is("a", "1"), {Worker: "b"}}, 1},
	} {
		if why := disagreement(tc.members, tc.ex, digestsOf(tc.ex)); len(why) != tc.bad {
			t.Errorf("%s: %q, want %d", tc.name, why, tc.bad)
		}
	}
}

// TestEachInvariantDetectsItsViolation: for each that is judged by what workers say, one census that keeps it, and those that break
// it.
func TestEachInvariantDetectsItsViolation(t *testing.T) {
	config := &machine.Config{Image: "x", Guest: &machine.Guest{CPUKind: "shared", CPUs: 1, MemoryMB: 256}}
	one := machine.Resources(config)
	is := func(id, worker, instance string, s machine.State) *machine.Machine {
		return &machine.Machine{
			ID:         id,
			App:        "a",
			Worker:     cluster.WorkerID(worker),
			InstanceID: instance,
			State:      s,
			Config:     config,
		}
	}
	w1 := cluster.Record{Worker: "w1", Capacity: one, Used: one}
	full := census{records: []cluster.Record{w1}, machines: []*machine.Machine{is("m1", "w1", "i1", machine.Started)}}
	with := func(ms ...*machine.Machine) census {
		return census{records: full.records, machines: append(ms, full.machines...)}
	}
	used := census{records: []cluster.Record{{Worker: "w1", Capacity: one, Used: one.Add(one)}},
		machines: full.machines}
	op := func(kind history.Kind, id, worker, instance string, out history.Outcome) history.Op {
		return history.Op{
			Kind:     kind,
			App:      "a",
			Machine:  id,
			Worker:   cluster.WorkerID(worker),
			Instance: instance,
			Outcome:  out,
		}
	}
	made := op(history.Create, "m1", "w1", "i1", history.Yes)
	told := func(all census, ops ...history.Op) Invariant { return checkHistory(all, ops) }
	life := aLife{pid: 7, machine: "m1", worker: "w1", attempt: "1"}
	twice := aLife{pid: 8, machine: "m1", worker: "w1", attempt: "2"}
	orphan := aLife{pid: 9, machine: "m9", worker: "w1"}
	elsewhere := aLife{pid: 10, machine: "m1", worker: "w of another cluster"}
	for _, tc := range []struct {
		name string
		got  Invariant
		bad  int
	}{
		{"1: full", checkCapacity(full), 0},
		{"1: two where there is room for one", checkCapacity(with(is("m2", "w1", "i", machine.Started))), 2},
		{"1: one is stopped", checkCapacity(with(is("m2", "w1", "i", machine.Stopped))), 0},
		{"1: more in use than there is", checkCapacity(used), 2},
		{"2: there", told(full, made), 0},
		{"2: lost", told(full, made, op(history.Create, "m2", "w1", "i", history.Yes)), 1},
		{"2: of another instance", told(full, op(history.Create, "m1", "w1", "i0", history.Yes)), 1},
		{"2: not started", told(with(is("m2", "w1", "i", machine.Failed)),
			op(history.Create, "m2", "w1", "i", history.Yes)), 1},
		{"2: destroyed, and there", told(full, made, op(history.Destroy, "m1", "w1", "", history.Yes)), 1},
		{"2: refused, and there", told(full, op(history.Create, "m1", "", "", history.No)), 1},
		{"2: nobody knows", told(full, op(history.Create, "m1", "", "", history.Unsure),
			op(history.Create, "m2", "", "", history.Unsure)), 0},
		{"2: there twice", told(with(is("m1", "w2", "i1", machine.Started)), made), 1},
		{"3: one process", checkProcesses(full, []aLife{life, elsewhere}), 0},
		{"3: two lives", checkProcesses(full, []aLife{life, twice}), 1},
		{"3: an orphan", checkProcesses(full, []aLife{life, orphan}), 1},
		{"3: started without a process", checkProcesses(with(is("m2", "w1", "i", machine.Started)), []aLife{life}), 1},
		{"4: one worker", checkWriters(full), 0},
		{"4: two workers", checkWriters(with(is("m1", "w2", "i1", machine.Started))), 1},
	} {
		if tc.got.count != tc.bad || tc.got.OK != (tc.bad == 0) {
			t.Errorf("%s: %+v, want %d violations", tc.name, tc.got, tc.bad)
		}
	}
	if over := beyondMachines(full); len(over) != 0 {
		t.Errorf("6: %q of a worker that has in use what its machines have", over)
	}
	if over := beyondMachines(used); len(over) != 1 {
		t.Errorf("6: %q of a worker that has more in use", over)
	}
}
