package gateway

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/broker"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/mesh/gossip"
	"github.com/soukhq/souk/mesh/pki"
	"github.com/soukhq/souk/mesh/wire"
)

// Cordon is a worker's own, without a journal.
func (w *memWorker) Cordon(_ context.Context, c lifecycle.CordonCommand) (cluster.Record, error) {
	w.mu.Lock()
	defer w.told("")
	if w.down != nil {
		return cluster.Record{}, w.down
	}
	var to *cluster.Cordon
	if !c.End {
		if c.Owner == "" || c.Reason == "" {
			return cluster.Record{}, fault.New(fault.Invalid, "cordon", "a cordon needs an owner and a reason")
		}
		to = &cluster.Cordon{Owner: c.Owner, Reason: c.Reason, Since: time.Now(), Drain: c.Drain}
	}
	w.sell.SetCordon(to)
	return w.sell.Record(time.Now()), nil
}

func TestCordonStopsPlacementOverTheAPI(t *testing.T) {
	s := newShop(t, newMemWorker("w1", "local", room), newMemWorker("w2", "local", room)).open()
	var rec cluster.Record
	s.want(200, "PUT", "/v1/souk/workers/w1/cordon", `{"owner":"ann","reason":"disks","ttl":60}`).into(t, &rec)
	if rec.State != cluster.Cordoned || rec.Cordon.Owner != "ann" {
		t.Fatalf("%+v", rec)
	}
	s.want(400, "PUT", "/v1/souk/workers/w1/cordon", `{"owner":"ann"}`)
	s.want(404, "PUT", "/v1/souk/workers/w9/cordon", `{"owner":"ann","reason":"disks"}`)
	for range 3 {
		if m := s.launch(hostLaunch); m.Worker != "w2" {
			t.Fatalf("placed at %s", m.Worker)
		}
	}
	rec = cluster.Record{}
	s.want(200, "DELETE", "/v1/souk/workers/w1/cordon", nil).into(t, &rec)
	if rec.State != cluster.Ready || rec.Cordon != nil {
		t.Fatalf("%+v", rec)
	}
}

// TestDrainMovesMachinesAsPlanned: the plan says of each machine what becomes of it and changes nothing; a move keeps what it should, raises
// the fencing token, and where nobody takes the machine it runs on where it was.
func TestDrainMovesMachinesAsPlanned(t *testing.T) {
	w1, w2 := newMemWorker("w1", "local", room), newMemWorker("w2", "local", room)
	s := newShop(t, w1, w2).open()
	w2.set(func() { w2.sell.SetCordon(&cluster.Cordon{Owner: "the test", Reason: "all begin at w1"}) })
	web := s.launch(`{"name":"web","config":{"image":"demo:1","metadata":{"k":"v"},"guest":{"cpus":1,"memory_mb":1024}}}`)
	down := s.launch(`{"name":"down","skip_launch":true,"config":{"image":"demo:1"}}`)
	s.launch(`{"name":"passing","config":{"image":"demo:1","auto_destroy":true}}`)
	s.launch(`{"name":"leased","lease_ttl":600,"config":{"image":"demo:1"}}`)
	w2.set(func() { w2.sell.SetCordon(nil) })
	var plan api.DrainPlan
	s.want(200, "GET", "/v1/souk/workers/w1/drain", nil).into(t, &plan)
	got := map[string]api.Fate{}
	for _, m := range plan.Moves {
		got[m.Name] = m.Fate
		if m.Fate == api.FateMoves && m.To != "w2" || m.Reason == "" {
			t.Errorf("%+v", m)
		}
	}
	if len(got) != 4 || got["web"] != api.FateMoves || got["down"] != api.FateMoves ||
		got["passing"] != api.FateStays || got["leased"] != api.FateStays {
		t.Fatal(got)
	}
	if w2.grants != 0 {
		t.Fatal("a plan asked for something")
	}
	s.want(412, "POST", "/v1/souk/apps/a/machines/passing/move", nil)

	w2.before = func(lifecycle.Grant) error { return fault.New(fault.Precondition, "image", "not here") }
	s.want(412, "POST", "/v1/souk/apps/a/machines/web/move", nil)
	if m := w1.rows[web.ID]; m.State != machine.Started {
		t.Fatalf("it is %s after a move that failed", m.State)
	}
	w2.before = nil
	var out api.Moved
	s.want(200, "POST", "/v1/souk/apps/a/machines/web/move", nil).into(t, &out)
	m := out.Machine
	if out.From != web.ID || m.ID == web.ID || m.Worker != "w2" || m.Name != "web" || m.State != machine.Started ||
		m.Config.Metadata["k"] != "v" ||
		m.Config.Metadata[broker.MetadataMoved] != web.ID || machine.FenceEpoch(m) != 1 ||
		w1.rows[web.ID].State != machine.Destroyed {
		t.Fatalf("%+v", m)
	}
	s.want(404, "POST", "/v1/souk/apps/a/machines/"+web.ID+"/move", nil)
	s.want(200, "POST", "/v1/souk/apps/a/machines/"+down.ID+"/move", nil).into(t, &out)
	if out.Machine.State == machine.Started || out.DownMS != 0 {
		t.Fatalf("it was down, and is %s", out.Machine.State)
	}
	s.want(200, "GET", "/v1/souk/apps/a/machines/web/explain", nil)
}

