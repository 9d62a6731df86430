package lifecycle_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/core/quota"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// taskOf is a task of an app in the namespace ml.
func taskOf(name, app string, band machine.Band, cpu int64) lifecycle.Task {
	return lifecycle.Task{Name: name, App: app, Namespace: "ml", Want: cluster.Resources{CPU: cpu},
		Scheduling: machine.Scheduling{Band: band, EvictionBudget: &budget}}
}

// begin has a task take its room, and run.
func (d *driver) begin(task lifecycle.Task) error {
	out, err := d.sup.AdmitTask(d.now, task)
	if err == nil {
		task.Since = d.now
		d.w.tasks[task.Name], d.w.cpu[task.Name] = task, task.Want.CPU
		d.w.procs[task.Name] = &proc{running: true} // so that what runs is added up
	}
	d.take(out)
	return err
}

// over ends a task, and gives its room back.
func (d *driver) over(name string) {
	delete(d.w.tasks, name)
	delete(d.w.procs, name)
	delete(d.w.leaving, name)
	d.take(d.sup.ReleaseTask(d.now, name))
}

// TestTasksMakeRoomForHigherRanks (invariant 7): tasks and machines of all bands crowd a worker; tasks begin and end, and are a while
// about it when they are evicted; souk crashes at any step, and hears only later whose the tasks are that run on. Only
// lower ranks go, within budgets; what runs never exceeds the worker; each task that is asked to go is stamped, is
// there, and is asked again after a crash; and in the end no machine waits.
func TestTasksMakeRoomForHigherRanks(t *testing.T) {
	evicted, crashes, asked := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		d := newDriver(newWorld())
		d.w.anyAck = true
		ids, n := []string{"aaaaaaaaaaaaa1", "aaaaaaaaaaaaa2", "bbbbbbbbbbbbb1"}, 0
		app := func(id string) string { return "app-" + id[:1] }
		bands := []machine.Band{machine.BandFree, machine.BandBatch, machine.BandService}
		for range rapid.IntRange(10, 80).Draw(t, "steps") {
			m := rapid.SampledFrom(ids).Draw(t, "id")
			names := slices.Sorted(maps.Keys(d.w.tasks))
			switch rapid.IntRange(0, 13).Draw(t, "what") {
			case 0, 1, 2:
				n++
				name := fmt.Sprintf("t%04d", n)
				if err := d.begin(taskOf(name, rapid.SampledFrom([]string{"jobs-a", "jobs-b"}).Draw(t, "app"),
					rapid.SampledFrom(bands).Draw(t, "band"),
					rapid.Int64Range(100, 400).Draw(t, "cpu"))); err != nil && !fault.Is(err, fault.Exhausted) {
					t.Fatal(err)
				}
			case 3, 4:
				if len(names) > 0 {
					d.over(rapid.SampledFrom(names).Draw(t, "task"))
				}
			case 5, 6, 7:
				if d.sup.Machine(app(m), m) != nil {
					d.do(lifecycle.Command{Verb: lifecycle.Start, App: app(m), Machine: m})
					break
				}
				d.grant(grantOf(m, func(g *lifecycle.Grant) {
					g.Request.App, g.Launch.Name, g.Evict = app(m), "", true
					g.Launch.Scheduling = drawScheduling(t)
					g.Request.Scheduling = *g.Launch.Scheduling
					g.Request.Resources = cluster.Resources{CPU: rapid.Int64Range(200, 900).Draw(t, "cpu")}
				}))
			case 8:
				d.do(lifecycle.Command{Verb: rapid.SampledFrom([]lifecycle.Verb{lifecycle.Stop,
					lifecycle.Destroy}).Draw(t, "verb"), App: app(m), Machine: m, Kill: true})
			case 9, 10:
				d.step()
			case 11:
				d.settle(time.Duration(rapid.IntRange(0, 40).Draw(t, "seconds")) * time.Second)
			case 12:
				d.now = d.now.Add(time.Duration(rapid.IntRange(1, 30).Draw(t, "seconds")) * time.Second)
				d.take(d.sup.Tick(d.now))
			case 13:
				waiting := maps.Clone(d.w.leaving)
				d.w.leaving = map[string]machine.Preemption{}
				d.boot()
				crashes++
				for name, p := range waiting { // it is asked again, unless nobody waits for it any more
					if by := d.sup.Machine(p.ByApp, p.By); d.w.leaving[name].Machine == "" && by != nil &&
						by.State.Transient() && d.sup.Leaving(name) != "" {
						t.Fatalf("%+v was forgotten", p)
					}
				}
				if rapid.Bool().Draw(t, "told") {
					for _, name := range slices.Sorted(maps.Keys(d.w.tasks)) {
						d.take(d.sup.AdoptTask(d.now, d.w.tasks[name]))
					}
				}
			}
			if rec := d.sup.Record(d.now); !rec.Used.Fits(capacity) {
				t.Fatalf("over-granted: %v of %v", rec.Used, capacity)
			}
		}
		for range 100 { // who is asked to go goes
			for _, name := range slices.Sorted(maps.Keys(d.w.leaving)) {
				d.over(name)
			}
			d.settle(time.Minute)
		}
		if len(d.w.violations) > 0 {
			t.Fatal(d.w.violations[0])
		}
		all := slices.Concat(d.w.preempted, d.w.evicted)
		slices.SortStableFunc(all, func(a, b machine.Preemption) int { return a.At.Compare(b.At) })
		if why := unjust(all); why != "" {
			t.Fatal(why)
		}
		evicted += len(d.w.evicted)
		asked += d.w.askedAgain
		for _, m := range ids {
			if mc := d.sup.Machine(app(m), m); mc != nil && mc.State.Transient() {
				t.Fatalf("%s is %s for ever: %+v", m, mc.State, mc.Events[0])
			}
		}
	})
	if evicted == 0 || crashes == 0 || asked == 0 {
		t.Errorf("the draws are poor: %d evictions, %d crashes, %d asked again", evicted, crashes, asked)
	}
	t.Logf("%d evictions of tasks, %d crashes, %d asked again", evicted, crashes, asked)
}

