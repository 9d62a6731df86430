package lifecycle_test

import (
	"testing"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// TestWorkerOnAFullDiskTakesNothingNew: a worker on a full disk grants no machine, task or volume, and still stops,
// starts and destroys what it has. A cordon set meanwhile is shown instead and stays; without one the worker grants
// again.
func TestWorkerOnAFullDiskTakesNothingNew(t *testing.T) {
	w := newWorld()
	d := newDriver(w)
	for _, id := range []string{m1, v1} {
		d.grant(grantOf(id))
		d.settle(time.Second)
	}
	why := fault.New(fault.Exhausted, "disk_full", "the disk is full")
	d.take(d.sup.Full(d.now, why))
	if c := d.sup.Record(d.now).Cordon; c == nil || c.Owner != cluster.DiskOwner || c.Reason != why.Text {
		t.Errorf("its record says %+v", c)
	}
	const fresh = "1234567890abcd"
	granted := d.grant(grantOf(fresh))
	made := d.volume(lifecycle.VolumeCommand{Verb: "create", App: "app", Volume: "vol_9",
		Spec: machine.Volume{SizeGB: 1}})
	_, admitted := d.sup.AdmitTask(d.now, lifecycle.Task{Name: "task", App: "app", Want: cluster.Resources{CPU: 1}})
	d.settle(time.Minute)
	for what, err := range map[string]error{"a machine": d.replies[granted].Err, "a volume": d.replies[made].Err,
		"a task": admitted} {
		if !fault.Is(err, fault.Exhausted) {
			t.Errorf("%s: %v", what, err)
		}
	}
	state := func(id string) machine.State { return d.sup.Machine("app", id).State }
	d.do(lifecycle.Command{Verb: lifecycle.Stop, App: "app", Machine: m1})
	d.settle(time.Minute)
	stopped := state(m1)
	d.do(lifecycle.Command{Verb: lifecycle.Start, App: "app", Machine: m1})
	d.do(lifecycle.Command{Verb: lifecycle.Destroy, App: "app", Machine: v1, Kill: true})
	d.settle(time.Minute)
	if stopped != machine.Stopped || state(m1) != machine.Started || state(v1) != machine.Destroyed {
		t.Errorf("stopped %s, started again %s, destroyed %s", stopped, state(m1), state(v1))
	}
	cordon := func(c lifecycle.CordonCommand) *cluster.Cordon {
		out, err := d.sup.Cordon(d.now, c)
		if err != nil {
			t.Fatal(err)
		}
		d.take(out)
		return d.sup.Record(d.now).Cordon
	}
	if c := cordon(lifecycle.CordonCommand{Owner: "ann", Reason: "disks"}); c == nil || c.Owner != "ann" {
		t.Errorf("cordoned by somebody, its record says %+v", c)
	}
	if c := cordon(lifecycle.CordonCommand{End: true}); c == nil || c.Owner != cluster.DiskOwner {
		t.Errorf("and no longer, it says %+v", c)
	}
	d.take(d.sup.Full(d.now, nil))
	again := d.grant(grantOf(fresh))
	d.settle(time.Minute)
	if rec := d.sup.Record(d.now); rec.State != cluster.Ready || d.replies[again].Err != nil {
		t.Errorf("afterwards it is %s: %v", rec.State, d.replies[again].Err)
	}
	if len(w.violations) > 0 {
		t.Error(w.violations)
	}
}
