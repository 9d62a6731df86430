package proxy

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/wait"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/proxy/hop"
)

const errRefused = syscall.ECONNREFUSED

// Bounds of a wake.
const (
	wakeTime  = time.Minute            // for a whole wake
	readyTime = 30 * time.Second       // for the port of a newly started machine to accept
	lateTime  = time.Second            // for the port of a machine that has been up for longer than readyTime
	firstMost = 200 * time.Millisecond // from the command to the first look, at most
	// pause between two looks, as a part of the time waited so far: this bounds the delay of a wake, and slow programs
	// are looked at seldom
	lookPart  = 32
	lookLeast = 250 * time.Microsecond // shortest pause; longer in proportion if many ports are polled
	lookFew   = 2
	lookMost  = 100 * time.Millisecond
	// timeout of a look that gets no answer, doubled each time: the kernel itself retransmits only after a second
	lookTime = 250 * time.Millisecond
)

// Phases say where the time of a wake went.
type Phases struct {
	Start time.Duration `json:"start_ns"` // until the machine's program was executed or resumed
	Ready time.Duration `json:"ready_ns"` // from there until its port accepted and it passed its checks
}

// wakeMachine starts or resumes a machine and returns when its port accepts. Concurrent callers share one wake, which
// goes on when they leave.
func (o *owner) wakeMachine(ctx context.Context, t Target) (Phases, error) {
	w, m, err := o.findMachine(ctx, t)
	if err != nil {
		return Phases{}, err
	}
	s := serviceAt(m.Config, t.Port)
	if s == nil {
		return Phases{}, fault.New(fault.NotFound, codeService, "machine %s has no service at its port %d", t.Machine,
			t.Port)
	}
	if m.State != machine.Started && s.Autostart != nil && !*s.Autostart {
		return Phases{}, fault.New(fault.Precondition, codeAutostart,
			"machine %s is %s, and its service does not let it be started for a request; souk start %s", m.ID, m.State,
			m.ID)
	}
	o.mu.Lock()
	g := o.gateOf(t.Machine)
	k := g.waking
	if k == nil {
		k = &waking{done: make(chan struct{})}
		g.waking = k
		go o.carryOut(context.WithoutCancel(ctx), k, g, w, t)
	}
	k.wanted = true
	o.mu.Unlock()
	select {
	case <-k.done:
		return k.phases, k.err
	case <-ctx.Done():
		return Phases{}, ctx.Err()
	}
}

// ripenSpare starts a spare that has never run and suspends it as soon as its port accepts, so that a request need not
// wait for its start. No request goes to it meanwhile; if a request wakes it, it stays up. If it cannot be suspended,
// or its port does not accept, it is stopped. A machine that is no spare is left as it is.
func (o *owner) ripenSpare(ctx context.Context, t Target) error {
	w, m, err := o.findMachine(ctx, t)
	if err != nil {
		return err
	}
	if m.State != machine.Created || m.Config.Metadata[machine.MetadataFor] != machine.MadeForWarm {
		return nil
	}
	o.mu.Lock()
	g := o.gateOf(t.Machine)
	if !g.isIdle() {
		o.mu.Unlock()
		return nil
	}
	k := &waking{done: make(chan struct{})}
	g.waking = k
	o.mu.Unlock()
	o.carryOut(ctx, k, g, w, t)
	o.mu.Lock()
	wanted := k.wanted
	o.mu.Unlock()
	if wanted {
		return nil
	}
	if k.err == nil {
		if k.err = o.restMachine(ctx, t, true); k.err == nil {
			return nil
		}
	}
	if m, err = w.Machine(ctx, t.App, t.Machine); err == nil && m.State == machine.Started {
		err = o.restMachine(ctx, t, false)
	}
	return errors.Join(k.err, err)
}

// carryOut carries out one wake.
func (o *owner) carryOut(ctx context.Context, k *waking, g *gate, w Worker, t Target) {
	ctx, cancel := context.WithTimeout(ctx, wakeTime)
	defer cancel()
	o.mu.Lock()
	resting := g.resting
	o.mu.Unlock()
	if resting != nil { // a machine being stopped still looks as if it ran
		select {
		case <-resting:
		case <-ctx.Done():
		}
	}
	var m *machine.Machine
	k.phases, m, k.err = o.startMachine(ctx, w, t)
	o.mu.Lock()
	g.waking, g.since = nil, time.Now()
	if k.err == nil {
		g.port, g.of = t.Port, m.CurrentStart()
	}
	o.mu.Unlock()
	close(k.done)
}

