package wire

import (
	"strings"
	"testing"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// TestStaleStewardIsFencedOverTheWire: a real worker refuses orders of an older term over the wire; the refusal
// carries the term in force as a cluster.Term.
func TestStaleStewardIsFencedOverTheWire(t *testing.T) {
	w, ctx := far(t, realWorker(t, t.TempDir())), t.Context()
	first, second := cluster.Term{Number: 4, Member: "m2"}, cluster.Term{Number: 5, Member: "m1"}
	g := aGrant(testID)
	g.Term, g.Replica = &first, &machine.Replica{Group: "web", Index: 1, Epoch: 2, Spec: "5bec", Release: "1a2b"}
	m, err := w.Grant(ctx, g)
	must(t, err)
	if m.Replica == nil || *m.Replica != *g.Replica {
		t.Errorf("the machine is replica %+v", m.Replica)
	}
	for range 2 {
		has, err := w.Obey(ctx, "a", second)
		must(t, err)
		if len(has) != 1 || has[0].ID != testID || has[0].Replica != *g.Replica || has[0].State != machine.Started {
			t.Errorf("the worker has %+v", has)
		}
	}
	stop := lifecycle.Command{Verb: lifecycle.Stop, App: "a", Machine: testID, Term: &first}
	_, old := w.Do(ctx, stop)
	other := aGrant("00000000000001")
	other.Launch.Name, other.Term = "other", &first
	_, granted := w.Grant(ctx, other)
	_, repeated := w.Grant(ctx, g)
	_, obeyed := w.Obey(ctx, "a", first)
	for _, err := range []error{old, granted, repeated, obeyed} {
		wantFault(t, err, fault.Conflict, "old_term")
		if in, ok := fault.Detail[cluster.Term](err); !ok || in != second {
			t.Errorf("the refusal carries %#v", fault.As(err).Detail)
		}
	}
	stop.Term, stop.Expect = &second, "01OTHER"
	_, err = w.Do(ctx, stop)
	wantFault(t, err, fault.Conflict, "other_instance")
	stop.Expect = m.InstanceID
	_, err = w.Do(ctx, stop)
	must(t, err)
}

// TestInvalidOrdersReachNoWorker: what no steward asks for is refused before the worker hears of it.
func TestInvalidOrdersReachNoWorker(t *testing.T) {
	k := newStub()
	w, ctx := far(t, k), t.Context()
	odd := &cluster.Term{Number: cluster.MaxTerm + 1, Member: "m1"}
	_, done := w.Do(ctx, lifecycle.Command{Verb: lifecycle.Stop, App: "a", Machine: testID, Term: odd})
	g := aGrant(testID)
	g.Term = odd
	_, granted := w.Grant(ctx, g)
	_, obeyed := w.Obey(ctx, "a", *odd)
	_, anybodys := w.Obey(ctx, "a", cluster.Term{Number: 1})
	for _, err := range []error{done, granted, obeyed, anybodys} {
		wantFault(t, err, fault.Invalid, "term")
	}
	replica := &machine.Replica{Group: "web", Index: machine.MaxReplicas, Spec: "5bec"}
	g = aGrant(testID)
	g.Replica = replica
	_, granted = w.Grant(ctx, g)
	_, done = w.Do(ctx, lifecycle.Command{Verb: lifecycle.Stop, App: "a", Machine: testID,
		Replica: &machine.Replica{Group: "web", Spec: "5bec"}})
	for _, err := range []error{granted, done} {
		wantFault(t, err, fault.Invalid, "replica")
	}
	_, err := w.Do(ctx, lifecycle.Command{Verb: lifecycle.Stop, App: "a", Machine: testID,
		Expect: strings.Repeat("x", maxName+1)})
	wantFault(t, err, fault.Invalid, "name")
	_, err = w.Obey(ctx, strings.Repeat("x", maxName+1), cluster.Term{Number: 1, Member: "m1"})
	wantFault(t, err, fault.Invalid, "name")
	if k.total() != 0 {
		t.Errorf("the worker was asked %d times", k.total())
	}
}