// TestDrainPlanListsTasksVolumesAndCrashLoops: a plan tells the tasks of each job and the volumes that stay; a machine that crashes again and
// again moves, and is to be started there; one that is being made is waited for.
func TestDrainPlanListsTasksVolumesAndCrashLoops(t *testing.T) {
	w1, w2 := newMemWorker("w1", "local", room), newMemWorker("w2", "local", room)
	s := newShop(t, w1, w2).open()
	w2.set(func() { w2.sell.SetCordon(&cluster.Cordon{Owner: "the test", Reason: "all begin at w1"}) })
	loop := s.launch(`{"name":"loop","config":{"image":"demo:1","restart":{"policy":"always"}}}`)
	young := s.launch(`{"name":"young","config":{"image":"demo:1"}}`)
	var vol machine.Volume
	s.want(200, "POST", "/v1/apps/a/volumes", `{"name":"data","size_gb":1}`).into(t, &vol)
	w2.set(func() { w2.sell.SetCordon(nil) })
	w1.set(func() {
		for id, state := range map[string]machine.State{loop.ID: machine.Restarting, young.ID: machine.Creating} {
			m := *w1.rows[id]
			m.State = state
			w1.rows[id] = &m
		}
		for _, l := range []jobs.Life{{Job: "j0000000001", Index: 4, Attempt: 1},
			{Job: "j0000000001", Index: 7, Attempt: 2}, {Job: "j0000000002", Index: 1, Attempt: 1}} {
			w1.tasks = append(w1.tasks, lifecycle.Task{Name: l.String(), App: "a"})
		}
	})
	var plan api.DrainPlan
	s.want(200, "GET", "/v1/souk/workers/w1/drain", nil).into(t, &plan)
	fates := map[string]api.Fate{}
	for _, m := range plan.Moves {
		fates[m.Name] = m.Fate
	}
	if len(fates) != 2 || fates["loop"] != api.FateMoves || fates["young"] != api.FateWaits {
		t.Errorf("%+v", plan.Moves)
	}
	tasks := []api.DrainTasks{{App: "a", Job: "j0000000001", Running: 2}, {App: "a", Job: "j0000000002", Running: 1}}
	if !slices.Equal(plan.Tasks, tasks) || plan.Running() != 3 || !slices.Equal(plan.Volumes, []string{vol.ID}) {
		t.Errorf("%+v", plan)
	}
	var out api.Moved
	s.want(200, "POST", "/v1/souk/apps/a/machines/loop/move", nil).into(t, &out)
	if out.Machine.State != machine.Started || out.Machine.Worker != "w2" ||
		w1.rows[loop.ID].State != machine.Destroyed {
		t.Errorf("%+v, and %s at w1", out.Machine, w1.rows[loop.ID].State)
	}
	s.want(412, "POST", "/v1/souk/apps/a/machines/young/move", nil)
}

// TestRepeatedMoveMakesNoThirdMachine: one that broke off before the old machine was destroyed makes no third machine.
func TestRepeatedMoveMakesNoThirdMachine(t *testing.T) {
	w1, w2 := newMemWorker("w1", "local", room), newMemWorker("w2", "local", room)
	s := newShop(t, w1, w2).open()
	w2.set(func() { w2.sell.SetCordon(&cluster.Cordon{Owner: "the test", Reason: "all begin at w1"}) })
	web := s.launch(`{"name":"web","config":{"image":"demo:1"}}`)
	w2.set(func() { w2.sell.SetCordon(nil) })
	w2.after = func(lifecycle.Grant) error { return fault.New(fault.Internal, "broken", "the gateway ended here") }
	if r := s.do("POST", "/v1/souk/apps/a/machines/"+web.ID+"/move", nil); r.code != 500 {
		t.Fatal(r.code, r.raw)
	}
	w2.after = nil
	s.want(200, "POST", "/v1/souk/apps/a/machines/"+web.ID+"/move", nil)
	if len(w2.rows) != 1 || w1.rows[web.ID].State != machine.Destroyed {
		t.Fatalf("%d machines", len(w2.rows))
	}
}

