package member

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/soukhq/souk/broker"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/machine"
)

const (
	hers  = "00000000000001" // on m2
	third = "00000000000002" // on m3
	none  = "0000000000ffff" // nobody's
)

// kindOf gives the kind of an error as a word.
func kindOf(err error) string {
	if err == nil {
		return "ok"
	}
	return string(fault.KindOf(err))
}

// TestOnlyReachableWorkersAreAsked: a reachable worker answers for itself. A silent one is not asked; a machine that it
// may have is not called missing.
func TestOnlyReachableWorkersAreAsked(t *testing.T) {
	t.Parallel()
	x := newTown(t)
	a := x.add("m1")
	b := x.add("m2", started("web", hers, "one", "m2", 0))
	x.add("m3", started("web", third, "two", "m3", 0))
	x.meet()
	f := a.far("m2")

	machines := []struct{ app, id, heard, unheard string }{
		{"web", hers, "ok", "unavailable"},
		{"job", hers, "notfound", "notfound"},     // it is known whose it is, and that it is not of this app
		{"web", third, "notfound", "notfound"},    // it is known that another has it
		{"web", none, "notfound", "unavailable"},  // m2 may have made it the moment before
		{"job", none, "notfound", "unavailable"},  //
		{"web", "web", "notfound", "unavailable"}, // no id at all
	}
	for _, c := range machines {
		m, err := f.Machine(t.Context(), c.app, c.id)
		if got := kindOf(err); got != c.heard {
			t.Errorf("heard: %s/%s: %s, not %s", c.app, c.id, got, c.heard)
		}
		if err == nil && (m.HostStatus == "unreachable" || m.State != machine.Started) {
			t.Errorf("heard: %+v", m)
		}
	}
	if rec, err := f.Record(t.Context()); err != nil || rec.Worker != "m2" || rec.Capacity.CPU != 8000 {
		t.Errorf("its record: %+v, %v", rec, err)
	}

	b.end()
	waittest.Until(t, "m2 is dead", func() bool { return a.unheard("m2") })
	before := b.w.asked
	for _, c := range machines {
		_, err := f.Machine(t.Context(), c.app, c.id)
		if got := kindOf(err); got != c.unheard {
			t.Errorf("not heard: %s/%s: %s, not %s", c.app, c.id, got, c.unheard)
		}
	}
	_, listErr := f.Machines(t.Context(), "web", false)
	_, volumesErr := f.Volumes(t.Context(), "web")
	_, recErr := f.Record(t.Context())
	_, grantErr := f.Grant(t.Context(), lifecycle.Grant{Request: placement.Request{App: "web", Machine: none}})
	_, doErr := f.Do(t.Context(), lifecycle.Command{App: "web", Machine: hers})
	for what, err := range map[string]error{"record": recErr, "grant": grantErr, "do": doErr,
		"list": listErr, "volumes": volumesErr} {
		if !fault.Is(err, fault.Unavailable) || fault.CodeOf(err) != broker.CodeGone {
			// so that a buyer goes on to the next at once
			t.Errorf("%s: %v", what, err)
		}
	}
	if d := cmp.Diff(before, b.w.asked); d != "" {
		t.Error("a worker that is not heard was asked:", d)
	}
}

// TestEventStreamEndsWhenASilentWorkerReturns: the event stream of a silent worker is empty and ends when the worker
// returns, so that the listener lists again.
func TestEventStreamEndsWhenASilentWorkerReturns(t *testing.T) {
	t.Parallel()
	x := newTown(t)
	a, b := x.add("m1"), x.add("m2")
	x.meet()
	f := a.far("m2")
	b.end()
	waittest.Until(t, "m2 is dead", func() bool { return a.unheard("m2") })

	listen := func(ctx context.Context, emit func(machine.EventOf) error) (began chan bool, done chan error) {
		began, done = make(chan bool, 1), make(chan error, 1)
		go func() {
			done <- f.Events(ctx, "web", func(e machine.EventOf) error {
				began <- true
				return emit(e)
			})
		}()
		return began, done
	}
	fine := func(machine.EventOf) error { return nil }
	ctx, cancel := context.WithCancel(t.Context())
	began, done := listen(ctx, fine)
	<-began
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error("cancelled:", err)
	}
	deaf := errors.New("nobody listens")
	if _, done := listen(t.Context(), func(machine.EventOf) error { return deaf }); !errors.Is(<-done, deaf) {
		t.Error("the listener's own error is lost")
	}
	began, done = listen(t.Context(), fine)
	<-began
	x.run(b)
	if err := <-done; !fault.Is(err, fault.Unavailable) || fault.CodeOf(err) != "worker_back" {
		t.Error("when it is back:", err)
	}
}

// TestRestartRemembersOtherMembers: a restarted member knows the others from disk: it calls nothing missing that they
// may have, and lists them as unreachable workers.
func TestRestartRemembersOtherMembers(t *testing.T) {
	t.Parallel()
	x := newTown(t)
	a := x.add("m1")
	b := x.add("m2", started("web", hers, "one", "m2", 0))
	x.meet()
	waittest.Until(t, "m1 has written down who there is", func() bool {
		reopened, err := gossipSaved(a.dir)
		return err == nil && reopened["m2"] != ""
	})
	a.end()
	b.end()
	x.run(a)
	f := a.far("m2")
	if f == nil {
		t.Fatal("m2 is forgotten")
	}
	for _, id := range []string{hers, none} {
		if _, err := f.Machine(t.Context(), "web", id); !fault.Is(err, fault.Unavailable) {
			t.Errorf("%s: %v", id, err)
		}
	}
	x.run(b)
	x.meet()
	waittest.Succeed(t, "m2 answers", func() error {
		_, err := a.far("m2").Machine(t.Context(), "web", hers)
		return err
	})
	if _, err := a.far("m2").Machine(t.Context(), "web", none); !fault.Is(err, fault.NotFound) {
		t.Error("now that it can be asked:", err)
	}
}
