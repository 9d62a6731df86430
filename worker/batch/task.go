package batch

import (
	"cmp"
	"context"
	"encoding/json"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/auction"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/devices"
)

// acceptGrant runs a granted task in its slot, or refuses with a reason.
func (r *Runner) acceptGrant(buyer cluster.WorkerID, g jobs.Grant) {
	name := g.Life.String()
	err := r.host.AdmitTask(r.ctx, taskOf(g.Life, g.Terms))
	r.mu.Lock()
	reply := jobs.Reply{Offer: jobs.Offer{Slot: g.Slot, Number: g.Granted.Offer}, Life: g.Life}
	reply.Unpaid = unpaidOf(err)
	r.answered++
	rival := r.keepers.RivalOf(buyer, g.Life)
	reply.Answer = r.slots.Answer(time.Now(), buyer, reply.Offer, g.Granted,
		err == nil && rival == nil && r.tasks[name] == nil && !r.evicted[name])
	if b := r.buyers[buyer]; b != nil {
		b.out.Replies = append(b.out.Replies, reply)
		if rival != nil {
			b.out.Rivals = append(b.out.Rivals, *rival)
		}
	}
	if reply.Answer != auction.Accept {
		runs := r.tasks[name] != nil
		delete(r.evicted, name)
		r.mu.Unlock()
		if err == nil && !runs {
			_ = r.host.ReleaseTask(r.ctx, name) // fails only when the worker ends
		}
		wakeUp(r.poke)
		return
	}
	t := newTask(g.Life, g.Slot)
	t.buyer = buyer
	r.slots.Bound(g.Slot, taskNeed(g.Life, g.Terms), time.Now(), g.Terms.Timeout)
	r.tasks[name] = t
	r.mu.Unlock()
	r.reportSoon()
	r.runTask(t, &g)
}

// unpaidOf returns how long to wait if a refusal says that a namespace cannot pay now; 0: it does not.
func unpaidOf(err error) time.Duration {
	if f := fault.As(err); f != nil && f.Scope == fault.ScopeQuota {
		return max(time.Second, f.RetryAfter)
	}
	return 0
}

// runTask runs a granted task that has its room, and reports its result.
func (r *Runner) runTask(t *task, g *jobs.Grant) {
	name := g.Life.String()
	spec := runtime.Spec{Machine: name, Attempt: uint64(g.Life.Attempt), Fresh: true, App: g.Terms.App,
		Image: cmp.Or(g.Terms.Image, machine.HostImage), Argv: g.Terms.Command,
		Env: g.Terms.Environ(g.Life, string(r.o.Worker)), Resources: g.Life.Shape(), SharedCPU: g.Terms.Shared,
		SwapMB: -1, Home: true}
	st, err := r.startLife(&spec, g)
	if r.ctx.Err() != nil {
		return // the next start finds out whether it runs
	}
	if err != nil {
		res := jobs.NewResult(g.Life, r.o.Worker)
		res.Code, res.Error, res.Ended = exitNotStarted, err.Error(), time.Now().UnixMicro()
		res.Lost = fault.Is(err, fault.Unavailable) || fault.Is(err, fault.Timeout)
		res.Began = res.Ended
		r.finishTask(t, res)
		return
	}
	r.mu.Lock()
	t.beganAt(st.StartedAt)
	r.slots.Bound(g.Slot, taskNeed(g.Life, g.Terms), t.began, g.Terms.Timeout)
	r.mu.Unlock()
	r.followTask(t, limitsOf(g.Terms))
}

// pullTime is how long an image may take to come: as long as a machine's.
const pullTime = 15 * time.Minute

// pullImage brings the image of a task to the host, if it has one and it is not there.
func (r *Runner) pullImage(s *runtime.Spec) error {
	if machine.IsHostImage(s.Image) {
		return nil
	}
	if len(s.Argv) > 0 { // as with souk run: the arguments of the image's entry point, if it has one
		s.Argv, s.Args = nil, s.Argv
	}
	s.Network = machine.NetworkOf(&machine.Config{Image: s.Image})
	p, is := r.o.Runtime.(runtime.Puller)
	if !is {
		return r.o.Runtime.CanRun(s.Image, "")
	}
	ctx, cancel := context.WithTimeout(r.ctx, pullTime)
	defer cancel()
	_, err := p.Pull(ctx, s.Machine, s.Image)
	return err
}

