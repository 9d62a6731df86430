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

// settleOuts commits, then lets go of the effects, publishes and answers: in this order. That the commit is first is the
// durability promise; that the view is before the answers lets everybody read what was answered. The effects go before
// the view because the runtime works on them meanwhile; those that may go ahead of the disk do so while it works.
// waited says that somebody waits for an input to be settled, beside those who wait for replies.
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
		return nil // what has gone ahead needs the processor now, and its result is here soon
	}
	l.tellAll(l.unshown)
	clear(l.unshown)
	l.unshown = l.unshown[:0]
	l.answerInputs(outs)
	return nil
}

// needsAnswer reports whether somebody is to hear of an Out now.
func needsAnswer(o lifecycle.Out) bool { return len(o.Replies) > 0 || len(o.Evict) > 0 }

// tellAll makes what is durable visible: the record, the machines and volumes that changed, and what happened to them.
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

// mayGoAhead reports whether effects may be carried out before the rest of what comes of a batch of inputs. What
// cancels others comes before the effects that it was asked for with, and waits for the disk.
func mayGoAhead(outs []lifecycle.Out) (any bool) {
	for _, o := range outs {
		if len(o.Cancels) > 0 {
			return false
		}
		any = any || slices.ContainsFunc(o.Effects, func(e fsm.Effect) bool { return e.Ahead })
	}
	return any
}

// letGoAhead has the effects carried out that may go ahead of the disk: a power loss undoes them too.
func (l *loop) letGoAhead(ctx context.Context, outs []lifecycle.Out) {
	for _, o := range outs {
		for _, e := range o.Effects {
			if e.Ahead {
				l.effects.dispatchEffect(ctx, e)
			}
		}
	}
}

// letGo has the effects of inputs that are durable carried out, but for those that have gone ahead, and reports whether
// there are any.
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

// answerInputs answers the inputs, and has the tasks go that they evict.
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

// publishOut makes what an Out has changed visible, tells the observer of it, and wakes who watches.
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

// showMachine makes a machine visible as it is now, wakes who watches it, and returns it; nil: it is no longer kept.
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

// notifyObserver tells the observer of a machine; nil: it is no longer kept.
func (l *loop) notifyObserver(id string, m *machine.Machine) {
	switch {
	case l.o.Observer == nil:
	case m == nil:
		l.o.Observer.Gone(id)
	default:
		l.o.Observer.Machine(m)
	}
}

// flushJournal makes durable what is pending. written is called before it is, see journal.Journal; not where nothing is.
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