func TestDisconnectPolicyIsValidatedAndStored(t *testing.T) {
	s := newShop(t).open()
	path := "/v1/souk/apps/a/disconnect"
	if r := s.want(200, "GET", path, nil); !strings.Contains(r.raw, "never") {
		t.Fatal(r.raw)
	}
	s.want(400, "PUT", path, `{"policy":"quickly"}`)
	s.want(200, "PUT", path, `{"policy":"fenced"}`)
	if r := s.want(200, "GET", path, nil); !strings.Contains(r.raw, "fenced") {
		t.Fatal(r.raw)
	}
	s.want(404, "GET", "/v1/souk/apps/nobody/disconnect", nil)
	s.want(404, "PUT", "/v1/souk/apps/nobody/disconnect", `{"policy":"never"}`)
}

// reportingCluster is a cluster that a test makes up.
type reportingCluster struct {
	members []cluster.Member
	parts   []gossip.Part
	gaps    int // how often w2's part yet lacks something
	told    map[cluster.WorkerID][]gossip.Machine
	skew    time.Duration
	ends    time.Time
	removed []cluster.Removal
	left    bool
	unfit   error
}

func (c *reportingCluster) Members() []cluster.Member { return c.members }
func (c *reportingCluster) Doors() ([]cluster.Door, string) {
	return []cluster.Door{{Member: "w2", Addr: "https://10.0.0.2:4280"}}, "as of now"
}
func (c *reportingCluster) Parts() []gossip.Part {
	parts := slices.Clone(c.parts)
	if c.gaps > 0 {
		c.gaps--
		parts[1].Gap = true
	}
	return parts
}
func (c *reportingCluster) LastMachines(id cluster.WorkerID) []gossip.Machine { return c.told[id] }
func (c *reportingCluster) Calls() map[string]uint64                          { return map[string]uint64{"grant": 3} }
func (c *reportingCluster) Refused() map[string]int64                         { return map[string]int64{"unsigned": 2} }
func (c *reportingCluster) Expiry() []pki.Warning {
	return []pki.Warning{{What: "certificate", Level: pki.Fine, Text: "holds"}}
}
func (c *reportingCluster) Leave(context.Context) error { c.left = true; return nil }
func (c *reportingCluster) Remove(r cluster.Removal, _ bool) error {
	c.removed = append(c.removed, r)
	return nil
}
func (c *reportingCluster) Removed() []cluster.Removal { return c.removed }
func (c *reportingCluster) Unfit() error               { return c.unfit }
func (c *reportingCluster) Lives(_ context.Context, by cluster.Removal) error {
	c.removed = append(c.removed, by)
	return nil
}
func (c *reportingCluster) Hello(_ context.Context, id cluster.WorkerID) (wire.Greeting, error) {
	if id == "deaf" {
		return wire.Greeting{}, errors.New("no route")
	}
	return wire.Greeting{Now: time.Now().Add(c.skew), Ends: c.ends}, nil
}