// startLife completes the spec of a life, and starts it.
func (r *Runner) startLife(spec *runtime.Spec, g *jobs.Grant) (st runtime.Status, err error) {
	if err := r.pullImage(spec); err != nil {
		return st, err
	}
	release, err := r.giveFiles(spec, g)
	if err != nil {
		return st, err
	}
	defer release()
	ctx, cancel := context.WithTimeout(r.ctx, effectTime)
	defer cancel()
	if err := r.giveDevices(ctx, g.Life, spec); err != nil {
		return st, err
	}
	if err := r.giveSecrets(ctx, g.Terms, spec); err != nil {
		return st, err
	}
	if err := r.giveUser(ctx, g.Terms, spec); err != nil {
		return st, err
	}
	return r.o.Runtime.Start(ctx, *spec)
}

// giveDevices adds the task's granted GPUs to its spec.
func (r *Runner) giveDevices(ctx context.Context, l jobs.Life, s *runtime.Spec) error {
	if l.GPUs == 0 {
		return nil
	}
	numbers, ids, err := r.host.TaskDevices(ctx, l.String())
	if err != nil {
		return err
	}
	s.Devices = ids
	for name, value := range lifecycle.DevicesEnv(numbers, ids) {
		s.Env = devices.SetEnv(s.Env, []string{name + "=" + value})
	}
	return nil
}

// giveSecrets adds the secrets that a task needs to its environment.
func (r *Runner) giveSecrets(ctx context.Context, t *jobs.Terms, s *runtime.Spec) error {
	if len(t.Secrets) == 0 {
		return nil
	}
	if r.o.Secrets == nil {
		return fault.New(fault.Unimplemented, fault.CodeSecret, "this worker has no secrets to give to tasks")
	}
	values, err := r.o.Secrets(ctx, t.App, t.SecretNames(), t.SecretsVersion)
	if err != nil {
		return err
	}
	s.Env = devices.SetEnv(t.SecretEnviron(values), s.Env) // what souk itself sets stays
	return nil
}

// exitNotStarted is the exit code of a task whose program could not be executed, as in a shell.
const exitNotStarted = 127

func newTask(l jobs.Life, slot int32) *task {
	return &task{life: l, slot: slot, exit: make(chan runtime.Exit, 1), end: make(chan string, 1),
		watch: make(chan limits, 1), evict: make(chan string, 1), began: time.Now(), known: time.Now()}
}

// beganAt records when the task began. If the runtime does not know (the zero time), it is when the runner first knew
// of the task, since the duration counts in the job's estimate and the namespace's budget. The runner's mu is held.
func (t *task) beganAt(at time.Time) {
	if !at.IsZero() {
		t.began = at
	}
}

// limits are what an attempt is ended by, and warned with before.
type limits struct {
	timeout time.Duration // 0: none
	warning jobs.Warning
}

func limitsOf(t *jobs.Terms) limits { return limits{t.Timeout, t.Warning} }

// set sets the timers to the limits of an attempt that began at a time.
func (l limits) set(began time.Time, late, warn *time.Timer) {
	if l.timeout == 0 {
		return
	}
	end := began.Add(l.timeout)
	late.Reset(time.Until(end))
	if l.warning.Signal != "" {
		warn.Reset(time.Until(end.Add(-time.Duration(l.warning.BeforeMS) * time.Millisecond)))
	}
}

// stoppedTimer returns a timer that does not run.
func stoppedTimer() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

