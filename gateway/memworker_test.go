package gateway

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/fleet/find"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
)

// memWorker is a worker without processes: its machines are in their new state at once. It has a real ledger.
type memWorker struct {
	id   cluster.WorkerID
	mu   sync.Mutex
	rows map[string]*machine.Machine
	all  []string // ids in the order they were made
	vols map[string]*machine.Volume
	held map[string]machine.Lease
	sell *market.Seller
	last string
	rand *rand.Rand
	bell chan struct{} // closed and replaced at each change

	fleet *fleet.Fleet // is told of each change; nil: nobody is

	grants int                           // times Grant was asked
	before func(g lifecycle.Grant) error // asked first by Grant; an error is its answer
	after  func(g lifecycle.Grant) error // asked when the machine is made: an error is an answer that got lost
	down   error                         // the answer to everything while set
	exec   func(runtime.ExecRequest) (int, error)
	dial   func(port int) (runtime.Conn, error)
	lines  []machine.LogLine

	tasks    []lifecycle.Task
	images   []cluster.StoredImage
	noImages error                   // the answer where no images are kept
	pull     func(name string) error // asked at the end of each pull
}

func newMemWorker(id cluster.WorkerID, region cluster.Region, capacity cluster.Resources) *memWorker {
	return newMemWorkerWith(id, region, capacity, cluster.Attributes{})
}

// newMemWorkerWith makes a worker with attributes of its own.
func newMemWorkerWith(id cluster.WorkerID, region cluster.Region, capacity cluster.Resources,
	attributes cluster.Attributes) *memWorker {
	attributes[cluster.ContainersAttribute] = cluster.Text("runc")
	rec := cluster.Record{Worker: id, Region: region, State: cluster.Ready, Incarnation: 1, Capacity: capacity,
		Attributes: attributes}
	return &memWorker{
		id: id, rows: map[string]*machine.Machine{}, vols: map[string]*machine.Volume{},
		held: map[string]machine.Lease{},
		sell: market.NewSeller(rec), rand: rand.New(rand.NewPCG(1, uint64(len(id)))), bell: make(chan struct{}),
	}
}

func (w *memWorker) ID() cluster.WorkerID { return w.id }

// join has the worker tell a fleet of all that it has, and of what changes.
func (w *memWorker) join(f *fleet.Fleet) {
	w.mu.Lock()
	w.fleet = f
	all := slices.Clone(w.all)
	w.told("")
	for _, id := range all {
		w.mu.Lock()
		w.told(id)
	}
}

// told ends what was done under the lock, and tells the fleet of the worker and of a machine; "" for none. One that is
// down counts as gone.
func (w *memWorker) told(id string) {
	rec, m, state := w.sell.Record(time.Now()), w.rows[id], cluster.MemberAlive
	if w.down != nil {
		state = cluster.MemberDead
	}
	w.mu.Unlock()
	if w.fleet == nil {
		return
	}
	w.fleet.Update(func(e *fleet.Edit) {
		e.Member(fleet.Member{ID: w.id, State: state})
		e.Record(rec, 1)
		if m != nil {
			e.Machine(fleet.Summary(m))
		}
	})
}

// set changes the worker by the test's hand, and tells of it.
func (w *memWorker) set(change func()) {
	w.mu.Lock()
	change()
	w.told("")
}

func (w *memWorker) Record(context.Context) (cluster.Record, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sell.Record(time.Now()), w.down
}

func (w *memWorker) Quote(_ context.Context, r placement.Request) (market.Quote, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sell.Ask(time.Now(), r), w.down
}

