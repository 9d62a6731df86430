package lifecycle_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// digest is what every image's name means.
const digest = "sha256:ed9db1b8d7e0b7ab9e6c8f1c1e5a1b7c0c9a9c3f7f5d2a1b4c6d8e0f1a2b3c4d"

// volumesOf are the directories in which some images keep data.
var volumesOf = map[string][]string{"mail": {"/data/in", "/srv"}}

var epoch = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// world is all that outlives a crash of souk: the journal, and what the runtime runs. It executes effects as a real
// runtime does, idempotently, and complains about anything a runtime must never be asked.
type world struct {
	journal  map[string]fsm.Record
	procs    map[string]*proc
	dirs     map[string]bool
	volumes  map[string]bool
	exits    map[string]lifecycle.Exit // kept until acknowledged
	starts   map[string]int            // real process starts, by machine
	failures map[string][]error        // by effect kind: what the next ones answer
	cpu      map[string]int64          // what machines were granted; those that were updated count for nothing
	broken   string                    // the machine that never starts
	bad      bool                      // what an update makes of a machine never starts
	stubborn bool                      // ignores signals
	drains   []time.Duration           // that signals were to wait for requests
	awake    string                    // why nothing is suspended to disk; "": all is
	forgets  bool                      // no checkpoint is of any use
	// every process ends with code 3 at once, and its exit overtakes the launch's answer
	instant    bool
	ended      int                           // lives that have ended
	preempted  []machine.Preemption          // as the victims' events told, which are durable with the eviction
	tasks      map[string]lifecycle.Task     // that run beside the machines
	leaving    map[string]machine.Preemption // tasks that were asked to go, by name
	evicted    []machine.Preemption          // all of them, once each
	askedAgain int                           // times that one was asked again
	anyAck     bool                          // answers are not held against what a restart finds
	violations []string
}

type proc struct {
	attempt         uint64
	running, paused bool
	onDisk          bool
	want            cluster.Resources // that its config asked for when it was started
}

func newWorld() *world {
	return &world{journal: map[string]fsm.Record{}, procs: map[string]*proc{}, dirs: map[string]bool{},
		volumes: map[string]bool{},
		exits:   map[string]lifecycle.Exit{}, starts: map[string]int{}, cpu: map[string]int64{},
		tasks: map[string]lifecycle.Task{}, leaving: map[string]machine.Preemption{}, failures: map[string][]error{}}
}

func (w *world) commit(batch []fsm.Record) {
	for _, r := range batch {
		k := r.Bucket + "\x00" + r.Key
		if r.Value == nil {
			delete(w.journal, k)
		} else {
			w.journal[k] = r
		}
	}
}

func (w *world) records() []fsm.Record {
	var out []fsm.Record
	for _, k := range slices.Sorted(maps.Keys(w.journal)) {
		out = append(out, w.journal[k])
	}
	return out
}

func (w *world) lives() []lifecycle.Life {
	var out []lifecycle.Life
	for _, id := range slices.Sorted(maps.Keys(w.procs)) {
		if _, task := w.tasks[id]; task {
			continue // its worker tells of it apart
		}
		p := w.procs[id]
		_, kept := w.exits[id]
		out = append(out, lifecycle.Life{Machine: id, Attempt: p.attempt, PID: 100, Running: p.running,
			Paused: p.paused, OnDisk: p.onDisk, HasExit: kept, StartedAt: epoch})
	}
	return out
}

// end makes a machine's process end by itself.
func (w *world) end(id string, code, signal int, at time.Time) {
	p := w.procs[id]
	if p == nil || !p.running {
		return
	}
	p.running, p.paused, p.onDisk = false, false, false
	w.ended++
	w.exits[id] = lifecycle.Exit{Machine: id, Attempt: p.attempt, Code: code, Signal: signal, At: at}
}

func (w *world) violate(format string, args ...any) {
	w.violations = append(w.violations, fmt.Sprintf(format, args...))
}