// followTask waits for a task's exit, warns it, and ends it at its timeout or on request. souk may have been restarted
// since it began: a warning that is due is then sent, which may be the second time. If souk was away until the timeout
// was over, the task is warned all the same, and has endGrace until it is ended.
func (r *Runner) followTask(t *task, l limits) {
	name := t.life.String()
	late, warn := stoppedTimer(), stoppedTimer()
	defer late.Stop()
	defer warn.Stop()
	l.set(r.beganAt(t), late, warn)
	var timedOut, told, warned bool
	evicted := ""
	for {
		select {
		case <-r.ctx.Done():
			return // it runs on, and is found at the next start
		case l = <-t.watch:
			if !told && !timedOut && !warned { // otherwise the timer is a grace, or is set already
				l.set(r.beganAt(t), late, warn)
			}
		case <-warn.C:
			if !told && !timedOut && !warned {
				warned = true
				r.warnTask(name, l.warning.Signal)
				if !time.Now().Before(r.beganAt(t).Add(l.timeout)) { // both are due: it has its grace all the same
					late.Reset(endGrace)
				}
			}
		case <-late.C:
			if l.warning.Signal != "" && !told && !timedOut && !warned {
				warned = true
				r.warnTask(name, l.warning.Signal)
				late.Reset(endGrace)
				continue
			}
			hard := timedOut || told
			timedOut = timedOut || !told
			r.killTask(name, hard)
			late.Reset(endGrace)
		case evicted = <-t.evict:
			if !told && !timedOut {
				r.killTask(name, false)
				late.Reset(endGrace)
			}
			told = true
		case <-t.end:
			if !told && !timedOut {
				r.killTask(name, false)
				late.Reset(endGrace)
			}
			told = true
		case x := <-t.exit:
			res := jobs.NewResult(t.life, r.o.Worker)
			res.Code, res.Signal, res.OOM, res.Lost = x.Code, x.Signal, x.OOM, x.Lost || told && x.Code != 0
			res.TimedOut = timedOut && x.Code != 0
			res.Ended = x.At.UnixMicro()
			res.UsedCPU, res.PeakKiB = x.CPU.Microseconds(), x.MaxRSS>>10
			res.Began = min(res.Ended, r.beganAt(t).UnixMicro())
			if evicted != "" && res.Code != 0 && !timedOut {
				res.Lost, res.Evicted, res.Error = false, evicted, evicted
			} else if told && res.Lost {
				res.Error = "it was ended because it or its job was cancelled, or a newer attempt was begun"
			}
			r.finishTask(t, res)
			return
		}
	}
}

func (r *Runner) beganAt(t *task) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return t.began
}

// finishTask frees room and slot, offers the slot, and then reports the result with the task's output.
func (r *Runner) finishTask(t *task, res jobs.Result) {
	name := t.life.String()
	_ = r.host.ReleaseTask(r.ctx, name) // fails only when the worker ends
	r.mu.Lock()
	if t.slot >= 0 {
		r.slots.Free(time.Now(), t.slot)
	}
	waits := len(r.waiting) > 0
	r.mu.Unlock()
	if waits {
		wakeUp(r.serve)
	}
	if t.token != nil {
		r.reportEnded(*t.token)
	}
	wakeUp(r.poke)
	h := heldResult{result: res}
	r.keepFiles(name, &h.result)
	h.output, h.result.Cut = r.readOutput(name)
	r.mu.Lock()
	delete(r.tasks, name)
	h.buyer = t.buyer
	r.holdResult(name, h)
	few := len(r.tasks) < fewTasks
	r.mu.Unlock()
	if few { // somebody may wait for it
		wakeUp(r.poke)
	} else {
		r.reportSoon()
	}
}

// holdResult keeps a result until it is recorded, and reports it. The runner's mu is held.
func (r *Runner) holdResult(name string, h heldResult) {
	r.held[name] = h
	if b := r.buyers[h.buyer]; b != nil {
		b.countHeld(1, &h)
		b.out.Results = append(b.out.Results, h.result)
		b.out.Outputs = append(b.out.Outputs, h.output)
	}
}

// readOutput reads the end of a task's output as NDJSON; cut: there was more.
func (r *Runner) readOutput(name string) (out []byte, cut bool) {
	var lines []keptLine
	size, lost := 0, int64(0)
	ctx, cancel := context.WithTimeout(r.ctx, effectTime)
	defer cancel()
	err := r.o.Runtime.Logs(ctx, name, machine.LogQuery{}, func(l machine.LogLine) error {
		k := keptLine{line: l}
		if err := k.encodeKept(); err != nil {
			return err
		}
		lines = append(lines, k)
		for size += len(k.json); size > maxOutput && len(lines) > 1; cut = true {
			size -= len(lines[0].json)
			lost += lines[0].line.Lost + int64(len(lines[0].line.Raw()))
			lines = lines[1:]
		}
		return nil
	})
	if err != nil && !fault.Is(err, fault.NotFound) && r.ctx.Err() == nil { // a task that was never started has no log
		r.log.Warn("what a task wrote could not be read", "task", name, "err", err)
	}
	if len(lines) > 0 && lost > 0 {
		lines[0].line.Lost += lost
		_ = lines[0].encodeKept() // it could be encoded before
	}
	for _, l := range lines {
		out = append(out, l.json...)
	}
	return out, cut
}

