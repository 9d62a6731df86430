package worker

import (
	"cmp"
	"context"
	"io"
	pathpkg "path"
	"slices"
	"strings"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
)

// ID returns the worker's ID.
func (w *Worker) ID() cluster.WorkerID { return w.o.ID }

// Record returns the worker's record as last published. Its maps are shared: read only.
func (w *Worker) Record(context.Context) (cluster.Record, error) {
	select {
	case <-w.loop.stopped:
		return cluster.Record{}, w.loop.errStopped()
	default:
		return *w.loop.record.Load(), nil
	}
}

// Quote returns what Grant would answer now, and reserves nothing.
func (w *Worker) Quote(ctx context.Context, r placement.Request) (market.Quote, error) {
	return readState(ctx, w.loop, func(now time.Time) (market.Quote, error) { return w.loop.sup.Ask(now, r), nil })
}

// Hold reserves room for a request and returns until when; see market.Seller. Holds are not journalled: a restart
// drops them, which costs a buyer one refusal.
func (w *Worker) Hold(ctx context.Context, c lifecycle.HoldCommand) (until time.Time, err error) {
	c.By = cmp.Or(c.By, w.o.ID)
	return readState(ctx, w.loop, func(now time.Time) (time.Time, error) { return w.loop.sup.Hold(now, c) })
}

// Release ends a hold.
func (w *Worker) Release(ctx context.Context, token string) error {
	return w.loop.inspectState(ctx, func(now time.Time) { w.loop.sup.Release(now, token) })
}

// Grant makes a machine and answers once it has started, or has failed to, or Patience has run out. The answer is
// durable.
func (w *Worker) Grant(ctx context.Context, g lifecycle.Grant) (*machine.Machine, error) {
	if g.Launch == nil || g.Launch.Config == nil {
		return nil, fault.New(fault.Invalid, machine.CodeConfig, "a machine needs a config")
	}
	if err := w.o.Runtime.CanRun(g.Launch.Config.Image, g.Launch.Config.Runtime); err != nil {
		return nil, nameWorker(err, w.o.ID)
	}
	var done func()
	g.Connection, done = w.machineConnection(ctx, g.Request.App, g.Request.Machine, g.Launch.Config)
	defer done()
	g.Connection.No = append(g.Connection.No, w.ownerClauses(ctx, g.Launch)...)
	r, err := w.loop.callSupervisor(ctx, func(now time.Time, ticket uint64) lifecycle.Out {
		return w.loop.sup.Grant(now, ticket, g)
	})
	if err != nil {
		return r.Outcome.Machine, err
	}
	nonce := ""
	if g.Launch.LeaseTTL > 0 {
		if l, err := w.CurrentLease(ctx, g.Request.App, g.Request.Machine); err == nil {
			nonce = l.Nonce
		}
	}
	return withAnswer(r.Outcome, nonce), nil
}

// withAnswer returns a machine with the fields that only an answer has.
func withAnswer(o lifecycle.Outcome, nonce string) *machine.Machine {
	if o.Begun == nil && nonce == "" {
		return o.Machine
	}
	m := *o.Machine
	m.Begun, m.Nonce = o.Begun, nonce
	return &m
}

// Do carries out a verb and answers when it is done, or when Patience has run out, that it has begun.
func (w *Worker) Do(ctx context.Context, c lifecycle.Command) (lifecycle.Outcome, error) {
	if c.Verb == lifecycle.Update && c.Launch != nil && c.Launch.Config != nil {
		if err := w.o.Runtime.CanRun(c.Launch.Config.Image, c.Launch.Config.Runtime); err != nil {
			return lifecycle.Outcome{}, nameWorker(err, w.o.ID)
		}
		var err error
		if c.Pulled, err = w.pullFor(ctx, c); err != nil {
			return lifecycle.Outcome{}, err
		}
		if err := w.mayBecome(ctx, c); err != nil {
			return lifecycle.Outcome{}, err
		}
		var done func()
		c.Connection, done = w.machineConnection(ctx, c.App, c.Machine, c.Launch.Config)
		defer done()
	}
	r, err := w.loop.callSupervisor(ctx, func(now time.Time, ticket uint64) lifecycle.Out {
		return w.loop.sup.Do(now, ticket, c)
	})
	if err != nil {
		return lifecycle.Outcome{}, err
	}
	if r.Outcome.Begun != nil {
		r.Outcome.Machine = withAnswer(r.Outcome, "")
	}
	return r.Outcome, nil
}