func (w *memWorker) Grant(_ context.Context, g lifecycle.Grant) (*machine.Machine, error) {
	w.mu.Lock()
	defer func() { w.told(g.Request.Machine) }()
	w.grants++
	if w.before != nil {
		if err := w.before(g); err != nil {
			return nil, err
		}
	}
	if w.down != nil {
		return nil, w.down
	}
	id, l := g.Request.Machine, g.Launch
	if m := w.rows[id]; m != nil {
		return w.withNonce(m, l), nil
	}
	if err := w.sell.Grant(time.Now(), g.Request, g.Hold, g.Request.Start); err != nil {
		return nil, err
	}
	w.last = machine.NextULID(w.last, time.Now(), w.rand)
	name := l.Name
	if name == "" {
		name = machine.NewName(w.rand)
	}
	now := time.Now().UTC().Format(time.RFC3339)
	m := &machine.Machine{ID: id, App: g.Request.App, Name: name, State: machine.Created, Region: g.Region,
		InstanceID: w.last, Version: w.last,
		CreatedAt: now, UpdatedAt: now, Config: l.Config, HostStatus: "ok", Worker: w.id, Placement: g.Placement,
		UnixUser: l.UnixUser,
		Events:   []machine.Event{},
		ImageRef: machine.ParseImage(l.Config.Image), Cordoned: l.SkipServiceRegistration}
	w.rows[id], w.all = m, append(w.all, id)
	for _, mount := range l.Config.Mounts {
		if v := w.vols[mount.Volume]; v != nil {
			v.AttachedMachine = &m.ID
			w.sell.SetVolume(v.ID, v.App, id)
		}
	}
	if l.LeaseTTL > 0 {
		w.held[id] = machine.Lease{Nonce: "nonce-" + id, Owner: "the creator", Version: w.last,
			ExpiresAt: time.Now().Unix() + int64(l.LeaseTTL)}
	}
	w.note(m, "launch", machine.Created)
	if !l.SkipLaunch {
		w.note(m, "start", machine.Started)
	}
	if w.after != nil {
		if err := w.after(g); err != nil {
			return nil, err
		}
	}
	return w.withNonce(w.rows[id], l), nil
}

func (w *memWorker) withNonce(m *machine.Machine, l *machine.Launch) *machine.Machine {
	out := *m
	if l.LeaseTTL > 0 {
		out.Nonce = w.held[m.ID].Nonce
	}
	return &out
}

// note enters an event and the state it led to. The row is replaced: values handed out do not change.
func (w *memWorker) note(m *machine.Machine, kind string, s machine.State) *machine.Machine {
	next := *w.rows[m.ID]
	w.last = machine.NextULID(w.last, time.Now(), w.rand)
	e := machine.Event{ID: w.last, Type: kind, Status: string(s), Source: "user", Timestamp: time.Now().UnixMilli()}
	next.Events, next.State = slices.Concat([]machine.Event{e}, next.Events), s
	next.UpdatedAt = time.Now().UTC().Format(time.RFC3339Nano)
	w.rows[m.ID] = &next
	close(w.bell)
	w.bell = make(chan struct{})
	return &next
}

func (w *memWorker) get(app, id string) (*machine.Machine, error) {
	if w.down != nil {
		return nil, w.down
	}
	if m := w.rows[id]; m != nil && m.App == app {
		return m, nil
	}
	return nil, fault.New(fault.NotFound, "machine_not_found", "machine not found")
}

func (w *memWorker) checkLease(id, nonce string) error {
	l, ok := w.held[id]
	switch {
	case ok && nonce != l.Nonce:
		return fault.New(fault.Conflict, "lease_held", "machine ID %s lease currently held by %s, expires at %s", id,
			l.Owner, time.Unix(l.ExpiresAt, 0).UTC().Format(time.RFC3339))
	case !ok && nonce != "":
		return fault.New(fault.Conflict, "lease_nonce", "the lease nonce given for machine ID %s is not in force", id)
	}
	return nil
}

