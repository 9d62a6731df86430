package broker

import (
	"fmt"
	"strings"
	"testing"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// seat puts a machine that publishes ports on a worker, stopped.
func (f *fakeFleet) seat(t *testing.T, worker, id string, ports ...machine.Publish) *machine.Machine {
	t.Helper()
	w := f.workers[worker]
	c := launchOf(256).Config
	c.Network = &machine.Network{Publish: ports}
	m := &machine.Machine{ID: id, App: "a", Name: "m" + id, State: machine.Stopped, Region: "local", Config: c,
		Worker: w.id}
	w.rows[id] = m
	return m
}

// TestDrainPlansOnlyWorkersWithFreePorts: a machine is planned to a worker where its ports are free, else it stays with what has them, and
// two machines of one plan never get the same port; what is planned is what the moves then do.
func TestDrainPlansOnlyWorkersWithFreePorts(t *testing.T) {
	at := func(port int) machine.Publish { return machine.Publish{HostPort: port, Port: 80} }
	f := newFakeFleet("w1", "w2", "w3")
	f.seat(t, "w1", "00000000000001", at(7100))                    // free at w3 only
	f.seat(t, "w1", "00000000000002", at(7200))                    // free nowhere
	f.seat(t, "w1", "00000000000003", at(7300))                    // free at both, as is the next one's
	f.seat(t, "w1", "00000000000004", at(7300))                    // two of one port, as a worker would not have them
	f.seat(t, "w1", "00000000000005", at(7300))                    // a third has no place left
	f.seat(t, "w2", "00000000000006", at(7100), at(7200), at(750)) // what is there
	f.seat(t, "w3", "00000000000007", machine.Publish{Address: "192.0.2.5", HostPort: 7200, Port: 1})
	b := f.broker(nil)
	plan, err := b.DrainPlan(t.Context(), "w1")
	if err != nil {
		t.Fatal(err)
	}
	fates := map[string]api.DrainMove{}
	for _, m := range plan.Moves {
		fates[m.Machine[13:]] = m
	}
	if m := fates["1"]; m.Fate != api.FateMoves || m.To != "w3" {
		t.Errorf("a port that is free at one worker: %+v", m)
	}
	const no = "port 7200/tcp is not free: there is "
	if m := fates["2"]; m.Fate != api.FateStuck || !strings.Contains(m.Reason, "w2: "+no) ||
		!strings.Contains(m.Reason, "w3: "+no) {
		t.Errorf("a port that is free nowhere: %+v", m)
	}
	third, fourth := fates["3"], fates["4"]
	if third.Fate != api.FateMoves || fourth.Fate != api.FateMoves || third.To == fourth.To {
		t.Errorf("two of one port: %+v, %+v", third, fourth)
	}
	if m := fates["5"]; m.Fate != api.FateStuck ||
		!strings.Contains(m.Reason, "a machine of this drain that has it") {
		t.Errorf("a third of one port: %+v", m)
	}
	for _, m := range plan.Moves {
		w := f.workers["w1"]
		out, err := b.Move(t.Context(), Machine{Machine: w.rows[m.Machine], At: w}, "")
		switch {
		case m.Fate == api.FateMoves && (err != nil || string(out.Machine.Worker) != m.To):
			t.Errorf("planned to %s: %+v, %v", m.To, out, err)
		case m.Fate != api.FateMoves && !fault.Is(err, fault.Exhausted):
			t.Errorf("planned to stay (%s): %+v, %v", m.Reason, out, err)
		}
	}
}

// TestDrainPlanAsksNoMoreWorkersThanABuyerWould: where the first workers that a buyer asks have the port taken, the plan does not send
// the machine to one that the buyer would not ask.
func TestDrainPlanAsksNoMoreWorkersThanABuyerWould(t *testing.T) {
	var ids []string
	for i := range 20 {
		ids = append(ids, fmt.Sprintf("n%02d", i))
	}
	f := newFakeFleet(ids...)
	m := f.seat(t, "n00", "0000000000000a", machine.Publish{HostPort: 7400, Port: 80})
	for i, id := range ids[1:] {
		f.seat(t, id, fmt.Sprintf("000000000000%02x", 0x20+i), machine.Publish{HostPort: 7400, Port: 80})
	}
	b := f.broker(nil)
	plan, err := b.DrainPlan(t.Context(), "n00")
	if err != nil || len(plan.Moves) != 1 || plan.Moves[0].Fate != api.FateStuck {
		t.Fatalf("%+v, %v", plan, err)
	}
	asked := 0
	for _, w := range f.workers {
		asked += len(w.quoted)
	}
	if asked != 16 {
		t.Errorf("%d workers were asked", asked)
	}
	if _, err := b.Move(t.Context(), Machine{Machine: m, At: f.workers["n00"]}, ""); !fault.Is(err, fault.Exhausted) {
		t.Error(err)
	}
}

// TestMoveToNamedWorkerOnly: a machine goes to the worker that is named, and to no other: where that does not take it, it is not even
// stopped, and the error says all that is against it. What the machine requires stays as it was.
func TestMoveToNamedWorkerOnly(t *testing.T) {
	port := machine.Publish{HostPort: 7100, Port: 80}
	f := newFakeFleet("w1", "w2", "w3")
	m := f.seat(t, "w1", "00000000000001", port)
	m.State = machine.Started
	f.seat(t, "w2", "00000000000002", port)
	b, w := f.broker(nil), f.workers["w1"]
	_, err := b.Move(t.Context(), Machine{Machine: m, At: w}, "w2")
	const no = "machine 00000000000001 stays where it is: worker w2 does not take it: port 7100/tcp is not free"
	if !fault.Is(err, fault.Exhausted) || !strings.Contains(err.Error(), no) || w.rows[m.ID].State != machine.Started {
		t.Fatalf("%v, %+v", err, w.rows[m.ID])
	}
	if _, err := b.Move(t.Context(), Machine{Machine: m, At: w}, "w9"); !strings.Contains(err.Error(),
		"worker w9 is not heard, or not known") {
		t.Fatal(err)
	}
	for to, want := range map[cluster.WorkerID]string{"w2": no, "w3": ""} {
		err := b.MayMove(t.Context(), Machine{Machine: m, At: w}, to)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) || len(w.rows) != 1 {
			t.Fatal(to, err)
		}
	}
	in := Intent{App: "a", Launch: relaunchOf(m, "00000000000009"), At: "w2"}
	if err := b.Takes(t.Context(), in, m.ID, "w1"); err == nil || !strings.Contains(err.Error(), no) {
		t.Fatal(err)
	}
	for _, to := range []cluster.WorkerID{"w2", "w3"} { // whichever it likes best
		f := newFakeFleet("w1", "w2", "w3")
		m := f.seat(t, "w1", "00000000000001")
		out, err := f.broker(nil).Move(t.Context(), Machine{Machine: m, At: f.workers["w1"]}, to)
		if err != nil || out.Machine.Worker != to {
			t.Fatalf("%s: %+v, %v", to, out, err)
		}
	}
	in.At = "w3"
	if err := b.Takes(t.Context(), in, m.ID, "w1"); err != nil || len(f.workers["w3"].rows) != 0 {
		t.Fatal(err)
	}
	out, err := b.Move(t.Context(), Machine{Machine: m, At: w}, "w3")
	if err != nil || out.Machine.Worker != "w3" ||
		out.Machine.Scheduling != nil && len(out.Machine.Scheduling.Require) > 0 {
		t.Fatalf("%+v, %v", out, err)
	}
}
