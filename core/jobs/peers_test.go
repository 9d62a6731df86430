package jobs_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/auction"
	"github.com/soukhq/souk/core/jobs"
)

// buying is a dispatcher with one job of tasks of one CPU, and workers of other members.
type buying struct {
	*jobs.Dispatcher
	t   *testing.T
	now time.Time
	id  string
}

func newBuying(t *testing.T, tasks int, cpus int) *buying {
	t.Helper()
	b := &buying{jobs.NewDispatcher(auction.DefaultRules(64)), t, epoch, jobs.ID(1)}
	spec := settled(t, jobs.Spec{Last: tasks - 1, CPUKind: "performance", CPUs: cpus})
	if err := b.Submit(b.now, b.id, spec); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Flush(); err != nil {
		t.Fatal(err)
	}
	b.Saved(b.now)
	return b
}

// twoCPUs is the record of a worker of two CPUs.
func twoCPUs(id cluster.WorkerID) cluster.Record {
	return cluster.Record{Worker: id, State: cluster.Ready, Incarnation: 1,
		Capacity: cluster.Resources{CPU: 2000, Memory: 4096}}
}

// look sets the peers, and returns what is to be connected and disconnected.
func (b *buying) look(after time.Duration, peers ...cluster.WorkerID) jobs.Out {
	b.now = b.now.Add(after)
	var records []cluster.Record
	for _, id := range peers {
		records = append(records, twoCPUs(id))
	}
	b.Peers(b.now, records)
	b.Open(b.now)
	return b.Take()
}

// report has a worker report what runs there.
func (b *buying) report(id cluster.WorkerID, running ...jobs.Life) jobs.Out {
	b.Report(b.now, jobs.Report{Worker: id, Record: twoCPUs(id), Full: true, Running: running, Free: 4})
	b.Open(b.now)
	return b.Take()
}

func (b *buying) status() jobs.Job {
	b.t.Helper()
	j, err := b.Status(b.now, b.id)
	if err != nil {
		b.t.Fatal(err)
	}
	return j
}

// TestWorkersOfOtherMembersAreConnectedForTasks: a buyer connects the workers that it bids at, which are as many as its tasks need, and
// leaves them once they were of no use for a minute.
func TestWorkersOfOtherMembersAreConnectedForTasks(t *testing.T) {
	b := newBuying(t, 2, 1)
	if out := b.look(time.Second, "w1", "w2", "w3"); len(out.Connect) != 2 {
		t.Fatalf("for two tasks %v are to be connected", out.Connect)
	}
	out := b.look(time.Second, "w1", "w2", "w3") // nobody offered anything
	if len(out.Connect) != 3 {
		t.Fatalf("a second later only %v are to be connected", out.Connect)
	}
	if why := b.status().Why; why != "3 workers are being connected" {
		t.Error(why)
	}
	b.report("w1")
	if out := b.look(time.Second, "w1", "w2", "w3"); slices.Contains(out.Connect, "w1") || len(out.Disconnect) != 0 {
		t.Fatalf("with w1 connected: %+v", out)
	}
	if err := b.Cancel(b.now, b.id, "enough"); err != nil {
		t.Fatal(err)
	}
	b.look(time.Second, "w1", "w2", "w3")
	if out := b.look(30*time.Second, "w1", "w2", "w3"); len(out.Connect)+len(out.Disconnect) != 0 {
		t.Errorf("half a minute later: %+v", out)
	}
	if out := b.look(time.Minute, "w1", "w2", "w3"); !slices.Equal(out.Disconnect, []cluster.WorkerID{"w1"}) {
		t.Errorf("a minute later: %+v", out)
	}
}

// TestNoWorkerIsConnectedForTasksThatFitNone: and the job says why they wait.
func TestNoWorkerIsConnectedForTasksThatFitNone(t *testing.T) {
	b := newBuying(t, 1, 4)
	if out := b.look(time.Second, "w1", "w2"); len(out.Connect) != 0 {
		t.Errorf("%v are to be connected", out.Connect)
	}
	if why := b.status().Why; !strings.Contains(why, "on all of 2") {
		t.Error(why)
	}
}

// TestAttemptsOfTheProcessBeforeAreNotRepeated: a task that was given out before the restart is not given out again before its worker has
// reported, or was given up; a worker that was given up is connected again to end its tasks.
func TestAttemptsOfTheProcessBeforeAreNotRepeated(t *testing.T) {
	b := newBuying(t, 2, 1)
	b.NoteAttempt(b.id, 0, 1, "w1")
	b.NoteAttempt(b.id, 1, 1, "w1")
	if got := b.Unconfirmed(); !slices.Equal(got, []cluster.WorkerID{"w1"}) {
		t.Fatalf("%v have what is not confirmed", got)
	}
	if out := b.look(time.Second, "w1"); !slices.Equal(out.Connect, []cluster.WorkerID{"w1"}) {
		t.Fatalf("%v are to be connected", out.Connect)
	}
	if j := b.status(); j.Running != 2 || j.Waiting != 0 {
		t.Fatalf("%+v", j)
	}
	shape := settled(t, jobs.Spec{CPUKind: "performance", CPUs: 1})
	first := jobs.Life{Job: b.id, Index: 0, Attempt: 1, CPU: shape.Shape().CPU, Memory: shape.Shape().Memory}
	b.report("w1", first)
	if j := b.status(); j.Running != 1 || j.Waiting != 1 || j.Lost != 0 {
		t.Fatalf("after the report of one: %+v", j)
	}
	b.Silent(b.now, "w1")
	b.Gone(b.now, "w1")
	if j := b.status(); j.Waiting != 2 || j.Lost != 1 {
		t.Fatalf("after the worker was given up: %+v", j)
	}
	if err := b.Cancel(b.now, b.id, "enough"); err != nil {
		t.Fatal(err)
	}
	if out := b.look(time.Second, "w1"); !slices.Equal(out.Connect, []cluster.WorkerID{"w1"}) {
		t.Fatalf("%v are to be connected, to end what still runs there", out.Connect)
	}
	out := b.report("w1", first)
	if len(out.Orders) != 1 || !slices.Equal(out.Orders[0].Kill, []jobs.Life{first}) {
		t.Errorf("it is ordered %+v", out.Orders)
	}
	if out := b.look(time.Second, "w1"); len(out.Connect) != 0 {
		t.Errorf("%v are to be connected for nothing", out.Connect)
	}
}