// TestServiceEvictsTheCheapestTask follows one eviction: a service that does not fit makes one of the tasks go, the cheapest,
// and takes its room the moment it is free. One that names no band does not.
func TestServiceEvictsTheCheapestTask(t *testing.T) {
	d := newDriver(newWorld())
	for i, band := range []machine.Band{machine.BandService, machine.BandBatch, machine.BandFree} {
		if err := d.begin(taskOf(fmt.Sprintf("t%d", i), "jobs", band, 300)); err != nil {
			t.Fatal(err)
		}
	}
	web := func(id string, band machine.Band) uint64 {
		ticket := d.grant(grantOf(id, func(g *lifecycle.Grant) {
			g.Evict, g.Launch.Name, g.Request.Resources = true, "", cluster.Resources{CPU: 400}
			g.Launch.Scheduling = &machine.Scheduling{Band: band}
			g.Request.Scheduling = *g.Launch.Scheduling
		}))
		return ticket
	}
	if e := fault.As(d.replies[web("aaaaaaaaaaaaa1", "")].Err); e == nil || e.Kind != fault.Exhausted {
		t.Fatalf("the default evicts nobody: %v", e)
	}
	web("aaaaaaaaaaaaa2", machine.BandService)
	d.settle(time.Second)
	if len(d.w.evicted) != 1 || d.w.evicted[0].Machine != "t2" || d.w.evicted[0].By != "aaaaaaaaaaaaa2" ||
		d.w.evicted[0].Rule != machine.RuleLowerRank ||
		!strings.Contains(d.w.evicted[0].String(), "preempted by machine aaaaaaaaaaaaa2") {
		t.Fatalf("%+v", d.w.evicted)
	}
	if m := d.sup.Machine("app", "aaaaaaaaaaaaa2"); m.State == machine.Started {
		t.Fatal("it runs before the room is there")
	}
	d.over("t2")
	d.settle(time.Second)
	if m := d.sup.Machine("app", "aaaaaaaaaaaaa2"); m.State != machine.Started {
		t.Fatalf("%+v", m)
	}
	if rec := d.sup.Record(d.now); rec.Used.CPU != 1000 || len(d.w.violations) > 0 {
		t.Fatalf("%v, %v", rec.Used, d.w.violations)
	}
}