// mayBecome refuses an update whose start the runtime would refuse, as far as that is known before the machine is
// stopped: a refused update leaves the machine running.
func (w *Worker) mayBecome(ctx context.Context, c lifecycle.Command) error {
	r, ok := w.o.Runtime.(runtime.Checker)
	if !ok || c.Launch.SkipLaunch {
		return nil
	}
	was, err := w.liveMachine(ctx, c.App, c.Machine)
	if err != nil {
		return err
	}
	is := *was
	is.Config, is.ImageRef = c.Launch.Config, machine.ParseImage(c.Launch.Config.Image)
	if c.Pulled.Digest != "" {
		is.ImageRef.Digest = c.Pulled.Digest
	}
	spec, err := w.loop.effects.runtimeSpec(lifecycle.Target{ID: is.ID, App: is.App, Machine: &is,
		SkipSecrets: c.Launch.SkipSecrets}, true)
	if err == nil {
		err = r.Check(ctx, spec)
	}
	if err == nil {
		return nil
	}
	e := *fault.As(nameWorker(err, w.o.ID))
	e.Text = "machine " + c.Machine + " stays as it is, at version " + was.InstanceID + ": " + e.Text
	return &e
}

// pullFor pulls the image of an update's new config before anything is changed: the machine runs on during the pull,
// and is down only while its program starts. The caller waits as long as it likes; a repeated update continues an
// abandoned pull.
func (w *Worker) pullFor(ctx context.Context, c lifecycle.Command) (out lifecycle.Pulled, err error) {
	image := c.Launch.Config.Image
	p, ok := w.o.Runtime.(runtime.Puller)
	if !ok || machine.IsHostImage(image) {
		return out, nil
	}
	if _, err := w.Machine(ctx, c.App, c.Machine); err != nil {
		return out, err
	}
	pulled, err := p.Pull(ctx, c.Machine, image)
	w.imagesChanged()
	if ctx.Err() != nil {
		return out, fault.Wrap(
			err,
			fault.Timeout,
			codeImagePull,
			"the image %s is still being pulled, and machine %s is unchanged; ask again, and the pull continues",
			image,
			c.Machine,
		)
	}
	return lifecycle.Pulled(pulled), err
}

// Lease takes, refreshes or releases.
func (w *Worker) Lease(ctx context.Context, c lifecycle.LeaseCommand) (machine.Lease, error) {
	r, err := w.loop.callSupervisor(ctx, func(now time.Time, ticket uint64) lifecycle.Out {
		return w.loop.sup.Lease(now, ticket, c)
	})
	return r.Lease, err
}

// CurrentLease returns the lease in force; NotFound when there is none.
func (w *Worker) CurrentLease(ctx context.Context, app, id string) (machine.Lease, error) {
	return readState(ctx, w.loop, func(now time.Time) (machine.Lease, error) {
		return w.loop.sup.CurrentLease(now, app, id)
	})
}

// Keyed returns the machine of an app that was made under the Idempotency-Key with a hash, even if it is destroyed.
func (w *Worker) Keyed(_ context.Context, app, hash string) (*machine.Machine, error) {
	for _, e := range w.loop.view.listEntries(app, true) {
		if e.m.KeyMark.Key() == hash {
			return e.m, nil
		}
	}
	return nil, noMachine()
}

// Versions lists the configs a machine has had, newest first.
func (w *Worker) Versions(_ context.Context, app, id string) (v []machine.Version, err error) {
	e := w.loop.view.get(id)
	if e == nil || e.m.App != app {
		return nil, noMachine()
	}
	v = append(v, e.m.AsVersion())
	for _, old := range slices.Backward(e.versions) {
		v = append(v, old)
	}
	return v, nil
}

// Volumes lists an app's volumes, "" for all, by id.
func (w *Worker) Volumes(_ context.Context, app string) ([]machine.Volume, error) {
	return w.loop.view.volumesOf(app), nil
}

// Volume makes or changes a volume and answers when it is done.
func (w *Worker) Volume(ctx context.Context, c lifecycle.VolumeCommand) (machine.Volume, error) {
	r, err := w.loop.callSupervisor(ctx, func(now time.Time, ticket uint64) lifecycle.Out {
		return w.loop.sup.Volume(now, ticket, c)
	})
	return r.Volume, err
}

// runningMachine returns a machine that has a process now.
func (w *Worker) runningMachine(ctx context.Context, app, id string) (*machine.Machine, error) {
	m, err := w.liveMachine(ctx, app, id)
	if err == nil && m.State != machine.Started && m.State != machine.Stopping {
		return nil, fault.New(fault.Precondition, fault.CodeNotRunning,
			"machine not running; it is %s, so start it first", m.State)
	}
	return m, err
}

// liveMachine returns a machine that is not destroyed.
func (w *Worker) liveMachine(ctx context.Context, app, id string) (*machine.Machine, error) {
	m, err := w.Machine(ctx, app, id)
	if err == nil && m.State == machine.Destroyed {
		return nil, noMachine()
	}
	return m, err
}

