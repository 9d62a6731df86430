package lifecycle_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

func termed(n uint64, member cluster.WorkerID) *cluster.Term {
	return &cluster.Term{Number: n, Member: member}
}

func web(index int, release string) *machine.Replica {
	return &machine.Replica{Group: "web", Index: index, Epoch: 3, Spec: "5bec", Release: release}
}

func ofTerm(t *cluster.Term) func(*lifecycle.Command) {
	return func(c *lifecycle.Command) { c.Term = t }
}

func asReplica(r *machine.Replica) func(*lifecycle.Command) {
	return func(c *lifecycle.Command) { c.Replica = r }
}

// termScenarios are orders of stewards, for the crash test: what one was obeyed with is not lost, and an order that was
// asked for again is the same order.
func termScenarios() []scenario {
	granted := create(func(g *lifecycle.Grant) { g.Term, g.Replica = termed(1, "w1"), web(0, "1a2b") })
	update := verb(lifecycle.Update, newConfig(false), ofTerm(termed(2, "w2")), asReplica(web(0, "9f8e")))
	old := verb(lifecycle.Stop, ofTerm(termed(1, "w9")))
	bad := func(w *world) { w.bad = true }
	fence := func(d *driver) uint64 {
		out, err := d.sup.Obey(d.now, "app", *termed(2, "w2"))
		if err != nil {
			d.w.violate("term 2 is refused: %v", err)
		}
		d.acked = ""
		d.take(out)
		return 0
	}
	return []scenario{
		{name: "orders of two stewards", want: machine.Started, acts: []act{granted, update, old}},
		{name: "a steward fences, and the other comes late", want: machine.Started, acts: []act{granted, fence, old}},
		{name: "an old steward's command waits", want: machine.Stopped, world: func(w *world) { w.anyAck = true },
			acts: []act{granted, meanwhile(verb(lifecycle.Stop, ofTerm(termed(2, "w2"))), old)}},
		{name: "bad update of a replica", want: machine.Started, world: bad, acts: []act{granted, update}},
		{name: "update of a replica without launch", want: machine.Stopped,
			acts: []act{granted, verb(lifecycle.Stop), verb(lifecycle.Update, newConfig(true),
				ofTerm(termed(2, "w2")), asReplica(web(0, "9f8e"))), old}},
	}
}

// TestOrdersOfOlderTermsAreRefused: an order of each kind passes where its term is the one in force or higher, and is refused
// with the term in force where it is lower.
func TestOrdersOfOlderTermsAreRefused(t *testing.T) {
	orders := map[string]func(d *driver, term *cluster.Term) error{
		"grant": func(d *driver, term *cluster.Term) error {
			return d.replies[d.grant(grantOf(v1, func(g *lifecycle.Grant) { g.Term = term }))].Err
		},
		"grant again": func(d *driver, term *cluster.Term) error {
			return d.replies[d.grant(grantOf(m1, func(g *lifecycle.Grant) { g.Term = term }))].Err
		},
		"obey": func(d *driver, term *cluster.Term) error {
			out, err := d.sup.Obey(d.now, "app", *term)
			d.take(out)
			return err
		},
	}
	for _, v := range []lifecycle.Verb{lifecycle.Start, lifecycle.Stop, lifecycle.Restart, lifecycle.Suspend,
		lifecycle.Signal, lifecycle.Update, lifecycle.Destroy, lifecycle.Cordon, lifecycle.Uncordon,
		lifecycle.SetMetadata, lifecycle.Resize} {
		orders[string(v)] = func(d *driver, term *cluster.Term) error {
			c := lifecycle.Command{Verb: v, App: "app", Machine: m1, Term: term, Kill: v == lifecycle.Destroy}
			switch v {
			case lifecycle.Signal:
				c.Signal = "SIGUSR1"
			case lifecycle.Destroy: // a steward kills only what is down
				d.do(lifecycle.Command{Verb: lifecycle.Stop, App: "app", Machine: m1})
				d.settle(time.Minute)
			case lifecycle.Update:
				newConfig(false)(&c)
			case lifecycle.Resize:
				c.Resize = &machine.Resize{CPUMilli: 100, MemoryMB: 64}
			}
			return d.replies[d.do(c)].Err
		}
	}
	for name, order := range orders {
		for _, tc := range []struct {
			term  *cluster.Term
			code  fault.Code
			after *cluster.Term // in force
		}{
			{termed(4, "w9"), "old_term", termed(5, "w2")},
			{termed(5, "w1"), "old_term", termed(5, "w2")},
			{termed(5, "w2"), "", termed(5, "w2")},
			{termed(5, "w3"), "", termed(5, "w3")},
			{termed(6, "w1"), "", termed(6, "w1")},
			{termed(0, "w1"), "term", termed(5, "w2")},
			{termed(1<<19, "w1"), "term", termed(5, "w2")},
			{termed(7, ""), "term", termed(5, "w2")},
		} {
			t.Run(fmt.Sprintf("%s of term %v", name, tc.term), func(t *testing.T) {
				d := newDriver(newWorld())
				create(func(g *lifecycle.Grant) { g.Term = termed(5, "w2") })(d)
				d.settle(0)
				err := order(d, tc.term)
				if fault.CodeOf(err) != tc.code {
					t.Fatalf("it is answered %v, want %q", err, tc.code)
				}
				if tc.code == "old_term" {
					in, _ := fault.Detail[cluster.Term](err)
					if in != *tc.after || fault.KindOf(err) != fault.Conflict ||
						!strings.Contains(err.Error(), tc.after.String()) {
						t.Errorf("the refusal is %v with %v", err, in)
					}
				}
				d.settle(0)
				d.boot() // and a restart finds the same
				if got := inForce(t, d); got != *tc.after {
					t.Errorf("term %v is in force, want %v", got, tc.after)
				}
			})
		}
	}
}

