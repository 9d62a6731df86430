// Package fake is a runtime in memory: nothing runs, and every call is answered in microseconds as if it did.
//
// It understands a few commands (see script.go), enough for runtimetest, which tests it like the real runtimes. For
// tests of the layers above, it keeps a list of its effects, and lets a test fail or observe any call before and after
// its effect.
//
// Machines belong to the world, which all runtimes made by Reopen share: a test can drop a runtime at any moment, as
// kill -9 drops souk, and the next finds every machine as it was.
package fake

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
)

// codeExecAs says that a fake machine has neither users nor directories.
const codeExecAs fault.Code = "exec_as"

// Call names one call of a runtime: op is prepare, check, start, signal, kill, remove, list, ack, exec, pause,
// resume, resize, hibernate, wake, find_dir.
type Call struct {
	Op      string
	Machine string
	Attempt uint64
}

// Effect is something that was really done; a repeated call without effect makes none.
type Effect struct {
	Call
	At time.Time
}

// Options of a fake. All are optional.
type Options struct {
	// Before is called before a call has its effect; if it returns an error, the call returns it without effect. It may
	// block.
	Before func(Call) error
	// After is called after the effect; if it returns an error, the call returns it, but the effect stays, as when souk
	// dies at that moment.
	After func(Call) error
	// Awake returns why a machine cannot be suspended to disk; nil: all can.
	Awake func(machine string) error
	// Image accepts an image besides souk/host; nil: none.
	Image func(string) bool
	// Dir returns why no program can start in a directory; nil: all can.
	Dir func(as *runtime.As, dir string) error
}

// exitBuffer is the capacity of the channel of exits. Further exits wait for the next Ack.
const exitBuffer = 1024

// Runtime is one attachment to a world.
type Runtime struct {
	o     Options
	w     *world
	exits chan runtime.Exit
	done  chan struct{}
}

// world is the state that survives a supervisor.
type world struct {
	mu       sync.Mutex
	machines map[string]*unit
	effects  []Effect
	nextPID  int
	attached *Runtime
	waiting  []runtime.Exit // exits that did not fit into the channel
}

// unit is one machine.
type unit struct {
	id      string
	seen    uint64
	life    *life
	exits   map[uint64]runtime.Exit
	log     []machine.LogLine
	grown   chan struct{} // closed and replaced when the log grows or the machine goes
	removed bool
}

type life struct {
	attempt uint64
	pid     int
	argv    []string
	env     []string
	dir     string
	stdio   runtime.Stdio
	started time.Time
	paused  bool
	onDisk  bool
	forgets bool  // its checkpoint is unusable
	cpu     int64 // thousandths of a core
	memory  int64 // MiB
	over    bool
	timer   *time.Timer
	program program
}

var (
	_ runtime.Runtime = (*Runtime)(nil)
	_ runtime.Pauser  = (*Runtime)(nil)
	_ runtime.Meter   = (*Runtime)(nil)
	_ runtime.Resizer = (*Runtime)(nil)
	_ runtime.Checker = (*Runtime)(nil)

	_ runtime.Hibernator = (*Runtime)(nil)
	_ runtime.DirFinder  = (*Runtime)(nil)
)

// New makes an empty world and attaches to it.
func New(o Options) *Runtime {
	return (&Runtime{o: o, w: &world{machines: map[string]*unit{}, nextPID: 1000}}).Reopen()
}

// Reopen attaches a new runtime to the same world, as souk does when it restarts. The old one gets no more exits.
func (r *Runtime) Reopen() *Runtime {
	n := &Runtime{o: r.o, w: r.w, exits: make(chan runtime.Exit, exitBuffer), done: make(chan struct{})}
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	r.w.attached, r.w.waiting = n, nil
	for _, id := range slices.Sorted(maps.Keys(r.w.machines)) {
		u := r.w.machines[id]
		for _, a := range slices.Sorted(maps.Keys(u.exits)) {
			r.w.deliver(u.exits[a])
		}
	}
	return n
}

// Effects lists the effects, oldest first.
func (r *Runtime) Effects() []Effect {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	return slices.Clone(r.w.effects)
}

// End ends the machine's main process with a code; 129 to 192 mean by signal code-128.
func (r *Runtime) End(id string, code int) error {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	u := r.w.machines[id]
	if u == nil || u.life == nil || u.life.over {
		return notRunning(id)
	}
	r.w.end(u, u.life, code, false)
	return nil
}

// CrashHost ends every life without an exit code, as a power failure of the worker does.
func (r *Runtime) CrashHost() {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(r.w.machines)) {
		if u := r.w.machines[id]; u.life != nil && !u.life.over {
			r.w.end(u, u.life, -1, true)
		}
	}
}