// execute carries one effect out.
func (w *world) execute(e fsm.Effect, now time.Time) (any, error) {
	if f := w.failures[e.Kind]; len(f) > 0 {
		w.failures[e.Kind] = f[1:]
		if f[0] != nil {
			return nil, f[0]
		}
	}
	if v, ok := e.Args.(lifecycle.VolumeTarget); ok {
		switch e.Kind {
		case lifecycle.EffVolumeMake:
			w.volumes[v.Volume.ID] = true
			return true, nil
		case lifecycle.EffVolumeGrow:
			return false, nil
		case lifecycle.EffVolumeRemove:
			delete(w.volumes, v.Volume.ID)
		case lifecycle.EffVolumeCopy:
			return machine.Snapshot{ID: v.Snapshot, CreatedAt: now, Status: "created"}, nil
		}
		return nil, nil
	}
	t := e.Args.(lifecycle.Target)
	p := w.procs[t.ID]
	switch e.Kind {
	case lifecycle.EffPrepare:
		w.dirs[t.ID] = true
	case lifecycle.EffPull:
		w.dirs[t.ID] = true // it is kept until the machine is removed
		return lifecycle.Pulled{Digest: cmp.Or(t.Machine.ImageRef.Digest, digest),
			Volumes: volumesOf[t.Machine.Config.Image]}, nil
	case lifecycle.EffLaunch:
		if !machine.IsHostImage(t.Machine.Config.Image) && t.Machine.ImageRef.Digest != digest {
			w.violate("%s is started from %s, which is not what was pulled", t.ID, machine.Pinned(t.Machine))
		}
		return w.launch(t, p)
	case lifecycle.EffSignal:
		w.drains = append(w.drains, t.Drain)
		if p != nil && p.running && !w.stubborn && !p.paused {
			sig := cmp.Or(t.Signal, int(syscall.SIGINT))
			w.end(t.ID, 128+sig, sig, now)
		}
	case lifecycle.EffKill:
		w.end(t.ID, 137, 9, now)
	case lifecycle.EffPause, lifecycle.EffResume:
		if p == nil || !p.running {
			return nil, fault.New(fault.Precondition, "not_running", "nothing runs")
		}
		p.paused = e.Kind == lifecycle.EffPause
	case lifecycle.EffHibernate:
		if p == nil || !p.running || p.attempt != t.Attempt {
			return nil, fault.New(fault.Precondition, "not_running", "nothing runs")
		}
		p.paused, p.onDisk = true, w.awake == ""
		return lifecycle.Suspension{OnDisk: p.onDisk, Why: w.awake}, nil
	case lifecycle.EffWake:
		if p == nil || !p.running || p.attempt != t.Attempt {
			if w.forgets {
				return lifecycle.Waking{Forgotten: "it is gone"}, nil
			}
			return nil, fault.New(fault.Precondition, "not_running", "nothing runs")
		}
		if p.onDisk && w.forgets {
			w.end(t.ID, -1, 0, now)
			ex := w.exits[t.ID]
			ex.Lost = true
			w.exits[t.ID] = ex
			return lifecycle.Waking{Forgotten: "it is gone"}, nil
		}
		if p.onDisk {
			p.want = wanted(t.Machine.Config)
		}
		p.paused, p.onDisk = false, false
		return lifecycle.Waking{Life: lifecycle.Life{Attempt: p.attempt, PID: 100, StartedAt: epoch}}, nil
	case lifecycle.EffResize:
		if p != nil && p.running && p.attempt == t.Attempt { // else there is nothing to hold to anything
			p.want = wanted(t.Machine.Config)
		}
	case lifecycle.EffRemove:
		delete(w.procs, t.ID)
		delete(w.dirs, t.ID)
		delete(w.exits, t.ID)
	case lifecycle.EffAck:
		if ex, ok := w.exits[t.ID]; ok && ex.Attempt == t.Attempt {
			delete(w.exits, t.ID)
		}
	}
	return nil, nil
}

func (w *world) launch(t lifecycle.Target, p *proc) (any, error) {
	if t.Fresh {
		w.dirs[t.ID] = true
	}
	switch {
	case t.ID == w.broken, w.bad && t.Machine.Config.Env["NEW"] != "":
		return nil, fault.New(fault.Invalid, "no_program", "there is no such program")
	case !w.dirs[t.ID]:
		w.violate("launch of %s without a directory", t.ID)
	case p != nil && p.running && p.attempt != t.Attempt:
		w.violate("a second incarnation of %s: attempt %d while %d runs", t.ID, t.Attempt, p.attempt)
	case p != nil && p.attempt > t.Attempt:
		w.violate("attempt %d of %s after %d", t.Attempt, t.ID, p.attempt)
	}
	if p == nil || p.attempt != t.Attempt {
		w.starts[t.ID]++
		w.procs[t.ID] = &proc{attempt: t.Attempt, running: true, want: wanted(t.Machine.Config)}
		sum := int64(0)
		for id, p := range w.procs {
			if p.running && !p.onDisk {
				sum += w.cpu[id]
			}
		}
		if sum > capacity.CPU {
			w.violate("%s is started, and what runs has %d of %d CPUs", t.ID, sum, capacity.CPU)
		}
		if w.instant {
			w.end(t.ID, 3, 0, epoch)
		}
	}
	return lifecycle.Life{Attempt: t.Attempt, PID: 100, StartedAt: epoch}, nil
}