func (w *memWorker) Do(_ context.Context, c lifecycle.Command) (lifecycle.Outcome, error) {
	w.mu.Lock()
	defer func() { w.told(c.Machine) }()
	m, err := w.get(c.App, c.Machine)
	if err == nil {
		err = w.checkLease(c.Machine, c.Nonce)
	}
	if err != nil {
		return lifecycle.Outcome{}, err
	}
	out := lifecycle.Outcome{Machine: m, Previous: m.State}
	if m.State == machine.Destroyed {
		return out, fault.New(fault.Precondition, "wrong_state", "unable to %s machine from current state: 'destroyed'",
			c.Verb)
	}
	switch c.Verb {
	case lifecycle.Start:
		if err := w.sell.SetUp(time.Now(), m.ID, true); err != nil {
			return out, err
		}
		out.Machine = w.note(m, "start", machine.Started)
	case lifecycle.Stop, lifecycle.Signal:
		if err := w.sell.SetUp(time.Now(), m.ID, false); err != nil {
			return out, err
		}
		out.Machine = w.note(m, "stop", machine.Stopped)
	case lifecycle.Suspend: // it keeps its room
		out.Machine = w.note(m, "suspend", machine.Suspended)
	case lifecycle.Restart:
		out.Machine = w.note(m, "restart", machine.Started)
	case lifecycle.Cordon, lifecycle.Uncordon:
		next := *m
		next.Cordoned = c.Verb == lifecycle.Cordon
		w.rows[m.ID], out.Machine = &next, &next
	case lifecycle.Update:
		out.Machine, err = w.update(m, c)
	case lifecycle.SetMetadata:
		out.Machine = w.metadata(m, c)
	case lifecycle.Destroy:
		if m.State == machine.Started && !c.Kill {
			return out, fault.New(fault.Precondition, "wrong_state",
				"unable to destroy machine, not currently stopped or suspended")
		}
		out.Machine = w.note(m, "destroy", machine.Destroyed)
		w.sell.Free(m.ID)
		for _, v := range w.vols {
			if v.AttachedMachine != nil && *v.AttachedMachine == m.ID {
				v.AttachedMachine = nil
				w.sell.SetVolume(v.ID, v.App, "")
			}
		}
	}
	return out, err
}

func (w *memWorker) update(m *machine.Machine, c lifecycle.Command) (*machine.Machine, error) {
	if v := c.Launch.CurrentVersion; v != "" && v != m.InstanceID {
		return m, fault.New(fault.Conflict, "concurrent_update",
			"machine update failed due to concurrent update")
	}
	was := machine.Resources(m.Config)
	err := w.sell.Resize(time.Now(), m.ID, *c.Resources)
	if err == nil && !c.Launch.SkipLaunch {
		if err = w.sell.SetUp(time.Now(), m.ID, true); err != nil {
			if back := w.sell.Resize(time.Now(), m.ID, was); back != nil {
				panic(back)
			}
		}
	}
	if err != nil {
		f := fault.As(err)
		return m, &fault.Error{Kind: fault.Exhausted, Code: "no_capacity", Scope: fault.ScopeHost, Resource: "memory",
			Detail: f.Detail,
			Text: "could not reserve resource for machine: insufficient memory available to fulfill " +
				"request on the current host"}
	}
	next := *m
	w.last = machine.NextULID(w.last, time.Now(), w.rand)
	next.InstanceID, next.Version, next.Config = w.last, w.last, c.Launch.Config
	w.rows[m.ID] = &next
	w.note(m, "launch", machine.Created)
	return w.note(m, "start", machine.Started), nil
}

func (w *memWorker) metadata(m *machine.Machine, c lifecycle.Command) *machine.Machine {
	next := *m
	next.Config = m.Config.Clone()
	if next.Config.Metadata == nil || c.ReplaceMetadata {
		next.Config.Metadata = map[string]string{}
	}
	for k, v := range c.Metadata {
		if v == nil {
			delete(next.Config.Metadata, k)
		} else {
			next.Config.Metadata[k] = *v
		}
	}
	w.rows[m.ID] = &next
	return &next
}

func (w *memWorker) Lease(_ context.Context, c lifecycle.LeaseCommand) (machine.Lease, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m, err := w.get(c.App, c.Machine)
	if err == nil {
		err = w.checkLease(c.Machine, c.Nonce)
	}
	if err != nil {
		return machine.Lease{}, err
	}
	l, ok := w.held[m.ID]
	if c.Release {
		if !ok {
			return l, fault.New(fault.NotFound, "lease_not_found", "lease not found")
		}
		delete(w.held, m.ID)
		return l, nil
	}
	if !ok {
		l = machine.Lease{Nonce: fmt.Sprintf("nonce-%d", w.rand.Uint64()), Owner: c.Owner, Version: m.InstanceID}
	}
	l.ExpiresAt = time.Now().Add(c.TTL).Unix()
	w.held[m.ID] = l
	return l, nil
}