// TestClusterHealthFindsEachProblem: each thing that can be wrong is found, and nothing is when all is well.
func TestClusterHealthFindsEachProblem(t *testing.T) {
	w1, w2 := newMemWorker("w1", "local", room), newMemWorker("w2", "local", room)
	s := newShop(t, w1, w2).open()
	c := &reportingCluster{ends: time.Now().Add(80 * 24 * time.Hour), told: map[cluster.WorkerID][]gossip.Machine{},
		members: []cluster.Member{{ID: "w1", State: cluster.MemberAlive, Self: true},
			{ID: "w2", State: cluster.MemberAlive}},
		parts: []gossip.Part{{Worker: "w1", State: cluster.MemberAlive}, {Worker: "w2", State: cluster.MemberAlive}}}
	s.with(func(o *Options) { o.Cluster = c })
	look := func() (bad []string) {
		t.Helper()
		var h api.Health
		s.want(200, "GET", "/v1/souk/health?thorough=true", nil).into(t, &h)
		for _, f := range h.Findings {
			if !f.OK {
				bad = append(bad, string(f.Member)+" "+f.Check)
			}
		}
		if h.OK != (len(bad) == 0) || h.Member != "w1" {
			t.Fatalf("%+v", h)
		}
		return bad
	}
	if bad := look(); len(bad) > 0 {
		t.Fatal(bad)
	}
	if c.gaps = 1; len(look()) > 0 {
		t.Fatal("a gap of a moment counts")
	}
	if c.gaps = 2; !slices.Equal(look(), []string{"w2 staleness"}) {
		t.Fatal("a gap that lasts does not count")
	}
	m := s.launch(hostLaunch)
	c.told[cluster.WorkerID(m.Worker)] = []gossip.Machine{{ID: m.ID, State: "started"}}
	if bad := look(); len(bad) > 0 {
		t.Fatal(bad)
	}
	for want, wrong := range map[string]func(){
		"w2 clock":       func() { c.skew = -time.Hour },
		"w2 certificate": func() { c.ends = time.Now().Add(20 * 24 * time.Hour) },
		"w2 staleness":   func() { c.parts[1].Age = time.Hour },
		"w2 member":      func() { c.members[1].State = cluster.MemberDead },
		"w2 cordon": func() {
			w2.set(func() {
				w2.sell.SetCordon(&cluster.Cordon{Owner: "ann",
					Reason: "disks"})
			})
		},
		m.Worker + " registry": func() {
			c.told[cluster.WorkerID(m.Worker)] = []gossip.Machine{{ID: m.ID, State: "stopped"}}
		},
	} {
		skew, ends := c.skew, c.ends
		wrong()
		if bad := look(); len(bad) != 1 || bad[0] != want {
			t.Errorf("%s: found %v", want, bad)
		}
		c.skew, c.ends, c.parts[1].Age, c.members[1].State = skew, ends, 0, cluster.MemberAlive
		c.told[cluster.WorkerID(m.Worker)] = []gossip.Machine{{ID: m.ID, State: "started"}}
		w2.set(func() { w2.sell.SetCordon(nil) })
	}
	c.told["w2"] = []gossip.Machine{{ID: m.ID, App: "a", State: "started"}}
	if r := s.want(412, "DELETE", "/v1/souk/members/w2?by=ann&reason=sold", nil); !strings.Contains(r.raw, m.ID) {
		t.Errorf("what is forgotten with the member is not named: %s", r.raw)
	}
	s.with(func(o *Options) { o.Tokens = roleTokens{} })
	r := s.want(412, "DELETE", "/v1/souk/members/w2?by=ann&forget_machines=true", nil)
	if !strings.Contains(r.raw, "ci (operator)") {
		t.Errorf("the tokens that end with the member are not named: %s", r.raw)
	}
	s.with(func(o *Options) { o.Tokens = nil })
	s.want(200, "DELETE", "/v1/souk/members/w2?by=ann&reason=sold&forget_machines=true", nil)
	if r := s.want(200, "GET", "/v1/souk/removed", nil); !strings.Contains(r.raw, "sold") {
		t.Fatal(r.raw)
	}
	// gossip forgets it later
	c.members[1].State, c.members[1].Removed, c.parts[1].Age = cluster.MemberDead, true, time.Hour
	var h api.Health
	s.want(200, "GET", "/v1/souk/health", nil).into(t, &h)
	for _, f := range h.Findings {
		if f.Member == "w2" && (!f.OK || f.Check == "member" || f.Check == "staleness") {
			t.Errorf("a member that was removed has a finding: %+v", f)
		}
	}
	if s.want(200, "POST", "/v1/souk/leave", nil); !c.left {
		t.Fatal("it stayed")
	}
	if r := s.want(200, "GET", "/metrics", nil); !strings.Contains(r.raw, `souk_view_age_seconds{worker="w2"}`) ||
		!strings.Contains(r.raw, `souk_view_members{state="dead"} 1`) ||
		!strings.Contains(r.raw, `souk_member_calls_total{call="grant"} 3`) {
		t.Fatal("no metrics of the cluster")
	}
	s.want(200, "GET", "/v1/souk/top", nil)
	s.with(func(o *Options) { o.Cluster = nil })
	s.want(412, "POST", "/v1/souk/leave", nil)
	s.want(412, "DELETE", "/v1/souk/members/w2", nil)
}

// TestUsageIsReadOnlyWhenRequested: a look at the workers reads what machines use only when that is wanted, and one
// worker that cannot tell does not keep the others from it.
func TestUsageIsReadOnlyWhenRequested(t *testing.T) {
	w1, w2 := newMemWorker("w1", "local", room), newMemWorker("w2", "local", room)
	s := newShop(t, w1, w2).open()
	m := s.launch(hostLaunch)
	var u api.UsageList
	s.want(200, "GET", "/v1/souk/top", nil).into(t, &u)
	for _, w := range u.Workers {
		if w.Use != nil {
			t.Errorf("use of %s is told to who did not ask", w.Worker)
		}
	}
	other := w1
	if m.Worker == "w1" {
		other = w2
	}
	uncallable(s, other)
	u = api.UsageList{}
	s.want(200, "GET", "/v1/souk/top?use=true", nil).into(t, &u)
	var told []machine.Use
	for _, w := range u.Workers {
		told = append(told, w.Use...)
	}
	if len(told) != 1 || told[0].Machine != m.ID || told[0].Name != m.Name || told[0].CPU != 7 {
		t.Errorf("use is told as %+v", told)
	}
	s.want(400, "GET", "/v1/souk/top?use=perhaps", nil)
}