// crashed is thrown where a test stops souk.
type crashed struct{}

// driver runs a supervisor over a world as a worker's loop does, one thing at a time, and can stop it after any write
// to the journal and after any effect.
type driver struct {
	w       *world
	sup     *lifecycle.Supervisor
	now     time.Time
	seed    uint64
	pending []fsm.Record
	effects []fsm.Effect
	held    []fsm.Effect // until a commit
	replies map[uint64]lifecycle.Reply
	ticket  uint64
	points  int           // writes and effects so far
	crashAt int           // stop when points reaches it; 0: never
	acked   machine.State // what the newest answer promised, until something is asked
	ackedOf string        // and of which machine
	ended   int           // the world's count when it did, as far as it had been told
	told    int           // of the world's count
	limit   int64         // of what the worker promises
	trace   func(format string, args ...any)
}

func newDriver(w *world) *driver {
	d := &driver{w: w, now: epoch, seed: 1, replies: map[uint64]lifecycle.Reply{}, trace: func(string, ...any) {}}
	d.boot()
	return d
}

var capacity = cluster.Resources{CPU: 1000, Memory: 4096, Disk: 100 * 1024, Ports: 100}

// boot makes a new supervisor from what the world has kept, as a worker's start does.
func (d *driver) boot() {
	d.seed++
	d.sup = lifecycle.New(cluster.Record{Worker: "w1", Region: "local", State: cluster.Ready, Incarnation: d.seed,
		Capacity: capacity, MaxStarting: 100, PromiseLimit: d.limit},
		rand.New(rand.NewPCG(d.seed, 7)))
	d.pending, d.effects, d.held, d.replies = nil, nil, nil, map[uint64]lifecycle.Reply{}
	for _, r := range d.w.records() {
		switch err := d.sup.Restore(lifecycle.Decode(r)); {
		case fault.CodeOf(err) == "replay":
			d.trace("  parked: %v\n", err)
		case err != nil:
			d.w.violate("restore: %v", err)
		}
	}
	promised, starts := d.acked, d.w.starts[d.ackedOf]
	if d.w.anyAck || d.ended != d.w.ended {
		promised = ""
	}
	for _, name := range slices.Sorted(maps.Keys(d.w.tasks)) {
		d.sup.TaskKnown(name, d.w.tasks[name].Want)
	}
	d.take(d.sup.Recover(d.now, d.w.lives(), false))
	for _, id := range slices.Sorted(maps.Keys(d.w.exits)) { // told again until acknowledged
		d.take(d.sup.Exited(d.now, d.w.exits[id]))
	}
	if promised == "" {
		return
	}
	for d.step() { // it gets there by itself, at once, and without doing anything twice
	}
	if m := d.sup.Machine("app", d.ackedOf); m == nil || m.State != promised || d.w.starts[d.ackedOf] != starts {
		d.w.violate("the answer said %s, and after a restart it is %+v, with %d starts instead of %d", promised, m,
			d.w.starts[d.ackedOf], starts)
	}
}

// point is a moment at which souk may be stopped.
func (d *driver) point() {
	if d.points++; d.points == d.crashAt {
		panic(crashed{})
	}
}

