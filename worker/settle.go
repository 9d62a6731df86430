package worker

import (
	"context"
	goruntime "runtime"
	"slices"
	"time"

	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// settleOuts commits, then releases the effects, publishes and replies, in this order. The commit comes first for
// durability; the view comes before the replies so that everybody can read what was answered. The effects start before
// the view because the runtime works on them meanwhile; effects that may go ahead of the disk run during the commit.
// waited: a caller waits for an input to be settled, besides those that wait for replies.
func (l *loop) settleOuts(ctx context.Context, outs []lifecycle.Out, waited bool) error {
	commit := false
	for _, o := range outs {
		l.pending = append(l.pending, o.Records...)
		commit = commit || o.Sync
	}
	gone := false
	if commit {
		err := l.flushJournal(func() {
			if gone = l.ahead && mayGoAhead(outs); gone {
				l.letGoAhead(ctx, outs)
				goruntime.Gosched() // the disk keeps this processor, which may be the only one
			}
		})
		if err != nil {
			return err
		}
	}
	if l.letGo(ctx, outs, gone) {
		goruntime.Gosched() // they wait for a turn, and souk may have one core
	}
	l.unshown = append(l.unshown, outs...)
	if gone && !waited && !slices.ContainsFunc(outs, needsAnswer) {
		return nil // effects that went ahead need the processor now, and their results come soon
	}
	l.tellAll(l.unshown)
	clear(l.unshown)
	l.unshown = l.unshown[:0]
	l.answerInputs(outs)
	return nil
}

// needsAnswer reports whether a caller waits for an Out now.
func needsAnswer(o lifecycle.Out) bool { return len(o.Replies) > 0 || len(o.Evict) > 0 }

// tellAll publishes what is durable: the record, the changed machines and volumes, and events.
func (l *loop) tellAll(outs []lifecycle.Out) {
	rec := l.sup.Record(time.Now())
	l.record.Store(&rec)
	if rec.Version != l.observed && l.o.Observer != nil {
		l.observed = rec.Version
		l.o.Observer.Worker(rec)
	}
	l.tasks.reportChanged(&rec)
	for _, o := range outs {
		l.publishOut(o)
	}
}

// mayGoAhead reports whether effects may start before the commit of a batch. Cancels must come before the effects of
// their Out, and wait for the disk.
func mayGoAhead(outs []lifecycle.Out) (any bool) {
	for _, o := range outs {
		if len(o.Cancels) > 0 {
			return false
		}
		any = any || slices.ContainsFunc(o.Effects, func(e fsm.Effect) bool { return e.Ahead })
	}
	return any
}

// letGoAhead starts the effects that may go ahead of the disk: a power loss undoes them too.
func (l *loop) letGoAhead(ctx context.Context, outs []lifecycle.Out) {
	for _, o := range outs {
		for _, e := range o.Effects {
			if e.Ahead {
				l.effects.dispatchEffect(ctx, e)
			}
		}
	}
}

// letGo starts the effects of durable inputs, except those that went ahead (gone), and reports whether there are any.
func (l *loop) letGo(ctx context.Context, outs []lifecycle.Out, gone bool) (any bool) {
	for _, o := range outs {
		for _, key := range o.Cancels {
			l.effects.cancelEffect(key)
		}
		for _, e := range o.Effects {
			if e.Ahead && gone {
				continue
			}
			if e.Durable && len(l.pending) > 0 {
				l.held = append(l.held, e)
			} else {
				l.effects.dispatchEffect(ctx, e)
				any = true
			}
		}
	}
	if len(l.pending) == 0 {
		for _, e := range l.held {
			l.effects.dispatchEffect(ctx, e)
		}
		l.held = l.held[:0]
	}
	return any
}

// answerInputs answers the inputs, and evicts their tasks.
func (l *loop) answerInputs(outs []lifecycle.Out) {
	for _, o := range outs {
		for _, r := range o.Replies {
			l.answers.deliverReply(r)
		}
		for _, p := range o.Evict {
			l.tasks.Evict(p)
		}
	}
}

// publishOut publishes what an Out has changed, to the view, the observer and watchers.
func (l *loop) publishOut(out lifecycle.Out) {
	l.showVolumes(out.Volumes)
	for _, id := range out.Changed {
		l.notifyObserver(id, l.showMachine(id))
	}
	for _, e := range out.Events {
		l.feed.sendEvent(e)
	}
}

func (l *loop) showVolumes(ids []string) {
	for _, id := range ids {
		vol, exists := l.sup.VolumeOf(id)
		l.view.setVolume(id, vol, exists)
	}
}

// showMachine updates a machine in the view, wakes its watchers, and returns it; nil: it is no longer kept.
func (l *loop) showMachine(id string) *machine.Machine {
	m := l.sup.MachineOf(id)
	var e *entry
	if m != nil {
		e = &entry{m: m, versions: l.sup.Versions(id), changed: make(chan struct{})}
		l.health.Set(m, l.sup.CheckedAttempt(id))
	} else {
		l.health.Forget(id)
		l.kept.forgetMachine(id)
	}
	if old := l.view.setEntry(id, e); old != nil {
		close(old.changed)
	}
	return m
}

// notifyObserver passes a machine to the observer; nil: it is no longer kept.
func (l *loop) notifyObserver(id string, m *machine.Machine) {
	switch {
	case l.o.Observer == nil:
	case m == nil:
		l.o.Observer.Gone(id)
	default:
		l.o.Observer.Machine(m)
	}
}

// flushJournal makes the pending records durable. written is called before they are, see journal.Journal; it is not
// called if nothing is pending.
func (l *loop) flushJournal(written ...func()) error {
	if len(l.pending) == 0 {
		return nil
	}
	began := time.Now()
	if err := l.o.Journal.Commit(l.pending, written...); err != nil {
		return fault.Wrap(err, fault.Unavailable, fault.CodeJournal,
			"worker %s stops, because its journal cannot be written",
			l.o.ID)
	}
	l.commits.addCommit(len(l.pending), time.Since(began))
	l.pending = l.pending[:0]
	return nil
}
