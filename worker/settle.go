package worker

import (
	"context"
	goruntime "runtime"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/lifecycle"
	"github.com/soukhq/souk/machine"
)

// settle commits, then lets go of the effects, publishes and answers: in this order. That the commit is first is the
// durability promise; that the view is before the answers lets everybody read what was answered. The effects go before
// the view because the runtime works on them meanwhile.
func (l *loop) settle(ctx context.Context, outs []lifecycle.Out) error {
	commit := false
	for _, o := range outs {
		l.pending = append(l.pending, o.Records...)
		commit = commit || o.Sync
	}
	if commit {
		if err := l.flush(); err != nil {
			return err
		}
	}
	if l.letGo(ctx, outs) {
		goruntime.Gosched() // they wait for a turn, and souk may have one core
	}
	l.tellAll(outs)
	l.answer(outs)
	return nil
}

// tellAll makes what is durable visible: the record, the machines and volumes that changed, and what happened to them.
func (l *loop) tellAll(outs []lifecycle.Out) {
	rec := l.sup.Record(time.Now())
	l.record.Store(&rec)
	if rec.Version != l.observed && l.o.Observer != nil {
		l.observed = rec.Version
		l.o.Observer.Worker(rec)
	}
	l.tasks.changed(&rec)
	for _, o := range outs {
		l.publish(o)
	}
}

// letGo has the effects of inputs that are durable carried out, and reports whether there are any.
func (l *loop) letGo(ctx context.Context, outs []lifecycle.Out) (any bool) {
	for _, o := range outs {
		for _, key := range o.Cancels {
			l.effects.cancel(key)
		}
		for _, e := range o.Effects {
			if e.Durable && len(l.pending) > 0 {
				l.held = append(l.held, e)
			} else {
				l.effects.dispatch(ctx, e)
				any = true
			}
		}
	}
	if len(l.pending) == 0 {
		for _, e := range l.held {
			l.effects.dispatch(ctx, e)
		}
		l.held = l.held[:0]
	}
	return any
}

// answer answers the inputs, and has the tasks go that they evict.
func (l *loop) answer(outs []lifecycle.Out) {
	for _, o := range outs {
		for _, r := range o.Replies {
			l.answers.give(r)
		}
		for _, p := range o.Evict {
			l.tasks.Evict(p)
		}
	}
}

// publish makes what an Out has changed visible, tells the observer of it, and wakes who watches.
func (l *loop) publish(out lifecycle.Out) {
	l.showVolumes(out.Volumes)
	for _, id := range out.Changed {
		l.tell(id, l.show(id))
	}
	for _, e := range out.Events {
		l.feed.send(e)
	}
}

func (l *loop) showVolumes(ids []string) {
	for _, id := range ids {
		vol, exists := l.sup.VolumeOf(id)
		l.view.setVolume(id, vol, exists)
	}
}

// show makes a machine visible as it is now, wakes who watches it, and returns it; nil: it is no longer kept.
func (l *loop) show(id string) *machine.Machine {
	m := l.sup.MachineOf(id)
	var e *entry
	if m != nil {
		e = &entry{m: m, versions: l.sup.Versions(id), changed: make(chan struct{})}
	}
	if old := l.view.set(id, e); old != nil {
		close(old.changed)
	}
	return m
}

// tell tells the observer of a machine; nil: it is no longer kept.
func (l *loop) tell(id string, m *machine.Machine) {
	switch {
	case l.o.Observer == nil:
	case m == nil:
		l.o.Observer.Gone(id)
	default:
		l.o.Observer.Machine(m)
	}
}

func (l *loop) flush() error {
	if len(l.pending) == 0 {
		return nil
	}
	began := time.Now()
	if err := l.o.Journal.Commit(l.pending); err != nil {
		return fault.Wrap(err, fault.Unavailable, "journal", "worker %s stops, because its journal cannot be written",
			l.o.ID)
	}
	l.commits.add(len(l.pending), time.Since(began))
	l.pending = l.pending[:0]
	return nil
}