// take does with an Out what the package comment demands.
func (d *driver) take(o lifecycle.Out) {
	d.pending = append(d.pending, o.Records...)
	if o.Sync {
		d.flush()
	}
	for _, c := range o.Cancels {
		d.effects = slices.DeleteFunc(d.effects, func(e fsm.Effect) bool { return e.Key == c })
	}
	for _, e := range o.Effects {
		if e.Durable && len(d.pending) > 0 {
			d.held = append(d.held, e)
		} else {
			d.effects = append(d.effects, e)
		}
	}
	for _, r := range o.Replies {
		d.replies[r.Ticket] = r
		if m := r.Outcome.Machine; m != nil && r.Err == nil && !m.State.Transient() {
			d.acked, d.ackedOf, d.ended = m.State, m.ID, d.told
		}
	}
	for _, e := range o.Events {
		if e.Type == "preempt" {
			d.w.preempted = append(d.w.preempted, e.Request.Preemptions[0])
		}
	}
	for _, p := range o.Evict {
		if _, there := d.w.tasks[p.Machine]; !there {
			d.w.violate("%+v is not there", p)
		}
		if d.w.leaving[p.Machine] = p; slices.Contains(d.w.evicted, p) {
			d.w.askedAgain++
		} else {
			d.w.evicted = append(d.w.evicted, p)
		}
	}
	d.trace("%s", describe(o))
	d.sup.Check()
	for id, p := range d.w.procs {
		if has := d.sup.Occupied(id); p.running && !p.onDisk && d.w.tasks[id].Name == "" && !p.want.Fits(has) {
			d.w.violate("%s runs with %v, and the ledger has %v for it", id, p.want, has)
		}
	}
	if len(o.Replies) > 0 {
		d.point() // right behind an answer: what it said must be durable
	}
}

// flush commits what is pending, and lets go of the effects that waited for it.
func (d *driver) flush() {
	if len(d.pending) > 0 {
		d.w.commit(d.pending)
		d.pending = nil
		d.point()
	}
	d.effects = append(d.effects, d.held...)
	d.held = nil
}

// step does the next thing there is to do; false: nothing but to wait for time.
func (d *driver) step() bool {
	if len(d.effects) == 0 && len(d.pending) > 0 {
		d.flush() // nothing else to do: what may wait has waited long enough
	}
	if len(d.effects) == 0 {
		return false
	}
	e := d.effects[0]
	d.effects = d.effects[1:]
	before := maps.Clone(d.w.exits)
	data, err := d.w.execute(e, d.now)
	d.point()
	if d.w.instant {
		d.tellExits(before)
	}
	if e.Seq != 0 {
		d.take(d.sup.Effected(d.now, fsm.Result{Key: e.Key, Seq: e.Seq, Err: err, Data: data}))
	}
	if !d.w.instant {
		d.tellExits(before)
	}
	return true
}

func (d *driver) tellExits(before map[string]lifecycle.Exit) {
	d.told = d.w.ended
	for _, id := range slices.Sorted(maps.Keys(d.w.exits)) {
		if ex := d.w.exits[id]; before[id] != ex {
			d.take(d.sup.Exited(d.now, ex))
		}
	}
}

// settle runs until nothing is left to do but what lies further than horizon in the future.
func (d *driver) settle(horizon time.Duration) {
	limit := d.now.Add(horizon)
	for n := 0; n < 10_000; n++ {
		if d.step() {
			continue
		}
		next := d.sup.Next()
		if next.IsZero() || next.After(limit) {
			return
		}
		if next.After(d.now) {
			d.now = next
		}
		d.take(d.sup.Tick(d.now))
	}
	d.w.violate("it never settles")
}

func (d *driver) send(f func(now time.Time, ticket uint64) lifecycle.Out) uint64 {
	d.ticket++
	d.acked = ""
	d.take(f(d.now, d.ticket))
	return d.ticket
}

func (d *driver) grant(g lifecycle.Grant) uint64 {
	if d.sup.Machine(g.Request.App, g.Request.Machine) == nil {
		d.w.cpu[g.Request.Machine] = g.Request.Resources.CPU
	}
	asks(g.Launch.Config, g.Request.Resources)
	return d.send(func(now time.Time, t uint64) lifecycle.Out { return d.sup.Grant(now, t, g) })
}

func (d *driver) do(c lifecycle.Command) uint64 {
	if c.Verb == lifecycle.Resize {
		delete(d.w.cpu, c.Machine)
	}
	if c.Verb == lifecycle.Update {
		delete(d.w.cpu, c.Machine)
		asks(c.Launch.Config, *c.Resources)
	}
	return d.send(func(now time.Time, t uint64) lifecycle.Out { return d.sup.Do(now, t, c) })
}

func (d *driver) volume(c lifecycle.VolumeCommand) uint64 {
	return d.send(func(now time.Time, t uint64) lifecycle.Out { return d.sup.Volume(now, t, c) })
}

