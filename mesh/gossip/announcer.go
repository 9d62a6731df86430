package gossip

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/soukhq/souk/core/registry"
	"github.com/soukhq/souk/internal/wait"
)

// announcer tells what this worker is and has: it writes our own records to the registry, one after another, and has
// them broadcast.
type announcer struct {
	c        *Cluster
	outbox   outbox
	wake     chan struct{} // something waits in the outbox
	flushes  chan struct{} // something was written
	contests chan struct{} // somebody else may speak as us

	writer sync.Mutex // of who writes records of our own: held over signatures and the disk; guards what follows
	begun  bool
	mended time.Time // when we last began a new incarnation because of a contest

	yields atomic.Bool // somebody else who speaks as us is not outbid

	budget time.Time // until when the bytes broadcast so far take at Rate; guarded by the registry's lock
}

// announceWaiting writes what waits in the outbox to the registry.
func (a *announcer) announceWaiting() {
	a.writer.Lock()
	defer a.writer.Unlock()
	for _, x := range a.outbox.takeAll() {
		if err := a.writeRecord(x); err != nil {
			a.c.o.Log.Error("the cluster could not be told", "kind", x.kind, "key", x.key, "err", err)
		}
	}
	a.c.mu.Lock()
	a.c.afterChange()
	a.c.mu.Unlock()
	wakeLoop(a.flushes)
}

// writeRecord writes one record of ours, with the head where that changes. It is called with the writer's lock, so that
// the draft stays the newest while it is signed.
func (a *announcer) writeRecord(x announcement) error {
	now := time.Now()
	a.c.mu.Lock()
	draft := func() (registry.Record, bool, error) {
		if x.payload == nil {
			return a.c.reg.DraftDelete(x.kind, x.key)
		}
		return a.c.reg.Draft(x.kind, x.key, x.schema, x.payload)
	}
	rec, changed, err := draft()
	h, due := a.c.reg.HeadAfter(now, rec)
	a.c.mu.Unlock()
	if err != nil || !changed {
		return err
	}
	rec.Sig = a.c.signBytes(rec.SigningBytes)
	head := a.headSig(h, due)
	a.c.mu.Lock()
	defer a.c.mu.Unlock()
	if err := a.c.reg.Commit(now, rec); err != nil {
		return err
	}
	a.c.reg.SetHead(h, head)
	return nil
}

// headSig returns the signature of a head that is due, nil of another.
func (a *announcer) headSig(h registry.OwnHead, due bool) []byte {
	if !due {
		return nil
	}
	return a.c.signBytes(func() []byte { return h.SigningBytes(a.c.o.Self) })
}

// forgetDeletions forgets deletions that are old, ours with a head that says so.
func (a *announcer) forgetDeletions(now time.Time) {
	a.writer.Lock()
	defer a.writer.Unlock()
	a.c.mu.Lock()
	h, due := a.c.reg.HeadAfter(now, registry.Record{})
	a.c.mu.Unlock()
	head := a.headSig(h, due)
	a.c.mu.Lock()
	defer a.c.mu.Unlock()
	a.c.reg.Tidy(now)
	a.c.reg.SetHead(h, head)
}

// beginIncarnation starts an incarnation that is greater than all we know of, and durable before it is used. It is
// called with the writer's lock.
func (a *announcer) beginIncarnation(recs []registry.Record, atLeast uint64) error {
	a.c.mu.Lock()
	inc := a.nextIncarnation(time.Now(), atLeast)
	err := a.c.reg.CheckOwn(inc, len(recs)) // what would be refused is not written down
	a.c.mu.Unlock()
	if err == nil {
		err = a.c.keeper.keepIncarnation(inc)
	}
	if err != nil {
		return err
	}
	recs = registry.Numbered(a.c.o.Self, inc, recs)
	a.signAll(recs)
	head := registry.FirstHead(inc, len(recs))
	sig := a.c.signBytes(func() []byte { return head.SigningBytes(a.c.o.Self) })
	a.c.mu.Lock()
	defer a.c.mu.Unlock()
	if err := a.c.reg.Own(time.Now(), inc, recs); err != nil {
		return err
	}
	a.c.reg.SetHead(head, sig)
	a.begun = true
	a.c.afterChange()
	wakeLoop(a.flushes)
	return nil
}

// nextIncarnation returns one that is greater than all that this member has begun or is said to have begun. A number
// that nobody else would believe was told to us, or to our disk, by somebody who wished us gone: it does not count, and
// the clock, which is beyond all that we can have begun, stands in. It is called with the lock.
func (a *announcer) nextIncarnation(now time.Time, atLeast uint64) uint64 {
	known, _ := a.c.reg.Owner(a.c.o.Self)
	inc := max(a.c.o.Incarnation, 1)
	for _, n := range []uint64{a.c.keeper.lastIncarnation() + 1, atLeast, known.Incarnation + 1} {
		if n > registry.MostIncarnation(now) {
			a.c.o.Log.Warn("an incarnation that is far ahead of the clock is not gone on from", "incarnation", n)
			n = uint64(max(1, now.Unix()))
		}
		inc = max(inc, n)
	}
	return inc
}