func (w *memWorker) CurrentLease(_ context.Context, app, id string) (machine.Lease, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, err := w.get(app, id); err != nil {
		return machine.Lease{}, err
	}
	if l, ok := w.held[id]; ok {
		return l, nil
	}
	return machine.Lease{}, fault.New(fault.NotFound, "lease_not_found", "lease not found")
}

// Obey is of no use to a gateway's own routes.
func (w *memWorker) Obey(context.Context, string, cluster.Term) ([]lifecycle.Replica, error) {
	return nil, w.down
}

func (w *memWorker) Machine(_ context.Context, app, id string) (*machine.Machine, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.get(app, id)
}

func (w *memWorker) Machines(_ context.Context, app string, destroyed bool) ([]*machine.Machine, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []*machine.Machine
	for _, id := range w.all {
		if m := w.rows[id]; (app == "" || m.App == app) && (destroyed || m.State != machine.Destroyed) {
			out = append(out, m)
		}
	}
	return out, w.down
}

func (w *memWorker) Keyed(_ context.Context, app, hash string) (*machine.Machine, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range w.rows {
		if m.App == app && m.KeyMark.Key() == hash {
			return m, w.down
		}
	}
	return nil, cmp.Or(w.down, find.NotFound(find.MachineMissing))
}

func (w *memWorker) Versions(_ context.Context, app, id string) ([]machine.Version, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m, err := w.get(app, id)
	if err != nil {
		return nil, err
	}
	return []machine.Version{{Version: m.InstanceID, CreatedAt: m.CreatedAt, Config: *m.Config}}, nil
}