// TestEachWorkerReportsOnceAfterAReboot: attempts that were not on disk may run at any worker, though their job was cancelled or lost, and
// bids nowhere. Each worker is connected until it has reported once, and ends them.
func TestEachWorkerReportsOnceAfterAReboot(t *testing.T) {
	b := newBuying(t, 1, 1)
	if err := b.Cancel(b.now, b.id, "enough"); err != nil {
		t.Fatal(err)
	}
	if out := b.look(time.Second, "w1", "w2"); len(out.Connect) != 0 {
		t.Fatalf("without a reboot %v are to be connected", out.Connect)
	}
	b.Dispatcher = jobs.NewDispatcher(auction.DefaultRules(64)) // not even the job is on disk
	b.SkipAttempts(func(cluster.WorkerID) bool { return false })
	if out := b.look(time.Second, "w1", "w2"); len(out.Connect) != 2 {
		t.Fatalf("after a reboot only %v are to be connected", out.Connect)
	}
	shape := settled(t, jobs.Spec{CPUKind: "performance", CPUs: 1})
	lost := jobs.Life{Job: b.id, Index: 0, Attempt: 1, CPU: shape.Shape().CPU, Memory: shape.Shape().Memory}
	out := b.report("w1", lost)
	if len(out.Orders) != 1 || !slices.Equal(out.Orders[0].Kill, []jobs.Life{lost}) {
		t.Errorf("the task that nobody knew is not ended: %+v", out.Orders)
	}
	if out = b.look(time.Millisecond, "w1", "w2"); len(out.Connect) != 0 {
		t.Errorf("a moment later %v are to be connected again", out.Connect)
	}
	if out = b.look(time.Second, "w1", "w2"); !slices.Equal(out.Connect, []cluster.WorkerID{"w2"}) {
		t.Errorf("with the report of w1 %v are to be connected", out.Connect)
	}
}

// TestCancelledTasksEndOverARestart: a task that was cancelled while it ran has not ended because its buyer was started again. Its worker
// is connected, and ends it; the job has ended when it has.
func TestCancelledTasksEndOverARestart(t *testing.T) {
	for _, all := range []bool{true, false} {
		b := newBuying(t, 1, 1)
		b.report("w1", b.first())
		var err error
		if all {
			err = b.Cancel(b.now, b.id, "enough")
		} else {
			_, err = b.CancelTasks(b.now, b.id, jobs.Indices{{First: 0, Last: 0}})
		}
		if err != nil {
			t.Fatal(err)
		}
		b.restart()
		b.NoteAttempt(b.id, 0, 1, "w1")
		if j := b.status(); j.State.Final() || j.Running != 1 {
			t.Fatalf("before its worker has reported: %+v", j)
		}
		if out := b.look(time.Second, "w1", "w2"); !slices.Equal(out.Connect, []cluster.WorkerID{"w1"}) {
			t.Fatalf("%v are to be connected", out.Connect)
		}
		b.report("w1") // it is gone
		if j := b.status(); j.Running != 0 || j.Cancelled != 1 {
			t.Errorf("after its worker has reported: %+v", j)
		}
		b.restart()
		b.NoteAttempt(b.id, 0, 1, "w1")
		if j := b.status(); !j.State.Final() || j.Cancelled != 1 {
			t.Errorf("after another restart: %+v", j)
		}
	}
}

// first is the first attempt of the job's first task.
func (b *buying) first() jobs.Life {
	spec := settled(b.t, jobs.Spec{CPUKind: "performance", CPUs: 1})
	return jobs.Life{Job: b.id, Attempt: 1, CPU: spec.Shape().CPU, Memory: spec.Shape().Memory}
}

// restart replaces the dispatcher by one that has the records of the last flush alone.
func (b *buying) restart() {
	b.t.Helper()
	records, err := b.Flush()
	if err != nil {
		b.t.Fatal(err)
	}
	b.Dispatcher = jobs.NewDispatcher(auction.DefaultRules(64))
	for _, r := range records {
		if err := b.Restore(r); err != nil {
			b.t.Fatal(err)
		}
	}
	b.Resume()
}

// TestRebootEndsCancelledTasksOfItsHost: what ran on a host that went down has ended, so a task that was cancelled there is not given out
// again.
func TestRebootEndsCancelledTasksOfItsHost(t *testing.T) {
	b := newBuying(t, 1, 1)
	b.report("w1", b.first())
	if err := b.Cancel(b.now, b.id, "enough"); err != nil {
		t.Fatal(err)
	}
	b.restart()
	b.NoteAttempt(b.id, 0, 1, "w1")
	b.SkipAttempts(func(cluster.WorkerID) bool { return true })
	if j := b.status(); j.Cancelled != 1 || j.Waiting != 0 {
		t.Errorf("after the reboot: %+v", j)
	}
}