func (r *Runtime) before(c Call) error {
	if r.o.Before == nil {
		return nil
	}
	return r.o.Before(c)
}

func (r *Runtime) after(c Call, err error) error {
	if err != nil || r.o.After == nil {
		return err
	}
	return r.o.After(c)
}

// do carries out one call with the test's hooks. f runs with the world locked.
func (r *Runtime) do(ctx context.Context, c Call, f func() error) error {
	if err := ctx.Err(); err != nil {
		return fault.Wrap(err, fault.Timeout, "", "the fake runtime did not %s in the time given", c.Op)
	}
	if err := r.before(c); err != nil {
		return err
	}
	r.w.mu.Lock()
	err := f()
	r.w.mu.Unlock()
	return r.after(c, err)
}

func (w *world) effect(c Call) { w.effects = append(w.effects, Effect{c, time.Now()}) }

var validID = regexp.MustCompile(`^[a-z0-9]{1,64}$`)

func checkID(id string) error {
	if !validID.MatchString(id) {
		return fault.New(fault.Invalid, runtime.CodeMachineID,
			"%.80q is not a machine id: use 1 to 64 lower-case letters and digits", id)
	}
	return nil
}

func (w *world) find(id string) (*unit, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	if u := w.machines[id]; u != nil {
		return u, nil
	}
	return nil, fault.New(fault.NotFound, runtime.CodeUnknownMachine,
		"the fake runtime does not know a machine %s: it was never prepared here, or was removed", id)
}

func notRunning(id string) error {
	return fault.New(fault.Precondition, fault.CodeNotRunning, "machine %s does not run: start it first", id)
}

// Name returns "fake".
func (*Runtime) Name() string { return "fake" }

// CanRun accepts souk/host with any tag, and images that Options.Image accepts.
func (r *Runtime) CanRun(image, _ string) error {
	name, _, _ := strings.Cut(image, "@")
	name, _, _ = strings.Cut(name, ":")
	if name == "souk/host" || r.o.Image != nil && r.o.Image(image) {
		return nil
	}
	return fault.New(fault.Invalid, machine.CodeImage,
		"the fake runtime cannot run the image %q: use the image souk/host", image)
}

// Prepare makes the machine known.
func (r *Runtime) Prepare(ctx context.Context, s runtime.Spec) error {
	c := Call{Op: "prepare", Machine: s.Machine}
	return r.do(ctx, c, func() error { return r.w.prepare(c) })
}

func (w *world) prepare(c Call) error {
	if err := checkID(c.Machine); err != nil {
		return err
	}
	if w.machines[c.Machine] == nil {
		w.machines[c.Machine] = &unit{id: c.Machine, exits: map[uint64]runtime.Exit{}, grown: make(chan struct{})}
		w.effect(c)
	}
	return nil
}

// Start begins an attempt.
func (r *Runtime) Start(ctx context.Context, s runtime.Spec) (runtime.Status, error) {
	c := Call{Op: "start", Machine: s.Machine, Attempt: s.Attempt}
	var st runtime.Status
	err := r.do(ctx, c, func() error {
		if s.Fresh {
			if err := r.w.prepare(Call{Op: "prepare", Machine: s.Machine}); err != nil {
				return err
			}
		}
		u, err := r.w.find(s.Machine)
		if err != nil {
			return err
		}
		running := u.life != nil && !u.life.over
		switch {
		case s.Attempt == 0:
			return fault.New(fault.Invalid, runtime.CodeAttempt,
				"a start of machine %s needs an attempt from 1 up", s.Machine)
		case s.Attempt < u.seen:
			return fault.New(fault.Conflict, runtime.CodeAttemptOld,
				"attempt %d of machine %s is older than attempt %d, which was started already", s.Attempt, s.Machine,
				u.seen)
		case s.Attempt > u.seen && running:
			return fault.New(fault.Conflict, runtime.CodeAttemptRunning,
				"attempt %d of machine %s still runs: stop it before attempt %d is started", u.life.attempt, s.Machine,
				s.Attempt)
		case s.Attempt == u.seen:
			st = u.status()
			return nil
		}
		p, err := parse(s.Argv)
		if err != nil {
			return err
		}
		r.w.nextPID++
		l := &life{attempt: s.Attempt, pid: r.w.nextPID, argv: s.Argv, env: s.Env, dir: s.Dir, stdio: s.Stdio,
			started: time.Now(), cpu: s.Resources.CPU, memory: s.Resources.Memory}
		u.seen, u.life = s.Attempt, l
		r.w.effect(c)
		st = u.status()
		r.w.run(u, l, p)
		return nil
	})
	return st, err
}

