package lifecycle_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// act is one thing a client does; it is done again when souk was stopped before it answered, as a client would.
type act func(d *driver) (ticket uint64)

// m1 is the machine of every scenario.
const m1 = "d891275c2e5118"

type scenario struct {
	name  string
	want  machine.State // of the machine at the end; "" where there is none
	world func(w *world)
	acts  []act
}

func verb(v lifecycle.Verb, edit ...func(*lifecycle.Command)) act {
	return func(d *driver) uint64 {
		c := lifecycle.Command{Verb: v, App: "app", Machine: m1}
		for _, f := range edit {
			f(&c)
		}
		return d.do(c)
	}
}

func create(edit ...func(*lifecycle.Grant)) act {
	return func(d *driver) uint64 { return d.grant(grantOf(m1, edit...)) }
}

// Machines of lower rank, of which two fill the worker.
const (
	v1 = "11111111111111"
	v2 = "22222222222222"
)

func banded(band machine.Band, cpu int64) func(*lifecycle.Grant) {
	return func(g *lifecycle.Grant) {
		g.Launch.Scheduling = &machine.Scheduling{Band: band}
		g.Request.Scheduling, g.Request.Resources.CPU, g.Evict = *g.Launch.Scheduling, cpu, true
	}
}

func batch(id string, edit ...func(*lifecycle.Grant)) act {
	return func(d *driver) uint64 { return d.grant(grantOf(id, append(edit, banded(machine.BandBatch, 450))...)) }
}

func service(g *lifecycle.Grant) { banded(machine.BandService, 700)(g) }

func on(id string, v lifecycle.Verb) act {
	return func(d *driver) uint64 { return d.do(lifecycle.Command{Verb: v, App: "app", Machine: id}) }
}

func ends(code int) act {
	return func(d *driver) uint64 { d.end(m1, code); return 0 }
}

func cpus(n int64) func(*lifecycle.Grant) {
	return func(g *lifecycle.Grant) { g.Request.Resources.CPU = n }
}

func stubborn(w *world) { w.stubborn = true }

// meanwhile does then while what first asked for is still under way.
func meanwhile(first, then act) act {
	return func(d *driver) uint64 {
		first(d)
		return then(d)
	}
}

func vol(verb string) act {
	return func(d *driver) uint64 {
		return d.volume(lifecycle.VolumeCommand{Verb: verb, App: "app", Volume: "vol_1",
			Spec: machine.Volume{Name: "data", SizeGB: 1}})
	}
}

func skipLaunch(g *lifecycle.Grant) { g.Launch.SkipLaunch = true }
func withVolume(g *lifecycle.Grant) {
	g.Launch.Config.Mounts = []machine.Mount{{Volume: "vol_1", Path: "/data"}}
}
func ofImage(g *lifecycle.Grant) { g.Launch.Config.Image = "nginx" }
func kill(c *lifecycle.Command)  { c.Kill = true }
func restarts(g *lifecycle.Grant) {
	g.Launch.Config.Restart = &machine.Restart{Policy: "on-failure", MaxRetries: 2}
}
func autoDestroy(g *lifecycle.Grant)  { g.Launch.Config.AutoDestroy = true }
func withSignal(c *lifecycle.Command) { c.Signal = "SIGUSR1" }

func newConfig(skip bool) func(*lifecycle.Command) {
	return func(c *lifecycle.Command) {
		c.Launch = &machine.Launch{Config: config(func(c *machine.Config) { c.Env = map[string]string{"NEW": "1"} }),
			SkipLaunch: skip}
		c.Resources = &cluster.Resources{CPU: 200, Memory: 128}
	}
}

// shaped makes a machine of so much CPU, in thousandths, and 256 MiB; resize changes both.
func shaped(milli int, edit ...func(*lifecycle.Grant)) act {
	return create(append(edit, func(g *lifecycle.Grant) {
		g.Launch.Config.Guest = &machine.Guest{CPUKind: machine.Performance, CPUMilli: milli, MemoryMB: 256}
		g.Request.Resources = machine.Resources(g.Launch.Config)
	})...)
}

func resize(milli, memory int) act {
	return verb(lifecycle.Resize, func(c *lifecycle.Command) {
		c.Resize = &machine.Resize{CPUMilli: milli, MemoryMB: memory}
	})
}