// keptLine is a line of a task's output, and its JSON for the buyer.
type keptLine struct {
	line machine.LogLine
	json []byte
}

func (k *keptLine) encodeKept() error {
	k.line.Cursor = ""
	b, err := json.Marshal(k.line)
	k.json = append(b, '\n')
	return err
}

// Occupies implements worker.Tasks.
func (r *Runner) Occupies(name string) (cluster.Resources, bool) {
	if !jobs.IsLife(name) {
		return cluster.Resources{}, false
	}
	l, _ := jobs.ParseLife(name)
	return l.Shape(), true
}

// Exited implements worker.Tasks.
func (r *Runner) Exited(x runtime.Exit) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.tasks[x.Machine]
	if t == nil {
		l, ok := jobs.ParseLife(x.Machine)
		if _, held := r.held[x.Machine]; held || !ok {
			return
		}
		// It was started just before the previous process ended, or its removal is in progress: then the buyer
		// confirms its result once more.
		t = r.adoptLife(l, -1)
		t.began = x.At
	}
	select {
	case t.exit <- x:
	default: // a repeated exit
	}
}

// adoptLife adds a task for a running life, and follows it. The runner's mu is held.
func (r *Runner) adoptLife(l jobs.Life, slot int32) *task {
	t := newTask(l, slot)
	r.tasks[l.String()] = t
	if r.ctx != nil && !r.ended { // before Run, Run follows it
		r.wg.Go(func() { r.followTask(t, limits{}) })
	}
	return t
}

// Changed implements worker.Tasks.
func (r *Runner) Changed(rec *cluster.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range r.buyers {
		b.changed = true
	}
	if len(r.waiting) > 0 {
		wakeUp(r.serve)
	}
	r.reportSoon()
}

// Known implements worker.Tasks: before Run it takes up what runs, later it looks for what has drifted.
//
// A life that is prepared and does not run is a start that souk did not live to see the end of. It counts as running
// until a later look says otherwise.
func (r *Runner) Known(asked time.Time, lives []runtime.Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := r.ctx == nil
	seen := map[string]bool{}
	for _, s := range lives {
		_, held := r.held[s.Machine]
		l, ok := jobs.ParseLife(s.Machine)
		t := r.tasks[s.Machine]
		begun := s.Running || s.Exit != nil
		seen[s.Machine] = begun
		switch {
		case t != nil && begun && t.unsure:
			t.unsure = false // it was started after all
			t.beganAt(s.StartedAt)
		case t != nil || held:
		case !ok || !first && !begun:
			r.gone = append(r.gone, s.Machine) // nobody waits for it
		case !first && s.Exit == nil: // no task belongs to it
			r.adoptLife(l, -1).end <- "nobody had asked for it"
		case first:
			t = r.adoptLife(l, r.slots.Occupy())
			if t.unsure = !begun; begun {
				t.beganAt(s.StartedAt)
			}
			if s.Exit != nil {
				t.exit <- *s.Exit
			}
		}
	}
	for name, t := range r.tasks {
		patience := lostAfter
		if t.unsure {
			patience = unsureFor
		}
		if !first && !seen[name] && t.known.Before(asked.Add(-patience)) {
			select {
			case t.exit <- runtime.Exit{Machine: name, Attempt: uint64(t.life.Attempt), Code: -1, Lost: true,
				At: asked}:
			default:
			}
		}
	}
	if first && r.o.Kept != nil {
		r.o.Kept.SettleOthers(seen) // souk was killed before it did
	}
	wakeUp(r.drop)
}

// How long a start may take before an audit counts it as failed: one of this process, and one of the previous process.
const (
	lostAfter = effectTime
	unsureFor = 900 * time.Millisecond
)

// lookForLives looks, soon after the start, for lives that the previous process started in its last moment.
func (r *Runner) lookForLives() {
	for _, after := range []time.Duration{time.Second, 5 * time.Second, lostAfter} {
		t := time.NewTimer(after)
		select {
		case <-r.ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
		asked := time.Now()
		lives, err := r.o.Runtime.List(r.ctx)
		if err != nil {
			return // the worker's audit continues
		}
		var mine []runtime.Status
		for _, s := range lives {
			if jobs.IsLife(s.Machine) {
				mine = append(mine, s)
			}
		}
		r.Known(asked, mine)
	}
}