// Check refuses the programs that Start refuses.
func (r *Runtime) Check(ctx context.Context, s runtime.Spec) error {
	return r.do(ctx, Call{Op: "check", Machine: s.Machine, Attempt: s.Attempt}, func() error {
		_, err := parse(s.Argv)
		return err
	})
}

func (u *unit) status() runtime.Status {
	s := runtime.Status{Machine: u.id, Attempt: u.seen}
	if u.life != nil {
		s.StartedAt = u.life.started
		if !u.life.over {
			s.PID, s.Running, s.Paused, s.OnDisk = u.life.pid, true, u.life.paused, u.life.onDisk
			if s.OnDisk {
				s.PID = 0
			}
			return s
		}
	}
	if x, ok := u.exits[u.seen]; ok {
		s.Exit = &x
	}
	return s
}

// run prints the program's output, then ends it at once, later, or never.
func (w *world) run(u *unit, l *life, p program) {
	l.program = p
	u.print("stdout", p.stdout)
	u.print("stderr", p.stderr)
	if p.forever {
		return
	}
	if p.sleep == 0 {
		w.end(u, l, p.code, false)
		return
	}
	l.timer = time.AfterFunc(p.sleep, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !l.over {
			w.end(u, l, p.code, false)
		}
	})
}

func (w *world) end(u *unit, l *life, code int, lost bool) {
	l.over = true
	if l.timer != nil {
		l.timer.Stop()
	}
	x := runtime.Exit{Machine: u.id, Attempt: l.attempt, Code: code, Lost: lost, At: time.Now(),
		CPU: l.program.cpu, MaxRSS: l.program.rss}
	if code > 128 && code <= 128+64 {
		x.Signal = code - 128
	}
	u.exits[l.attempt] = x
	w.deliver(x)
}

// deliver puts an exit into the channel of the attached runtime, or keeps it until an Ack makes room.
func (w *world) deliver(x runtime.Exit) {
	if w.attached == nil {
		return
	}
	if len(w.waiting) == 0 {
		select {
		case w.attached.exits <- x:
			return
		default:
		}
	}
	w.waiting = append(w.waiting, x)
}

func (u *unit) print(stream, text string) {
	for _, t := range strings.SplitAfter(text, "\n") {
		if t == "" {
			continue
		}
		n := len(u.log) + 1
		u.log = append(u.log, machine.LogLine{Cursor: fmt.Sprintf("1:%d", n), At: time.Now(), Stream: stream,
			Text: strings.TrimSuffix(t, "\n")})
	}
	close(u.grown)
	u.grown = make(chan struct{})
}

// Signal ends the main process, because the fake's programs have no signal handlers; 0 is SIGINT, and 64 is the last.
// SIGSTOP, SIGTSTP, SIGCONT, SIGCHLD, SIGWINCH and SIGURG end nothing.
func (r *Runtime) Signal(ctx context.Context, id string, sig syscall.Signal) error {
	c := Call{Op: "signal", Machine: id}
	return r.do(ctx, c, func() error {
		if sig < 0 || sig > 64 {
			return fault.New(fault.Invalid, fault.CodeSignal, "there is no signal %d: use 1 to 64", sig)
		}
		u, err := r.w.find(id)
		if err != nil {
			return err
		}
		if u.life == nil || u.life.over || u.life.onDisk {
			return notRunning(id)
		}
		r.w.effect(c)
		sig := cmp.Or(sig, syscall.SIGINT)
		switch sig {
		case syscall.SIGSTOP, syscall.SIGCONT, syscall.SIGCHLD, syscall.SIGWINCH, syscall.SIGURG, syscall.SIGTSTP:
		default:
			r.w.end(u, u.life, 128+int(sig), false)
		}
		return nil
	})
}

// Kill ends the machine.
func (r *Runtime) Kill(ctx context.Context, id string) error {
	c := Call{Op: "kill", Machine: id}
	return r.do(ctx, c, func() error {
		if err := checkID(id); err != nil {
			return err
		}
		if u := r.w.machines[id]; u != nil && u.life != nil && !u.life.over {
			r.w.effect(c)
			r.w.end(u, u.life, 137, false)
		}
		return nil
	})
}

// Remove forgets the machine.
func (r *Runtime) Remove(ctx context.Context, id string) error {
	c := Call{Op: "remove", Machine: id}
	return r.do(ctx, c, func() error {
		if err := checkID(id); err != nil {
			return err
		}
		u := r.w.machines[id]
		if u == nil {
			return nil
		}
		if u.life != nil && !u.life.over {
			r.w.end(u, u.life, 137, false)
		}
		u.removed = true
		close(u.grown)
		delete(r.w.machines, id)
		r.w.effect(c)
		return nil
	})
}