func (o *owner) startMachine(ctx context.Context, w Worker, t Target) (p Phases, m *machine.Machine, err error) {
	began := time.Now()
	if m, err = o.awaitSettled(ctx, w, t); err != nil {
		return p, nil, err
	}
	if m.State == machine.Started {
		patience := readyTime
		if since := lastStart(m); since > readyTime {
			patience = lateTime
			if why, judged := notPassed(m); judged {
				return p, nil, notFit(m, why, since)
			}
		}
		if err = o.awaitReady(ctx, m, t.Port, patience, 0); err == nil {
			err = o.awaitFit(ctx, w, m, patience)
		}
		if p.Ready = time.Since(began); fault.CodeOf(err) != fault.CodeEnded { // or it was on its way down
			return p, m, err
		}
	}
	slept := m.State
	out, err := w.Do(ctx, lifecycle.Command{Verb: lifecycle.Start, App: t.App, Machine: t.Machine,
		Source: machine.SourceProxy})
	if err != nil {
		return p, nil, err
	}
	if m = out.Machine; m == nil || out.Begun != nil { // an image pull or another operation must end first
		return p, nil, fault.New(fault.Timeout, codeWake, "machine %s is still starting; try again in a moment",
			t.Machine)
	}
	p.Start = time.Since(began)
	if slept == machine.Suspended { // a resumed machine's port still accepts
		if err = o.awaitReady(ctx, m, t.Port, readyTime, 0); err == nil {
			err = o.awaitFit(ctx, w, m, readyTime)
		}
		p.Ready = time.Since(began) - p.Start
		return p, m, err
	}
	o.mu.Lock()
	first := o.gateOf(m.ID).ready.firstLook()
	o.mu.Unlock()
	err = o.awaitReady(ctx, m, t.Port, readyTime, first-p.Start)
	if p.Ready = time.Since(began) - p.Start; err == nil {
		o.mu.Lock()
		o.gateOf(m.ID).ready.learnStart(p.Start + p.Ready)
		o.mu.Unlock()
		err = o.awaitFit(ctx, w, m, readyTime)
		p.Ready = time.Since(began) - p.Start
	}
	return p, m, err
}

// expected is the expected time from a machine's start command until its port accepts.
type expected time.Duration

// firstLook returns how long after the command a machine is looked at for the first time: a little before the expected
// time, since each look takes CPU from its program.
func (e expected) firstLook() time.Duration { return min(time.Duration(e)*3/4, firstMost) }

// learnStart learns from the time until a machine was seen to be ready. A slow start counts little; a faster one was
// ready at the first look, or before.
func (e *expected) learnStart(took time.Duration) {
	if t := expected(took); *e == 0 || t < *e {
		*e = t
	} else {
		*e += (t - *e) / 8
	}
}

// lookPause returns the pause before the next look at a port, after waiting for waited while so many ports are polled.
// All together are looked at no more than 8 times a ms, which takes about half a core.
func lookPause(waited time.Duration, ports int) time.Duration {
	return max(min(waited/lookPart, lookMost), lookLeast*time.Duration(max(ports, lookFew))/lookFew)
}

// lastStart returns how long ago a machine was started, by its events.
func lastStart(m *machine.Machine) time.Duration {
	for _, e := range m.Events {
		if e.Type == "start" || e.Type == "restart" {
			return time.Since(time.UnixMilli(e.Timestamp))
		}
	}
	return 0
}

// awaitReady returns when a port of a machine accepts. It looks for the first time after first.
func (o *owner) awaitReady(ctx context.Context, m *machine.Machine, port int, patience, first time.Duration) error {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if _, err := m.Reach(port); err != nil {
		return err
	}
	var pause wait.Precise
	defer pause.Close()
	o.looking.Add(1)
	defer o.looking.Add(-1)
	unheard := 0      // looks that got no answer
	var refused error // the last refusal
	for next := first; ; next = lookPause(time.Since(began), int(o.looking.Load())) {
		_ = pause.For(ctx, next) // after ctx ends, look once more
		look, cancel := context.WithTimeout(ctx, min(lookTime<<min(unheard, 6), dialTime))
		c, err := o.dialer.Try(look, m, port)
		if look.Err() != nil {
			unheard++
		} else {
			refused = err
		}
		cancel()
		if err == nil {
			if serviceAt(m.Config, port).IsHTTP() { // for the first request
				o.conns.Put(hop.NewConn(connKey(m.ID, port), c))
			} else {
				c.Close()
			}
			return nil
		}
		if ctx.Err() != nil {
			return fault.Wrap(err, fault.Timeout, fault.CodeNotReady,
				"machine %s was started, and does not answer at its port %d after %v%s; see souk logs %s", m.ID, port,
				patience, o.listensElsewhere(m, port, refused), m.ID)
		}
		if now, err := o.lookAgain(ctx, m); err != nil {
			return err
		} else if now != nil {
			m = now
		}
	}
}