// signHead signs our head where it has changed, or in any case, and returns it.
func (a *announcer) signHead(always bool) registry.Head {
	a.c.mu.Lock()
	h, due := a.c.reg.OwnHead()
	a.c.mu.Unlock()
	if a.c.o.Sign == nil || h.Incarnation == 0 || !due && !always {
		return registry.Head{}
	}
	sig := a.c.signBytes(func() []byte { return h.SigningBytes(a.c.o.Self) })
	a.c.mu.Lock()
	defer a.c.mu.Unlock()
	a.c.reg.SetHead(h, sig)
	return registry.Head{Version: h.Version, Sig: sig}
}

// signAll signs records on all processors: 20,000 signatures are half a second of one.
func (a *announcer) signAll(recs []registry.Record) {
	var each sync.WaitGroup
	n := runtime.GOMAXPROCS(0)
	for first := range n {
		each.Go(func() {
			for i := first; i < len(recs); i += n {
				recs[i].Sig = a.c.signBytes(recs[i].SigningBytes)
			}
		})
	}
	each.Wait()
}

// contestEvery bounds how often we begin anew because somebody else speaks as us: twins of one id would outbid each
// other.
const contestEvery = 5 * time.Second

// mindContest begins anew when somebody was heard speaking as us: ourselves, before an old disk came back, most likely.
func (a *announcer) mindContest() {
	if a.yields.Load() {
		return
	}
	a.writer.Lock()
	defer a.writer.Unlock()
	a.c.mu.Lock()
	inc, mine := a.c.reg.Contested(), a.c.reg.OwnRecords()
	due := inc > 0 && time.Since(a.mended) >= contestEvery
	if due {
		a.mended = time.Now()
	}
	a.c.mu.Unlock()
	if !due {
		return
	}
	a.c.o.Log.Warn("somebody else has announced records of this worker; all is told anew", "incarnation", inc+1)
	if err := a.beginIncarnation(mine, inc+1); err != nil {
		a.c.o.Log.Error("this worker's records could not be told anew", "err", err)
	}
}

// Yield has this member no longer outbid somebody else who speaks as it does, or with on false do so again.
func (c *Cluster) Yield(on bool) { c.announcer.yields.Store(on) }

// BeginAnew tells all that this member has anew, in an incarnation that is at least as great as the one given.
func (c *Cluster) BeginAnew(atLeast uint64) error {
	c.announcer.writer.Lock()
	defer c.announcer.writer.Unlock()
	c.mu.Lock()
	mine := c.reg.OwnRecords()
	c.mu.Unlock()
	return c.announcer.beginIncarnation(mine, atLeast)
}

// beginEmpty announces that this member has nothing, where nobody has begun.
func (a *announcer) beginEmpty() error {
	a.writer.Lock()
	defer a.writer.Unlock()
	if a.begun {
		return nil
	}
	return a.beginIncarnation(nil, 0)
}

// run writes what is announced, and begins anew when somebody else speaks as us.
func (a *announcer) run(ctx context.Context, l *loop) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.wake:
			l.runGuarded(a.announceWaiting, a.c.o)
		case <-a.contests:
			l.runGuarded(a.mindContest, a.c.o)
		}
	}
}

// broadcastAnnounced broadcasts what we announced, coalesced, and no faster than Rate.
func (a *announcer) broadcastAnnounced(ctx context.Context, l *loop) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.flushes:
		}
		a.c.mu.Lock()
		after := max(a.c.o.Knobs.Flush, time.Until(a.budget))
		a.c.mu.Unlock()
		if wait.For(ctx, after) != nil {
			return
		}
		l.runGuarded(a.flushNow, a.c.o)
	}
}

func (a *announcer) flushNow() {
	a.signHead(false)
	a.c.mu.Lock()
	runs := a.c.reg.News(messageSize, newsRuns)
	size := 0
	for _, r := range runs {
		size += r.Size()
	}
	burst := time.Now().Add(-time.Second) // a second's worth may go at once
	if a.budget.Before(burst) {
		a.budget = burst
	}
	a.budget = a.budget.Add(time.Duration(size) * time.Second / time.Duration(a.c.o.Knobs.Rate))
	a.c.mu.Unlock()
	bodies := make([][]byte, len(runs))
	for i, r := range runs {
		if a.c.o.Sign != nil && !r.Proven() { // it tells of more than is in it, which no record shows
			r.Head = a.signHead(true)
		}
		bodies[i] = registry.EncodeUpdate(r)
	}
	a.c.dissemination.publishBodies(bodies...)
}