func (w *memWorker) Watch(ctx context.Context, app, id string, f func(*machine.Machine) bool) error {
	for {
		w.mu.Lock()
		m, err := w.get(app, id)
		bell := w.bell
		w.mu.Unlock()
		if err != nil || !f(m) {
			return err
		}
		select {
		case <-bell:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (w *memWorker) Events(ctx context.Context, app string, f func(machine.EventOf) error) error {
	w.mu.Lock()
	seen, bell := w.last, w.bell
	w.mu.Unlock()
	if err := f(machine.EventOf{}); err != nil {
		return err
	}
	for {
		select {
		case <-bell:
		case <-ctx.Done():
			return ctx.Err()
		}
		w.mu.Lock()
		bell = w.bell
		var news []machine.EventOf
		for _, m := range w.rows {
			for _, e := range m.Events {
				if e.ID > seen && (app == "" || m.App == app) {
					news = append(news, machine.EventOf{App: m.App, Machine: m.ID, Name: m.Name, Event: e})
				}
			}
		}
		seen = w.last
		w.mu.Unlock()
		slices.SortFunc(news, func(a, b machine.EventOf) int { return cmp.Compare(a.ID, b.ID) })
		for _, e := range news {
			if err := f(e); err != nil {
				return err
			}
		}
	}
}

func (w *memWorker) Dial(ctx context.Context, app, id string, port int) (runtime.Conn, error) {
	if _, err := w.Machine(ctx, app, id); err != nil {
		return nil, err
	}
	if w.dial == nil {
		return nil, fault.New(fault.Unavailable, "no_listener", "nothing listens at port %d", port)
	}
	return w.dial(port)
}

func (w *memWorker) Exec(_ context.Context, app, id string, r runtime.ExecRequest) (int, error) {
	m, err := w.Machine(context.Background(), app, id)
	switch {
	case err != nil:
		return 0, err
	case m.State != machine.Started:
		return 0, fault.New(fault.Precondition, "wrong_state", "machine not running")
	case w.exec != nil:
		return w.exec(r)
	}
	fmt.Fprint(r.Stdout, strings.Join(r.Argv, "|"))
	return 0, nil
}

func (w *memWorker) Processes(_ context.Context, app, id string) ([]machine.Process, error) {
	if _, err := w.Machine(context.Background(), app, id); err != nil {
		return nil, err
	}
	return []machine.Process{{PID: 7, Command: "b", RSS: 2}, {PID: 3, Command: "a", RSS: 9}}, nil
}

func (w *memWorker) Logs(ctx context.Context, app, id string, q machine.LogQuery,
	emit func(machine.LogLine) error) error {
	lines := w.lines
	if q.Tail != nil {
		lines = lines[max(0, len(lines)-*q.Tail):]
	}
	for _, l := range lines {
		if err := emit(l); err != nil {
			return err
		}
	}
	if q.Follow {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

func (w *memWorker) CopyOut(_ context.Context, _, _, path string, out io.Writer) error {
	_, err := io.WriteString(out, "tar of "+path)
	return err
}

func (w *memWorker) CopyIn(_ context.Context, _, _, _ string, r io.Reader) error {
	_, err := io.Copy(io.Discard, r)
	return err
}

func (w *memWorker) Volumes(_ context.Context, app string) ([]machine.Volume, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := []machine.Volume{}
	for _, v := range w.vols {
		if app == "" || v.App == app {
			out = append(out, *v)
		}
	}
	slices.SortFunc(out, func(a, b machine.Volume) int { return cmp.Compare(a.ID, b.ID) })
	return out, w.down
}

func (w *memWorker) Volume(_ context.Context, c lifecycle.VolumeCommand) (machine.Volume, error) {
	w.mu.Lock()
	defer w.told("")
	v := w.vols[c.Volume]
	if c.Verb == "create" {
		room := cluster.Resources{Disk: int64(c.Spec.SizeGB) * 1024}
		if err := w.sell.GrantVolume(time.Now(), placement.Request{Machine: c.Volume, Resources: room,
			Namespace: c.Namespace}); err != nil {
			return machine.Volume{}, err
		}
		made := c.Spec
		made.ID, made.App, made.State, made.Worker, made.CreatedAt = c.Volume, c.App, "created", w.id, time.Now().UTC()
		w.vols[c.Volume] = &made
		w.sell.SetVolume(c.Volume, c.App, "")
		return made, nil
	}
	if v == nil || v.App != c.App {
		return machine.Volume{}, fault.New(fault.NotFound, "volume_not_found", "volume not found")
	}
	switch c.Verb {
	case "update":
		v.SnapshotRetention, v.AutoBackupEnabled = c.Spec.SnapshotRetention, c.Spec.AutoBackupEnabled
	case "extend":
		v.SizeGB = c.Spec.SizeGB
	case "snapshot":
		v.Snapshots = append(v.Snapshots, machine.Snapshot{ID: "vs_1", CreatedAt: time.Now().UTC(), Status: "created"})
	case "destroy":
		if v.AttachedMachine != nil {
			return *v, fault.New(fault.Precondition, "volume_attached",
				"volume %s is attached to machine %s; destroy the machine first", v.ID,
				*v.AttachedMachine)
		}
		delete(w.vols, v.ID)
		w.sell.ForgetVolume(v.ID, v.App)
	}
	return *v, nil
}

func (w *memWorker) Examine(context.Context) []cluster.Finding {
	return []cluster.Finding{{Name: "memory", OK: true, Have: "all in memory"}}
}

func (w *memWorker) Stats() WorkerStats {
	w.mu.Lock()
	defer w.mu.Unlock()
	states := map[machine.State]int{}
	for _, m := range w.rows {
		states[m.State]++
	}
	return WorkerStats{Record: w.sell.Record(time.Now()), States: states, RunsDone: map[string]uint64{"start/ok": 1},
		Refusals: map[string]uint64{"memory": 1}}
}

func (w *memWorker) RunningTasks(context.Context) ([]lifecycle.Task, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tasks, w.down
}

// Use is of machines that are up, each the same.
func (w *memWorker) Use(context.Context) ([]machine.Use, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.down != nil {
		return nil, w.down
	}
	var out []machine.Use
	for _, m := range w.rows {
		if m.State == machine.Started {
			out = append(out, machine.Use{Machine: m.ID, App: m.App, Name: m.Name, CPU: 7, MemoryMiB: 3, Processes: 1})
		}
	}
	return out, nil
}