// end makes a process end by itself, and tells the supervisor.
func (d *driver) end(id string, code int) {
	d.acked = ""
	d.w.end(id, code, 0, d.now)
	if ex, ok := d.w.exits[id]; ok {
		d.told = d.w.ended
		d.take(d.sup.Exited(d.now, ex))
	}
}

// asks writes into a config what is asked for it, so that the runtime sees what a process was started with.
func asks(c *machine.Config, r cluster.Resources) {
	if c.Metadata == nil {
		c.Metadata = map[string]string{}
	}
	c.Metadata["cpu"], c.Metadata["memory"] = fmt.Sprint(r.CPU), fmt.Sprint(r.Memory)
}

func wanted(c *machine.Config) (r cluster.Resources) {
	if c.Guest != nil {
		return machine.Resources(c)
	}
	fmt.Sscan(c.Metadata["cpu"], &r.CPU)
	fmt.Sscan(c.Metadata["memory"], &r.Memory)
	return r
}

// parkRuns makes the journal's runs look as another souk would have begun them.
func (w *world) parkRuns() (parked int) {
	for k, r := range w.journal {
		if r.Bucket == fsm.RunBucket && !strings.Contains(string(r.Value), `"older"`) {
			r.Value = []byte(strings.Replace(string(r.Value), `"steps":[`, `"steps":["older",`, 1))
			w.journal[k] = r
			parked++
		}
	}
	return parked
}

func config(edit ...func(*machine.Config)) *machine.Config {
	c := &machine.Config{Image: "souk/host", Init: machine.Init{Exec: []string{"/bin/sleep", "1000"}},
		Restart: &machine.Restart{Policy: "no"}}
	for _, f := range edit {
		f(c)
	}
	return c
}

func grantOf(id string, edit ...func(*lifecycle.Grant)) lifecycle.Grant {
	g := lifecycle.Grant{Request: placement.Request{App: "app", Machine: id,
		Resources: cluster.Resources{CPU: 100, Memory: 256}},
		Launch: &machine.Launch{Name: "m-" + id, Config: config()}, Region: "local"}
	for _, f := range edit {
		f(&g)
	}
	return g
}

// describe prints an Out for stories: what is written, done and answered.
func describe(o lifecycle.Out) string {
	s := ""
	if len(o.Records) > 0 {
		names := map[string]bool{}
		for _, r := range o.Records {
			verb := "+"
			if r.Value == nil {
				verb = "-"
			}
			names[verb+r.Bucket] = true
		}
		mode := "later"
		if o.Sync {
			mode = "fsync"
		}
		s += fmt.Sprintf("  write %v (%s)\n", slices.Sorted(maps.Keys(names)), mode)
	}
	for _, c := range o.Cancels {
		s += fmt.Sprintf("  cancel %s\n", c)
	}
	for _, e := range o.Effects {
		s += fmt.Sprintf("  effect %s %s\n", e.Kind, e.Key)
	}
	for _, e := range o.Events {
		text := ""
		if e.Request != nil && e.Request.ExitEvent != nil {
			x := e.Request.ExitEvent
			text = fmt.Sprintf(" code=%d requested=%v restarting=%v lost=%v", x.ExitCode, x.RequestedStop, x.Restarting,
				x.Lost)
		}
		if e.Message != "" {
			text += fmt.Sprintf(" %q", e.Message)
		}
		s += fmt.Sprintf("  event %s/%s by %s%s\n", e.Type, e.Status, e.Source, text)
	}
	replies := slices.Clone(o.Replies)
	slices.SortFunc(replies, func(a, b lifecycle.Reply) int { return cmp.Compare(a.Ticket, b.Ticket) })
	for _, r := range replies {
		switch {
		case r.Err != nil:
			s += fmt.Sprintf("  reply error %s %s: %v\n", fault.KindOf(r.Err), fault.CodeOf(r.Err), r.Err)
		case r.Outcome.Machine != nil:
			s += fmt.Sprintf("  reply %s (was %s)\n", r.Outcome.Machine.State, cmp.Or(string(r.Outcome.Previous), "-"))
		case r.Volume.ID != "":
			s += fmt.Sprintf("  reply volume %s\n", r.Volume.State)
		default:
			s += "  reply ok\n"
		}
	}
	return s
}