// inForce returns the term in force for the app by asking with the lowest there is.
func inForce(t interface{ Fatalf(string, ...any) }, d *driver) cluster.Term {
	_, err := d.sup.Obey(d.now, "app", cluster.Term{Number: 1, Member: "!"})
	in, ok := fault.Detail[cluster.Term](err)
	if !ok {
		t.Fatalf("no term is in force: %v", err)
	}
	return in
}

// TestCommandForAnotherInstanceChangesNothing: a command for an instance that the machine no longer has changes nothing, whatever it is.
func TestCommandForAnotherInstanceChangesNothing(t *testing.T) {
	for _, v := range []lifecycle.Verb{lifecycle.Start, lifecycle.Stop, lifecycle.Restart, lifecycle.Suspend,
		lifecycle.Signal, lifecycle.Update, lifecycle.Destroy, lifecycle.Cordon, lifecycle.SetMetadata,
		lifecycle.Resize} {
		d := newDriver(newWorld())
		create()(d)
		d.settle(0)
		was := d.sup.Machine("app", m1).InstanceID
		c := lifecycle.Command{Verb: v, App: "app", Machine: m1, Kill: true, Signal: "SIGUSR1", Expect: was,
			Resize: &machine.Resize{CPUMilli: 100, MemoryMB: 64}}
		newConfig(false)(&c)
		verb(lifecycle.Update, newConfig(false))(d)
		d.settle(0)
		is := d.sup.Machine("app", m1)
		if err := d.replies[d.do(c)].Err; fault.CodeOf(err) != "other_instance" || fault.KindOf(err) != fault.Conflict {
			t.Errorf("%s of an older instance is answered %v", v, err)
		}
		d.settle(0)
		if diff := cmp.Diff(is, d.sup.Machine("app", m1)); diff != "" {
			t.Errorf("%s of an older instance changes it: %s", v, diff)
		}
		c.Expect = is.InstanceID
		if err := d.replies[d.do(c)].Err; err != nil {
			t.Errorf("%s of its instance is answered %v", v, err)
		}
	}
}

// TestQueuedCommandChecksInstanceAfterUpdate: a command that waited for an update is for the instance before it.
func TestQueuedCommandChecksInstanceAfterUpdate(t *testing.T) {
	d := newDriver(newWorld())
	create()(d)
	d.settle(0)
	verb(lifecycle.Stop)(d)
	update := verb(lifecycle.Update, newConfig(false))(d)
	was := d.sup.Machine("app", m1).InstanceID
	stop := verb(lifecycle.Restart, func(c *lifecycle.Command) { c.Expect = was })(d)
	if _, answered := d.replies[stop]; answered {
		t.Fatal("it does not wait for its turn")
	}
	d.settle(0)
	if err := d.replies[update].Err; err != nil {
		t.Fatal(err)
	}
	if err := d.replies[stop].Err; fault.CodeOf(err) != "other_instance" {
		t.Errorf("it is answered %v", err)
	}
}