// firstEnds ends the first life, however often it is asked for.
func firstEnds(d *driver) uint64 {
	if p := d.w.procs[m1]; p != nil && p.attempt == 1 {
		d.end(m1, 3)
	}
	return 0
}

func resizeScenarios() []scenario {
	transient := fault.New(fault.Unavailable, "x", "the runtime does not answer")
	inUse := fault.New(fault.Precondition, "memory_in_use", "it uses more")
	fails := func(errs ...error) func(w *world) {
		return func(w *world) { w.failures[lifecycle.EffResize] = errs }
	}
	busy := func(errs ...error) func(w *world) { // and whatever was answered is not held against a restart
		return func(w *world) { w.failures[lifecycle.EffResize], w.anyAck = errs, true }
	}
	return []scenario{
		{name: "resize that grows", want: machine.Started, acts: []act{shaped(300), resize(900, 512)}},
		{name: "resize that shrinks", want: machine.Started, acts: []act{shaped(900), resize(100, 64)}},
		{name: "resize that does both", want: machine.Started, acts: []act{shaped(300), resize(900, 64)}},
		{name: "resize to what it has", want: machine.Started, acts: []act{shaped(300), resize(300, 256)}},
		{name: "resize there and back", want: machine.Started, acts: []act{shaped(300), resize(900, 64),
			resize(300, 256)}},
		{name: "resize beyond what there is", want: machine.Started, acts: []act{shaped(300), resize(1001, 64)}},
		{name: "resize below what it uses", want: machine.Started,
			world: fails(inUse, inUse, inUse, inUse, inUse, inUse, inUse), acts: []act{shaped(300), resize(900, 64)}},
		{name: "resize after transient failures", want: machine.Started, world: fails(transient, transient),
			acts: []act{shaped(300), resize(900, 64)}},
		{name: "resize of a stopped one", want: machine.Started, acts: []act{shaped(300), verb(lifecycle.Stop),
			resize(900, 64), verb(lifecycle.Start)}},
		{name: "resize of a suspended one", want: machine.Started, acts: []act{shaped(300), verb(lifecycle.Suspend),
			resize(900, 64), verb(lifecycle.Start)}},
		{name: "resize, and it ends", want: machine.Stopped, world: busy(transient, transient),
			acts: []act{shaped(900), meanwhile(resize(300, 512), ends(3))}},
		{name: "resize, and it ends and is restarted", want: machine.Started, world: busy(transient, transient),
			acts: []act{shaped(900, restarts), meanwhile(resize(300, 512), firstEnds)}},
		{name: "resize, and it is destroyed", want: machine.Destroyed, world: busy(transient, transient),
			acts: []act{shaped(900), meanwhile(resize(300, 512), verb(lifecycle.Destroy, kill))}},
		{name: "resize, and it is updated", want: machine.Started, world: busy(),
			acts: []act{shaped(900), meanwhile(resize(300, 512), verb(lifecycle.Update, newConfig(false)))}},
		{name: "resize twice", want: machine.Started, world: busy(),
			acts: []act{shaped(900), meanwhile(resize(300, 512), resize(800, 128))}},
	}
}

func toDisk(c *lifecycle.Command) { c.ToDisk = true }

