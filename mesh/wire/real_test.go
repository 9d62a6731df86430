package wire

import (
	"bytes"
	"context"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/fake"
	"github.com/soukhq/souk/store/journal/mem"
	"github.com/soukhq/souk/worker"
)

// TestMachineLifecycleWorksOverTheWire is one machine's life on a real worker, with its journal and ledger, over a socket.
func TestMachineLifecycleWorksOverTheWire(t *testing.T) {
	k := realWorker(t, t.TempDir())
	w, ctx := far(t, k), t.Context()
	ask := func(id string) lifecycle.Grant {
		g := aGrant(id)
		g.Launch.Config.Restart = &machine.Restart{Policy: "no"}
		return g
	}
	m, err := w.Grant(ctx, ask(testID))
	must(t, err)
	near, err := k.Machine(ctx, "a", testID)
	must(t, err)
	if d := cmp.Diff(near, m); d != "" || m.State != machine.Started {
		t.Errorf("near and far are different: %s", d)
	}
	same, err := w.Grant(ctx, ask(testID)) // asked again: there is one machine
	must(t, err)
	rec, err := w.Record(ctx)
	must(t, err)
	if same.InstanceID != m.InstanceID || rec.Machines != 1 {
		t.Errorf("%d machines after the same ask twice", rec.Machines)
	}
	_, err = w.Grant(ctx, ask("00000000000000"))
	if r, ok := fault.Detail[market.Refusal](err); !ok || r.Record.Used.CPU != 4*machine.SharedMilli ||
		len(r.Verdict.Failing) == 0 || !fault.Is(err, fault.Exhausted) {
		t.Errorf("a refusal became %v with %+v", err, fault.As(err).Detail)
	}
	_, err = w.Hold(ctx, lifecycle.HoldCommand{Token: "token", TTL: time.Second,
		Request: placement.Request{App: "a", Machine: "00000000000001", Resources: cluster.Resources{CPU: 100}}})
	must(t, err)
	must(t, w.Release(ctx, "token"))

	var out bytes.Buffer
	if code, err := w.Exec(ctx, "a", testID, runtime.ExecRequest{Argv: []string{"echo", "hello"},
		Stdout: &out}); err != nil || code != 0 || out.String() != "hello\n" {
		t.Errorf("echo gives %q, %d, %v", out.String(), code, err)
	}
	l, err := w.Lease(ctx, lifecycle.LeaseCommand{App: "a", Machine: testID, TTL: time.Minute, Owner: "o"})
	must(t, err)
	_, err = w.Do(ctx, lifecycle.Command{Verb: lifecycle.Stop, App: "a", Machine: testID})
	wantFault(t, err, fault.Conflict, "lease_held")
	states := make(chan machine.State, 16)
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() {
		_ = w.Watch(ctx, "a", testID,
			func(m *machine.Machine) bool { states <- m.State; return m.State != machine.Stopped })
		close(states)
	})
	if first := <-states; first != machine.Started {
		t.Errorf("watched as %s", first)
	}
	done, err := w.Do(ctx, lifecycle.Command{Verb: lifecycle.Stop, App: "a", Machine: testID, Nonce: l.Nonce})
	must(t, err)
	if done.Previous != machine.Started || done.Machine.State != machine.Stopped {
		t.Errorf("stop: %s, before %s", done.Machine.State, done.Previous)
	}
	last := machine.Started
	for s := range states {
		last = s
	}
	if last != machine.Stopped {
		t.Errorf("last watched as %s", last)
	}
	if s := w.Stats(); s.States[machine.Stopped] != 1 || s.Commits == 0 {
		t.Errorf("got %+v", s)
	}
	if _, err = w.Machine(ctx, "b", testID); fault.CodeOf(err) != "machine_not_found" {
		t.Errorf("another app's: %v", err)
	}
}

// realWorker is a worker with its journal and ledger, which runs until the test has ended.
func realWorker(t *testing.T, dir string) *worker.Worker {
	t.Helper()
	k, err := worker.New(t.Context(), worker.Options{ID: "w1", Region: "local", Dir: dir, Journal: mem.New(),
		Runtime:  fake.New(fake.Options{}),
		Capacity: cluster.Resources{CPU: 400, Memory: 2000, Disk: 10_000}})
	must(t, err)
	run, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := k.Run(run); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(wg.Wait)
	t.Cleanup(stop)
	return k
}