// TestReplicaFollowsGrantAndUpdate: a machine is the replica that its grant says, keeps that over updates that say nothing, and is
// another with the config of an update that says so; where that does not start it is the former one again.
func TestReplicaFollowsGrantAndUpdate(t *testing.T) {
	w := newWorld()
	d := newDriver(w)
	is := func(want *machine.Replica) {
		t.Helper()
		d.settle(0)
		d.boot()
		if diff := cmp.Diff(want, d.sup.Machine("app", m1).Replica); diff != "" {
			t.Error(diff)
		}
	}
	create(func(g *lifecycle.Grant) { g.Replica = web(0, "1a2b") })(d)
	is(web(0, "1a2b"))
	for _, v := range []lifecycle.Verb{lifecycle.Update, lifecycle.Resize} {
		if err := d.replies[verb(v, newConfig(false))(d)].Err; fault.CodeOf(err) != "replica" ||
			fault.KindOf(err) != fault.Precondition {
			t.Errorf("%s by somebody else than its steward is answered %v", v, err)
		}
	}
	is(web(0, "1a2b"))
	verb(lifecycle.Update, newConfig(false), ofTerm(termed(1, "w1")))(d)
	is(web(0, "1a2b"))
	verb(lifecycle.Update, newConfig(false), asReplica(web(0, "9f8e")), ofTerm(termed(1, "w1")))(d)
	if got := d.sup.Machine("app", m1).Replica; got.Release != "9f8e" {
		t.Errorf("the new config is of release %s", got.Release)
	}
	is(web(0, "9f8e"))
	w.bad = true
	verb(lifecycle.Update, newConfig(false), asReplica(web(0, "dead")), ofTerm(termed(1, "w1")))(d)
	is(web(0, "9f8e"))
	for name, err := range map[string]error{
		"grant": d.replies[d.grant(grantOf(v1, func(g *lifecycle.Grant) {
			g.Replica, g.Term = web(-1, "x"), termed(9, "w9")
		}))].Err,
		"update": d.replies[verb(lifecycle.Update, newConfig(true), asReplica(web(1000, "x")),
			ofTerm(termed(9, "w9")))(d)].Err,
		"stop": d.replies[verb(lifecycle.Stop, asReplica(web(1, "x")), ofTerm(termed(9, "w9")))(d)].Err,
	} {
		if fault.CodeOf(err) != "replica" || fault.KindOf(err) != fault.Invalid {
			t.Errorf("%s with an odd replica is answered %v", name, err)
		}
	}
	is(web(0, "9f8e"))
	if out, err := d.sup.Obey(d.now, "app", *termed(2, "w1")); err != nil || len(out.Records) == 0 {
		t.Errorf("bad orders have raised the term: %v", err)
	}
	if d.sup.Machine("app", v1) != nil {
		t.Error("a machine was made")
	}
}

// TestStewardKillsOnlyStoppedMachines: a machine that has come up since its steward looked is not killed, and serves on. Whoever
// is no steward kills it as it is.
func TestStewardKillsOnlyStoppedMachines(t *testing.T) {
	kill := lifecycle.Command{Verb: lifecycle.Destroy, App: "app", Machine: m1, Kill: true, Term: termed(5, "w2")}
	up := func() *driver {
		d := newDriver(newWorld())
		create(func(g *lifecycle.Grant) { g.Term = termed(5, "w2") })(d)
		d.settle(0)
		return d
	}
	d := up()
	if err := d.replies[d.do(kill)].Err; fault.CodeOf(err) != "wrong_state" {
		t.Errorf("a steward's kill of a machine that runs: %v", err)
	}
	d.settle(time.Minute)
	if m := d.sup.Machine("app", m1); m.State != machine.Started {
		t.Errorf("the machine is %s", m.State)
	}
	d.do(lifecycle.Command{Verb: lifecycle.Stop, App: "app", Machine: m1})
	if err := d.replies[d.do(kill)].Err; fault.CodeOf(err) != "wrong_state" {
		t.Errorf("a steward's kill of a machine that is being stopped: %v", err)
	}
	d.settle(time.Hour)
	if err := d.replies[d.do(kill)].Err; err != nil {
		t.Errorf("a steward's kill of a machine that is down: %v", err)
	}
	d, kill.Term = up(), nil
	if err := d.replies[d.do(kill)].Err; err != nil {
		t.Errorf("anybody's kill of a machine that runs: %v", err)
	}
}

// TestClientLaunchCannotClaimAReplica: what a client of the API sends cannot make a machine a replica, whose steward would then
// see to it.
func TestClientLaunchCannotClaimAReplica(t *testing.T) {
	var g lifecycle.Grant
	r, _ := json.Marshal(web(0, "1a2b"))
	text := fmt.Sprintf(`{"replica":%s,"config":{"image":"souk/host","replica":%s}}`, r, r)
	g = grantOf(m1)
	if err := json.Unmarshal([]byte(text), g.Launch); err != nil {
		t.Fatal(err)
	}
	d := newDriver(newWorld())
	d.grant(g)
	d.settle(0)
	if m := d.sup.Machine("app", m1); m == nil || m.Replica != nil {
		t.Errorf("it is %+v", m)
	}
}