func sleepScenarios() []scenario {
	awake := func(w *world) { w.awake = "it has a terminal" }
	forgets := func(w *world) { w.forgets, w.anyAck = true, true }
	transient := fault.New(fault.Unavailable, "x", "the runtime does not answer")
	final := fault.New(fault.Invalid, "y", "the runtime does not want to")
	fails := func(kind string, errs ...error) func(w *world) {
		return func(w *world) { w.failures[kind] = errs }
	}
	never := []error{final, final, final, final}
	sleep, start := verb(lifecycle.Suspend, toDisk), verb(lifecycle.Start)
	return []scenario{
		{name: "to disk", want: machine.Suspended, acts: []act{create(), sleep}},
		{name: "to disk, as the config says", want: machine.Suspended, acts: []act{create(func(g *lifecycle.Grant) {
			g.Launch.Config.SuspendTo = machine.ToDisk
		}), verb(lifecycle.Suspend)}},
		{name: "to disk, where that cannot be", want: machine.Suspended, world: awake, acts: []act{create(), sleep}},
		{name: "to disk, which cannot be, and back", want: machine.Started, world: awake,
			acts: []act{create(), sleep, start}},
		{name: "to disk after transient failures", want: machine.Suspended,
			world: fails(lifecycle.EffHibernate, transient, transient), acts: []act{create(), sleep}},
		{name: "to disk, which fails", want: machine.Started, world: fails(lifecycle.EffHibernate, never...),
			acts: []act{create(), sleep}},
		{name: "to disk and back", want: machine.Started, acts: []act{create(), sleep, start}},
		{name: "to disk and back, twice", want: machine.Started, acts: []act{create(), sleep, start, sleep, start}},
		{name: "to disk, and it is started meanwhile", want: machine.Started,
			world: func(w *world) { w.anyAck = true }, acts: []act{create(), meanwhile(sleep, start)}},
		{name: "back, which fails", want: machine.Suspended, world: fails(lifecycle.EffWake, never...),
			acts: []act{create(), sleep, start}},
		{name: "back after transient failures", want: machine.Started, world: fails(lifecycle.EffWake, transient),
			acts: []act{create(), sleep, start}},
		{name: "back, and its memory is lost", want: machine.Started, world: forgets,
			acts: []act{create(), sleep, start}},
		{name: "stop of one on disk", want: machine.Stopped, acts: []act{create(), sleep, verb(lifecycle.Stop)}},
		{name: "restart of one on disk", want: machine.Started, acts: []act{create(), sleep, verb(lifecycle.Restart)}},
		{name: "update of one on disk", want: machine.Started,
			acts: []act{create(), sleep, verb(lifecycle.Update, newConfig(false))}},
		{name: "destroy of one on disk", want: machine.Destroyed,
			acts: []act{create(), sleep, verb(lifecycle.Destroy, kill)}},
		{name: "resize of one on disk", want: machine.Started, acts: []act{shaped(300), sleep, resize(900, 64), start}},
		{name: "its room is another's", want: machine.Suspended, acts: []act{create(cpus(900)), sleep, batch(v1),
			batch(v2), start}},
		{name: "it evicts who has its room", want: machine.Started, acts: []act{create(service), sleep,
			batch(v1, restarts), batch(v2), start}},
		{name: "on disk it is lost, and its room is another's", want: machine.Stopped,
			acts: []act{create(cpus(900), restarts), sleep, batch(v1), batch(v2), ends(1)}},
	}
}