// Exec runs a command beside the machine's main process and returns its exit code.
func (w *Worker) Exec(ctx context.Context, app, id string, r runtime.ExecRequest) (int, error) {
	if err := r.Check(); err != nil {
		return 0, err
	}
	if _, err := w.runningMachine(ctx, app, id); err != nil {
		return 0, err
	}
	code, err := w.o.Runtime.Exec(ctx, id, r)
	return code, nameWorker(err, w.o.ID)
}

// Processes lists a machine's processes; none if it does not run.
func (w *Worker) Processes(ctx context.Context, app, id string) ([]machine.Process, error) {
	if _, err := w.runningMachine(ctx, app, id); err != nil {
		return nil, err
	}
	return w.o.Runtime.Processes(ctx, id)
}

// Logs emits a machine's output; for a destroyed machine, the last of it as long as it is kept.
func (w *Worker) Logs(ctx context.Context, app, id string, q machine.LogQuery, emit func(machine.LogLine) error) error {
	m, err := w.Machine(ctx, app, id)
	if err != nil {
		return err
	}
	return w.readLogs(ctx, m, q, emit)
}

// CopyOut writes a path of the machine to out as a tar stream.
func (w *Worker) CopyOut(ctx context.Context, app, id, path string, out io.Writer) error {
	c, from, err := w.copierFor(ctx, app, id, path)
	if err != nil {
		return err
	}
	return c.CopyOut(ctx, from, out)
}

// CopyIn reads a tar stream into a path of the machine.
func (w *Worker) CopyIn(ctx context.Context, app, id, path string, in io.Reader) error {
	c, to, err := w.copierFor(ctx, app, id, path)
	if err != nil {
		return err
	}
	return c.CopyIn(ctx, to, in)
}

func (w *Worker) copierFor(ctx context.Context, app, id, path string) (runtime.Copier, runtime.Place, error) {
	at := runtime.Place{Machine: id, Path: path}
	m, err := w.liveMachine(ctx, app, id)
	if err != nil {
		return nil, at, err
	}
	c, ok := w.o.Runtime.(runtime.Copier)
	if !ok {
		return nil, at, fault.New(fault.Unimplemented, fault.CodeCopy,
			"the %s runtime cannot copy files; use exec with tar instead", w.o.Runtime.Name())
	}
	clean := pathpkg.Clean("/" + path)
	if slices.Contains(strings.Split(path, "/"), "..") { // the runtime describes the error
		return c, at, nil
	}
	for _, mt := range m.Config.Mounts {
		mount := pathpkg.Clean("/" + mt.Path)
		if rest, in := strings.CutPrefix(clean, mount); in && (rest == "" || rest[0] == '/') {
			d := disks{w.o.ID, w.o.Dir, w.o.Sized}
			at.Mount = &runtime.Mount{Volume: mt.Volume, Dir: d.volumeAt(mt.Volume), Path: mt.Path}
			at.Path = rest
		}
	}
	return c, at, nil
}

// Examine returns the worker's own findings for `souk doctor`.
func (w *Worker) Examine(ctx context.Context) []cluster.Finding {
	out := w.loop.pulse.examineNow(ctx)
	if why := w.o.Full(); why != nil {
		out = append(out, cluster.Finding{Name: "worker: its disk has room", Have: why.Error(),
			Advice: "list, stop and destroy work; souk takes new things by itself once there is room"})
	}
	held := "no volume and no machine has a limit of its own: each can fill the disk"
	if w.o.Sized {
		held = "a volume holds no more than its size; what a machine writes elsewhere can fill the disk"
	}
	out = append(out, cluster.Finding{Name: "worker: sizes of volumes and machines' files", OK: true, Have: held})
	if d, ok := w.o.Runtime.(runtime.Doctor); ok {
		bounded, cancel := context.WithTimeout(ctx, examineTime)
		defer cancel()
		out = append(out, d.Examine(bounded)...)
	}
	return append(out, w.o.Findings()...)
}

// Silence returns why the worker is unable to act now, as far as it has noticed; nil if it is able.
func (w *Worker) Silence() error { return w.loop.pulse.whySilent(unready * w.o.Pulse) }

// Stats are counters for metrics. They are zero once the worker has stopped.
func (w *Worker) Stats() (s lifecycle.Stats) {
	err := w.loop.inspectState(context.Background(), func(now time.Time) {
		s = w.loop.sup.Stats(now)
	})
	if err != nil {
		return lifecycle.Stats{}
	}
	c := &w.loop.commits
	s.Commits, s.Records, s.CommitTime = c.commits.Load(), c.records.Load(), time.Duration(c.nanos.Load())
	if h, ok := w.o.Runtime.(runtime.HostMeter); ok {
		s.Host = h.HostUse()
	}
	return s
}