// TestTasksAndVolumesAreCharged: a task costs what it occupies, by its band, as long as it runs, over a crash too; a
// volume its disk as long as it is there. What cannot be paid for is refused, or lent to where the budget says so, and
// never a volume.
func TestTasksAndVolumesAreCharged(t *testing.T) {
	d := newDriver(newWorld())
	d.w.anyAck = true
	price := quota.Price{PerHour: map[string]float64{"cpu": 1, "disk": 0.1}, Bands: perCPU.Bands}
	limit := func(b quota.Budget) {
		d.take(d.sup.Budgets(d.now, quota.Limits{Price: price, Budgets: map[string]quota.Budget{"ml": b}}))
	}
	spent := func() quota.Account { a, _ := d.sup.Account(d.now, "ml"); return a }
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 2e-2 {
			t.Fatalf("%s: %v, not %v", what, got, want)
		}
	}
	limit(quota.Budget{PerHour: 100, Burst: 100})
	if err := d.begin(taskOf("t1", "jobs", machine.BandBatch, 500)); err != nil {
		t.Fatal(err)
	}
	d.volume(lifecycle.VolumeCommand{Verb: "create", App: "app", Volume: "vol_1", Namespace: "ml",
		Spec: machine.Volume{SizeGB: 10}})
	d.settle(time.Second)
	near("rate", spent().Rate, 0.25+1) // half a core at half the price, and ten GiB
	d.now = d.now.Add(time.Hour)
	d.settle(quota.Every)
	near("spent", spent().Spent, 1.25)

	d.now = d.now.Add(time.Hour)
	d.boot() // an hour of both is not written yet, and neither is it known whose the task is
	limit(quota.Budget{PerHour: 100, Burst: 100})
	before := spent().Spent
	near("spent over a crash, of the volume, at the price that is in force until another is told", before,
		1.25+10*quota.DefaultPrice().PerHour["disk"])
	d.take(d.sup.AdoptTask(d.now, d.w.tasks["t1"]))
	d.take(d.sup.AdoptTask(d.now, d.w.tasks["t1"])) // told twice
	near("spent over a crash, of the task", spent().Spent, before+0.25)
	d.over("t1")
	near("rate without the task", spent().Rate, 1)
	d.volume(lifecycle.VolumeCommand{Verb: "extend", App: "app", Volume: "vol_1", Spec: machine.Volume{SizeGB: 20}})
	d.settle(time.Second)
	near("rate of the larger volume", spent().Rate, 2)
	if s := d.sup.Record(d.now).Spending["ml"]; s.Machines != 0 || s.Used.Disk != 20*1024 {
		t.Fatalf("neither is a machine: %+v", s)
	}

	limit(quota.Budget{PerHour: 1, Burst: 0.2})
	if e := fault.As(d.begin(taskOf("t2", "jobs", machine.BandService, 1000))); e == nil ||
		e.Scope != fault.ScopeQuota || !strings.Contains(e.Text, "quota: wanted") {
		t.Fatalf("%v", e)
	}
	no := d.volume(lifecycle.VolumeCommand{Verb: "create", App: "app", Volume: "vol_2", Namespace: "ml",
		Spec: machine.Volume{SizeGB: 10}})
	if e := fault.As(d.replies[no].Err); e == nil || e.Scope != fault.ScopeQuota ||
		!strings.HasPrefix(e.Text, "over the allowed quota: ") {
		t.Fatalf("%v", e)
	}
	no = d.volume(lifecycle.VolumeCommand{Verb: "extend", App: "app", Volume: "vol_1",
		Spec: machine.Volume{SizeGB: 40}})
	if e := fault.As(d.replies[no].Err); e == nil || e.Scope != fault.ScopeQuota {
		t.Fatalf("%v", e)
	}
	if err := d.begin(taskOf("t3", "jobs", machine.BandFree, 100)); err != nil {
		t.Fatal(err, "the free band is free")
	}
	limit(quota.Budget{PerHour: 1, Burst: 0.2, Lend: true})
	if err := d.begin(taskOf("t4", "jobs", machine.BandService, 300)); err != nil {
		t.Fatal(err)
	}
	near("rate beside one that is lent to", spent().Rate, 2)
	if e := d.sup.Record(d.now).Evictable; len(e) == 0 || e[0].Rank != machine.LentRank {
		t.Fatalf("%+v", e)
	}
	d.volume(lifecycle.VolumeCommand{Verb: "destroy", App: "app", Volume: "vol_1"})
	d.settle(time.Second)
	near("rate without the volume", spent().Rate, 0)
	d.now = d.now.Add(3 * time.Hour) // what was owed is made good
	d.settle(quota.Every)
	near("rate when it is paid for again", spent().Rate, 0.3)
}