func scenarios() []scenario {
	transient := fault.New(fault.Unavailable, "x", "the runtime does not answer")
	final := fault.New(fault.Invalid, "no_program", "there is no such program")
	fails := func(kind string, errs ...error) func(w *world) {
		return func(w *world) { w.failures[kind] = errs }
	}
	return []scenario{
		{name: "create", want: machine.Started, acts: []act{create()}},
		{name: "create of an image", want: machine.Stopped, acts: []act{create(ofImage), verb(lifecycle.Stop),
			verb(lifecycle.Start), verb(lifecycle.Stop)}},
		{name: "create of an image, not launched", want: machine.Started, acts: []act{create(ofImage, skipLaunch),
			verb(lifecycle.Start)}},
		{name: "create of an image that cannot be had", want: machine.Destroyed,
			world: fails(lifecycle.EffPull, final, final, final), acts: []act{create(ofImage)}},
		{name: "create of an image after transient failures", want: machine.Started,
			world: fails(lifecycle.EffPull, transient), acts: []act{create(ofImage)}},
		{name: "preempt for an image", want: machine.Started, acts: []act{batch(v1, restarts), batch(v2),
			create(service, ofImage)}},
		{name: "create, not launched", want: machine.Created, acts: []act{create(skipLaunch)}},
		{name: "create that cannot launch", want: machine.Destroyed, world: fails(lifecycle.EffLaunch, final, final,
			final), acts: []act{create()}},
		{name: "create after transient failures", want: machine.Started,
			world: fails(lifecycle.EffLaunch, transient, transient), acts: []act{create()}},
		{name: "create that cannot be prepared", want: machine.Destroyed,
			world: fails(lifecycle.EffPrepare, final, final, final), acts: []act{create(skipLaunch)}},
		{name: "start", want: machine.Started, acts: []act{create(skipLaunch), verb(lifecycle.Start)}},
		{name: "stop", want: machine.Stopped, acts: []act{create(), verb(lifecycle.Stop)}},
		{name: "stop of one that ignores signals", want: machine.Stopped, world: func(w *world) { w.stubborn = true },
			acts: []act{create(), verb(lifecycle.Stop)}},
		{name: "stop and start", want: machine.Started,
			acts: []act{create(), verb(lifecycle.Stop), verb(lifecycle.Start)}},
		{name: "restart", want: machine.Started, acts: []act{create(), verb(lifecycle.Restart)}},
		{name: "suspend", want: machine.Suspended, acts: []act{create(), verb(lifecycle.Suspend)}},
		{name: "suspend and resume", want: machine.Started, acts: []act{create(), verb(lifecycle.Suspend),
			verb(lifecycle.Start)}},
		{name: "stop of a suspended one", want: machine.Stopped, acts: []act{create(), verb(lifecycle.Suspend),
			verb(lifecycle.Stop)}},
		{name: "signal", want: machine.Stopped, acts: []act{create(), verb(lifecycle.Signal, withSignal)}},
		{name: "update of a running one", want: machine.Started,
			acts: []act{create(), verb(lifecycle.Update, newConfig(false))}},
		{name: "update of a stopped one", want: machine.Stopped,
			acts: []act{create(), verb(lifecycle.Stop), verb(lifecycle.Update, newConfig(true))}},
		{name: "update that launches", want: machine.Started,
			acts: []act{create(skipLaunch), verb(lifecycle.Update, newConfig(false))}},
		{name: "update that shrinks", want: machine.Started, world: stubborn,
			acts: []act{create(cpus(900)), verb(lifecycle.Update, newConfig(false))}},
		{name: "update that grows", want: machine.Started, world: stubborn,
			acts: []act{create(), verb(lifecycle.Update, newConfig(false))}},
		{name: "update that shrinks and does not launch", want: machine.Stopped, world: stubborn,
			acts: []act{create(cpus(900)), verb(lifecycle.Update, newConfig(true))}},
		{name: "update that shrinks, of one that cannot be killed", want: machine.Started, world: func(w *world) {
			w.stubborn, w.failures[lifecycle.EffKill] = true, []error{final, final, final, final, final, final, final,
				final, final}
		}, acts: []act{create(cpus(900)), verb(lifecycle.Update, newConfig(false))}},
		{name: "update that shrinks, and the machine is destroyed", want: machine.Destroyed, world: stubborn,
			acts: []act{create(cpus(900)), meanwhile(verb(lifecycle.Update, newConfig(false)),
				verb(lifecycle.Destroy, kill))}},
		{name: "two updates, one after the other", want: machine.Started,
			world: func(w *world) { w.stubborn, w.anyAck = true, true },
			acts: []act{create(cpus(900)), meanwhile(verb(lifecycle.Update, newConfig(false)),
				verb(lifecycle.Update, newConfig(false)))}},
		{name: "destroy while it starts", want: machine.Destroyed,
			acts: []act{create(skipLaunch), meanwhile(verb(lifecycle.Start), verb(lifecycle.Destroy, kill))}},
		{name: "destroy", want: machine.Destroyed,
			acts: []act{create(), verb(lifecycle.Stop), verb(lifecycle.Destroy)}},
		{name: "destroy by force", want: machine.Destroyed, acts: []act{create(), verb(lifecycle.Destroy, kill)}},
		{name: "exit", want: machine.Stopped, acts: []act{create(), ends(0)}},
		{name: "exits and the restart policy", want: machine.Stopped, acts: []act{create(restarts), ends(1), ends(1),
			ends(1)}},
		{name: "exits at once", want: machine.Stopped, world: func(w *world) { w.instant = true },
			acts: []act{create()}},
		{name: "exits at once, and is restarted", want: machine.Stopped, world: func(w *world) { w.instant = true },
			acts: []act{create(restarts)}},
		{name: "auto_destroy", want: machine.Destroyed, acts: []act{create(autoDestroy), ends(3)}},
		{name: "volume", acts: []act{vol("create"), vol("snapshot"), vol("destroy")}},
		{name: "preempt", want: machine.Started, acts: []act{batch(v1, restarts), batch(v2), create(service)}},
		{name: "preempt one that ignores signals", want: machine.Started, world: func(w *world) { w.stubborn = true },
			acts: []act{batch(v1), batch(v2), create(service)}},
		{name: "preempt a suspended one", want: machine.Started, acts: []act{batch(v1), on(v1, lifecycle.Suspend),
			batch(v2), create(service)}},
		{name: "preempt, and the beneficiary does not start", want: machine.Destroyed,
			world: func(w *world) { w.broken = m1 },
			acts:  []act{batch(v1, restarts), batch(v2), create(service)}},
		{name: "preempt, and the beneficiary is destroyed", want: machine.Destroyed,
			acts: []act{batch(v1, restarts), batch(v2), create(service), verb(lifecycle.Destroy, kill)}},
		{name: "preempt by a start", want: machine.Started, acts: []act{create(service), verb(lifecycle.Stop),
			batch(v1), batch(v2), verb(lifecycle.Start)}},
		{name: "machine on a volume", want: machine.Destroyed, acts: []act{vol("create"), create(withVolume),
			verb(lifecycle.Destroy, kill), vol("destroy")}},
	}
}