// List returns every machine, by id.
func (r *Runtime) List(ctx context.Context) ([]runtime.Status, error) {
	var out []runtime.Status
	err := r.do(ctx, Call{Op: "list"}, func() error {
		for _, id := range slices.Sorted(maps.Keys(r.w.machines)) {
			out = append(out, r.w.machines[id].status())
		}
		return nil
	})
	return out, err
}

// Exits delivers exits that are not acknowledged. Close closes the channel.
func (r *Runtime) Exits() <-chan runtime.Exit { return r.exits }

// Ack forgets an exit.
func (r *Runtime) Ack(ctx context.Context, id string, attempt uint64) error {
	c := Call{Op: "ack", Machine: id, Attempt: attempt}
	return r.do(ctx, c, func() error {
		if err := checkID(id); err != nil {
			return err
		}
		if u := r.w.machines[id]; u != nil {
			if _, ok := u.exits[attempt]; ok {
				delete(u.exits, attempt)
				r.w.effect(c)
			}
		}
		held := r.w.waiting
		r.w.waiting = nil
		for _, x := range held {
			r.w.deliver(x)
		}
		return nil
	})
}

// Exec runs one of the commands that the fake understands.
func (r *Runtime) Exec(ctx context.Context, id string, q runtime.ExecRequest) (int, error) {
	if q.Attach {
		return 0, fault.New(fault.Precondition, runtime.CodeNoTerminal,
			"machine %s has no terminal: a fake gives none", id)
	}
	if q.User != "" || q.Dir != "" {
		return 0, fault.New(fault.Precondition, codeExecAs,
			"machine %s is a fake, which has neither users nor directories: leave both out", id)
	}
	var p program
	c := Call{Op: "exec", Machine: id}
	err := r.do(ctx, c, func() error {
		u, err := r.w.find(id)
		if err != nil {
			return err
		}
		if u.life == nil || u.life.over {
			return notRunning(id)
		}
		if u.life.paused {
			return fault.New(fault.Precondition, fault.CodePaused,
				"machine %s is suspended: resume it before a command is run in it", id)
		}
		p, err = parse(q.Argv)
		r.w.effect(c)
		return err
	})
	if err != nil {
		return 0, err
	}
	if p.sleep > 0 || p.forever {
		var ended <-chan time.Time
		if !p.forever {
			ended = time.After(p.sleep)
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return 0, fault.Wrap(ctx.Err(), fault.Timeout, runtime.CodeExecTimeout,
				"the command did not end in the time given and was killed")
		}
	}
	var errs []error
	if q.Terminal != nil { // a terminal shows both streams on one screen
		p.stdout, p.stderr = strings.ReplaceAll(p.stdout+p.stderr, "\n", "\r\n"), ""
	}
	if q.Stdout != nil {
		_, err := io.WriteString(q.Stdout, p.stdout)
		errs = append(errs, err)
		if p.cat && q.Stdin != nil {
			_, err := io.Copy(q.Stdout, q.Stdin)
			errs = append(errs, err)
		}
	}
	if q.Stderr != nil {
		_, err := io.Copy(q.Stderr, bytes.NewBufferString(p.stderr))
		errs = append(errs, err)
	}
	for _, err := range errs {
		if err != nil {
			return 0, fault.Wrap(err, fault.Unavailable, runtime.CodeExecOutput,
				"the output of a command could not be written")
		}
	}
	return p.code, nil
}

// Processes lists the main process while it runs.
func (r *Runtime) Processes(ctx context.Context, id string) ([]machine.Process, error) {
	out := []machine.Process{}
	err := r.do(ctx, Call{Op: "processes", Machine: id}, func() error {
		u, err := r.w.find(id)
		if err != nil {
			return err
		}
		if u.life != nil && !u.life.over {
			out = append(out, machine.Process{
				PID: int32(u.life.pid), Command: strings.Join(u.life.argv, " "), Directory: "/",
				Rtime: uint64(time.Since(u.life.started).Milliseconds()), ListenSockets: []machine.ListenSocket{},
			})
		}
		return nil
	})
	return out, err
}

// Close closes the channel of exits. The world stays.
func (r *Runtime) Close() error {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	select {
	case <-r.done:
		return nil
	default:
	}
	close(r.done)
	if r.w.attached == r {
		r.w.attached, r.w.waiting = nil, nil // exits stay with their machines for the next runtime
	}
	close(r.exits)
	return nil
}