// TestFailedLaunchFreesItsRoomOnce (invariant 1): the room of a start that failed goes to a task, which writes
// nothing; souk crashes before anything else is written, and its ledger does not have both.
func TestFailedLaunchFreesItsRoomOnce(t *testing.T) {
	w := newWorld()
	d := newDriver(w)
	d.grant(grantOf(m1, func(g *lifecycle.Grant) {
		g.Launch.SkipLaunch, g.Request.Resources.CPU = true, capacity.CPU
	}))
	d.settle(time.Second)
	d.do(lifecycle.Command{Verb: lifecycle.Start, App: "app", Machine: m1})
	d.silent(31 * time.Second)
	d.now = d.now.Add(time.Minute)
	d.take(d.sup.Tick(d.now)) // the kill that takes it back is asked for again
	e := d.effects[0]
	d.effects = nil
	d.take(d.sup.Effected(d.now, fsm.Result{Key: e.Key, Seq: e.Seq}))
	if err := d.begin(taskOf("t0001", "jobs", machine.BandBatch, capacity.CPU)); err != nil {
		t.Fatal(err)
	}
	d.boot()
	if rec := d.sup.Record(d.now); !rec.Used.Fits(capacity) {
		t.Fatalf("over-granted: %v of %v", rec.Used, capacity)
	}
}

// TestDevicesOfATaskAreDurableBeforeItBegins: else souk, killed then, would guess after its restart which devices the
// task has. Other tasks cost no write.
func TestDevicesOfATaskAreDurableBeforeItBegins(t *testing.T) {
	gpus := []cluster.GPU{{Kind: "a100", Free: 1000}, {Kind: "h200", Free: 1000}}
	sup := lifecycle.New(cluster.Record{Worker: "w", State: cluster.Ready, GPUs: gpus,
		Capacity: cluster.Resources{CPU: 4000}.Add(machine.DeviceResources(gpus))}, rand.New(rand.NewPCG(1, 2)))
	now := time.Unix(1_700_000_000, 0)
	task := taskOf("t1", "app", machine.BandBatch, 1000)
	if out, err := sup.AdmitTask(now, task); err != nil || out.Sync || len(out.Records) > 0 {
		t.Errorf("a task without devices: %v, %+v", err, out)
	}
	task = taskOf("t2", "app", machine.BandBatch, 1000)
	task.Want.GPU, task.GPUKind = 1000, "h200"
	task.Want.Named = map[string]int64{"gpu.h200": 1000}
	if out, err := sup.AdmitTask(now, task); err != nil || !out.Sync || len(out.Records) != 1 {
		t.Errorf("a task with a device: %v, %+v", err, out)
	}
	if numbers, _ := sup.TaskDevices("t2"); !slices.Equal(numbers, []int{1}) {
		t.Errorf("a task that asks for an h200 has the devices %v", numbers)
	}
	task.Name = "t3"
	if _, err := sup.AdmitTask(now, task); !fault.Is(err, fault.Exhausted) {
		t.Errorf("a second one has the only h200: %v", err)
	}
	sup.ReleaseTask(now, "t2")
	if _, err := sup.AdmitTask(now, task); err != nil {
		t.Errorf("after its end: %v", err)
	}
}