// breaks has a machine not start any more from now on.
func breaks(d *driver) uint64 { d.w.broken = m1; return 0 }

// revertScenarios are updates to a version that does not start.
func revertScenarios() []scenario {
	bad := func(w *world) { w.bad = true }
	never := func(w *world) { w.bad, w.stubborn = true, true }
	final := fault.New(fault.Invalid, "no_program", "there is no such program")
	update := verb(lifecycle.Update, newConfig(false))
	return []scenario{
		{name: "bad update", want: machine.Started, world: bad, acts: []act{create(), update}},
		{name: "bad update, and a good one", want: machine.Started, world: bad, acts: []act{create(), update,
			func(d *driver) uint64 { d.w.bad = false; return 0 }, update}},
		{name: "bad update that shrinks", want: machine.Started, world: never, acts: []act{create(cpus(900)), update}},
		{name: "bad update, and its room is wanted", want: machine.Started, world: never,
			acts: []act{create(cpus(900)), meanwhile(update, func(d *driver) uint64 {
				return d.grant(grantOf(v1, cpus(400)))
			})}},
		{name: "bad update that grows", want: machine.Started, world: never, acts: []act{create(cpus(100)), update}},
		{name: "bad update of a stopped one", want: machine.Stopped, world: bad,
			acts: []act{create(cpus(900)), verb(lifecycle.Stop), update}},
		{name: "bad update of one that was never started", want: machine.Created, world: bad,
			acts: []act{create(skipLaunch), update}},
		{name: "bad update of a suspended one", want: machine.Started, world: bad,
			acts: []act{create(), verb(lifecycle.Suspend), update}},
		{name: "bad update of one on disk", want: machine.Started, world: bad,
			acts: []act{create(), verb(lifecycle.Suspend, toDisk), update}},
		{name: "bad update between restarts", want: machine.Started,
			world: func(w *world) { w.bad, w.anyAck = true, true },
			acts:  []act{create(cpus(900), restarts), meanwhile(firstEnds, update)}},
		{name: "bad update that cannot be prepared", want: machine.Started, world: func(w *world) {
			w.bad, w.failures[lifecycle.EffPrepare] = true, []error{final, final, final}
		}, acts: []act{create(), update}},
		{name: "bad update of one with a volume", want: machine.Started, world: bad,
			acts: []act{vol("create"), create(withVolume), update}},
		{name: "update of one with a volume", want: machine.Started, acts: []act{vol("create"), create(withVolume),
			update, vol("destroy")}},
		{name: "bad update, and what was does not start either", want: machine.Stopped, world: bad,
			acts: []act{create(cpus(900)), breaks, update}},
		{name: "bad update, and it is destroyed", want: machine.Destroyed, world: never,
			acts: []act{create(cpus(900)), meanwhile(update, verb(lifecycle.Destroy, kill))}},
		{name: "bad update, and it is stopped", want: machine.Stopped, world: func(w *world) {
			w.bad, w.anyAck = true, true
		}, acts: []act{create(), meanwhile(update, verb(lifecycle.Stop))}},
	}
}

// play runs a scenario, stopped after the crashAt-th write or effect (0: never) and once more `again` points into the
// recovery (0: not), and gives its driver at the end.
func play(sc scenario, crashAt, again int) (d *driver) {
	w := newWorld()
	if sc.world != nil {
		sc.world(w)
	}
	d = newDriver(w)
	d.crashAt = crashAt
	rest := func(*driver) uint64 { return 0 }
	for _, a := range append(slices.Clone(sc.acts), rest) {
		for done := false; !done; {
			done = attempt(d, a)
			for back := done; !back; { // souk was stopped: it comes back, and the client asks again
				d.crashAt = 0
				if again > 0 {
					d.crashAt, again = d.points+again, 0
				}
				back = attempt(d, func(d *driver) uint64 { d.boot(); return 0 })
			}
		}
	}
	return d
}