// TestTermTableEvictsAppsWithoutMachines: where a worker keeps as many terms as it may, those of apps without machines here go, oldest
// first; where there are none of those, a new app is refused.
func TestTermTableEvictsAppsWithoutMachines(t *testing.T) {
	d := newDriver(newWorld())
	d.sup.SetMaxTerms(3)
	obey := func(app string) error {
		d.now = d.now.Add(time.Second)
		out, err := d.sup.Obey(d.now, app, *termed(5, "w1"))
		d.take(out)
		return err
	}
	kept := func() (out string) {
		for _, app := range []string{"app", "b", "c", "d", "e"} {
			if _, there := d.w.journal[lifecycle.TermBucket+"\x00"+app]; there {
				out += app + " "
			}
		}
		return out
	}
	create(func(g *lifecycle.Grant) { g.Term = termed(5, "w1") })(d)
	d.settle(0)
	for _, step := range []struct{ app, kept string }{{"b", "app b "}, {"c", "app b c "}, {"d", "app c d "},
		{"c", "app c d "}, {"e", "app d e "}} {
		if err := obey(step.app); err != nil {
			t.Fatal(err)
		}
		if got := kept(); got != step.kept {
			t.Errorf("after %s it keeps %q, want %q", step.app, got, step.kept)
		}
	}
	d.sup.SetMaxTerms(1)
	if err := obey("b"); fault.KindOf(err) != fault.Exhausted || kept() != "app d e " {
		t.Errorf("beyond the bound it answers %v, and keeps %q", err, kept())
	}
}

// TestLowerTermChangesNothingAfterHigher: with the orders of two stewards in any order and crashes in between, no
// order of the lower term changes anything after one of the higher term.
func TestLowerTermChangesNothingAfterHigher(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := newDriver(newWorld())
		d.w.anyAck = true
		stewards := []*cluster.Term{termed(1, "w2"), termed(uint64(rapid.IntRange(2, 3).Draw(t, "n")), "w1")}
		over := false // the second has been obeyed, and its answer heard
		order := func(t *rapid.T, i int, f func() error) {
			at := journalOf(d)
			err := f()
			switch {
			case i == 1 && fault.CodeOf(err) == "old_term":
				t.Fatalf("the higher term is refused: %v", err)
			case i == 1:
				over = true
			case over && fault.CodeOf(err) != "old_term":
				t.Fatalf("the lower term is obeyed: %v", err)
			case over && journalOf(d) != at:
				t.Fatalf("a refused order has changed\n%s to\n%s", at, journalOf(d))
			}
		}
		ids := rapid.SampledFrom([]string{m1, v1})
		t.Repeat(map[string]func(*rapid.T){
			"grant": func(t *rapid.T) {
				i := rapid.IntRange(0, 1).Draw(t, "steward")
				g := drawGrant(t, ids.Draw(t, "id"))
				g.Term, g.Replica = stewards[i], web(i, "r")
				order(t, i, func() error { return d.replies[d.grant(g)].Err })
			},
			"command": func(t *rapid.T) {
				i := rapid.IntRange(0, 1).Draw(t, "steward")
				c := drawCommand(t, ids.Draw(t, "id"))
				c.Term = stewards[i]
				order(t, i, func() error { return d.replies[d.do(c)].Err })
			},
			"obey": func(t *rapid.T) {
				i := rapid.IntRange(0, 1).Draw(t, "steward")
				order(t, i, func() error {
					out, err := d.sup.Obey(d.now, "app", *stewards[i])
					d.take(out)
					return err
				})
			},
			"step":  func(*rapid.T) { d.step() },
			"exit":  func(t *rapid.T) { d.end(ids.Draw(t, "id"), 1) },
			"crash": func(*rapid.T) { d.boot() },
			"": func(t *rapid.T) {
				for _, v := range d.w.violations {
					t.Fatal(v)
				}
				if over && inForce(t, d) != *stewards[1] {
					t.Fatalf("term %v is in force", inForce(t, d))
				}
			},
		})
	})
}

// journalOf returns all that is on disk or on its way there.
func journalOf(d *driver) string {
	return fmt.Sprint(d.w.records(), d.pending, len(d.effects), len(d.held))
}