// attempt does one act until it is answered; false: souk was stopped on the way.
func attempt(d *driver, a act) (done bool) {
	defer func() {
		if p := recover(); p != nil {
			if _, ok := p.(crashed); !ok {
				panic(p)
			}
			done = false
		}
	}()
	ticket := a(d)
	d.settle(10 * time.Minute)
	if _, answered := d.replies[ticket]; ticket != 0 && !answered {
		d.w.violate("a command was never answered")
	}
	return true
}

// facts is what must be the same at the end, crash or no crash.
func facts(d *driver) string {
	s := ""
	if m := d.sup.Machine("app", m1); m != nil {
		s += fmt.Sprintf("machine %s env=%v cordoned=%v\n", m.State, m.Config.Env, m.Cordoned)
		if m.Died {
			s += "it has died\n"
		}
		if m.Replica != nil {
			s += fmt.Sprintf("replica %+v\n", *m.Replica)
		}
		if m.Config.Guest != nil && m.State != machine.Destroyed {
			s += fmt.Sprintf("guest %+v\n", *m.Config.Guest)
			if p := d.w.procs[m1]; p != nil && p.running {
				s += fmt.Sprintf("its process has %v\n", p.want)
			}
		}
		for _, e := range m.Events {
			if e.Request != nil && e.Request.ExitEvent != nil && e.Request.ExitEvent.ExitCode < 100 {
				// kills may be repeated
				s += fmt.Sprintf("exit %d lost=%v\n", e.Request.ExitEvent.ExitCode, e.Request.ExitEvent.Lost)
			}
		}
	}
	for _, id := range []string{v1, v2} {
		if m := d.sup.Machine("app", id); m != nil {
			s += fmt.Sprintf("machine %s %s preempted=%v\n", id, m.State, m.Preempted)
		}
	}
	if v, exists := d.sup.VolumeOf("vol_1"); exists {
		s += fmt.Sprintf("volume %s attached=%v\n", v.State, v.AttachedMachine != nil)
	}
	for _, id := range slices.Sorted(maps.Keys(d.w.procs)) {
		if p := d.w.procs[id]; p.running {
			s += fmt.Sprintf("process of %s paused=%v", id, p.paused)
			if p.onDisk {
				s += ", on disk"
			}
			s += "\n"
		}
	}
	s += fmt.Sprintf("dirs %v volumes %v unacknowledged exits %d\n", d.w.dirs, d.w.volumes, len(d.w.exits))
	rec := d.sup.Record(d.now)
	return s + fmt.Sprintf("used %v, machines %d, starting %d\n", rec.Used, rec.Machines, rec.Starting)
}

// TestCrashAfterEveryWriteAndEffect stops souk after each journal write and each effect of every operation, starts it
// again from what is left, and holds the end against a run that was never stopped (invariants 2 and 3): the same state,
// no orphan, never a second incarnation.
func TestCrashAfterEveryWriteAndEffect(t *testing.T) {
	for _, sc := range slices.Concat(scenarios(), resizeScenarios(), sleepScenarios(), revertScenarios(),
		termScenarios()) {
		t.Run(sc.name, func(t *testing.T) {
			whole := play(sc, 0, 0)
			want := facts(whole)
			if m := whole.sup.Machine("app", m1); sc.want != "" && (m == nil || m.State != sc.want) {
				t.Fatalf("it ends %v, want %s", m, sc.want)
			}
			if len(whole.w.violations) > 0 {
				t.Fatalf("without a crash: %v", whole.w.violations)
			}
			for k := 1; k <= whole.points; k++ {
				for again := range 6 {
					d := play(sc, k, again)
					if len(d.w.violations) > 0 {
						t.Errorf("stopped after %d of %d and %d: %v", k, whole.points, again, d.w.violations)
					}
					if diff := cmp.Diff(want, facts(d)); diff != "" {
						t.Errorf("stopped after %d of %d and %d (-whole +stopped):\n%s", k, whole.points, again, diff)
					}
				}
			}
		})
	}
}
