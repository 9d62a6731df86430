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

// announcer publishes what this worker is and has: it writes our own records to the registry, one after another, and
// broadcasts them.
type announcer struct {
	c        *Cluster
	outbox   outbox
	wake     chan struct{} // the outbox is not empty
	flushes  chan struct{} // a record was written to the registry
	contests chan struct{} // another process may publish records under our id

	// serializes writing our own records; held during signing and disk writes; guards the fields below
	writer sync.Mutex
	begun  bool
	mended time.Time // when a contest last made us begin a new incarnation

	yields atomic.Bool // Yield(true): a contest does not make us begin a new incarnation

	budget time.Time // when the bytes broadcast so far are paid for at Rate; guarded by the registry's lock
}

// announceWaiting writes the announcements of the outbox to the registry.
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

// writeRecord writes one record of ours, and the head if the record changes it. The caller holds the writer's lock, so
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

// headSig returns the signature of a head if due is true, else nil.
func (a *announcer) headSig(h registry.OwnHead, due bool) []byte {
	if !due {
		return nil
	}
	return a.c.signBytes(func() []byte { return h.SigningBytes(a.c.o.Self) })
}

// forgetDeletions drops old deletions from the registry. If our own were dropped, it signs a new head.
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

// beginIncarnation starts an incarnation greater than any we know of. The incarnation is on disk before it is used. The
// caller holds the writer's lock.
func (a *announcer) beginIncarnation(recs []registry.Record, atLeast uint64) error {
	a.c.mu.Lock()
	inc := a.nextIncarnation(time.Now(), atLeast)
	err := a.c.reg.CheckOwn(inc, len(recs)) // check before the incarnation is written to disk
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

// nextIncarnation returns a number greater than every incarnation that this member has begun, or is reported to have
// begun. A number that other members would not believe (too far ahead of the clock) is ignored: an attacker may have
// planted it in the gossip or on our disk to silence us. The clock, which is greater than any incarnation we can have
// begun, replaces it. The caller holds the lock.
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

// signHead signs our head if it has changed, or in any case if always is set, and returns it.
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

// contestEvery is the least time between two new incarnations that a contest causes: otherwise twins with one id would
// outbid each other without pause.
const contestEvery = 5 * time.Second

// mindContest begins a new incarnation if another process has published records under our id: most likely ourselves,
// before an old copy of the disk was restored.
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

// Yield(true) stops this member from outbidding another process that publishes under its id; Yield(false) resumes it.
func (c *Cluster) Yield(on bool) { c.announcer.yields.Store(on) }

// BeginAnew announces everything that this member has in a new incarnation, which is at least atLeast.
func (c *Cluster) BeginAnew(atLeast uint64) error {
	c.announcer.writer.Lock()
	defer c.announcer.writer.Unlock()
	c.mu.Lock()
	mine := c.reg.OwnRecords()
	c.mu.Unlock()
	return c.announcer.beginIncarnation(mine, atLeast)
}

// beginEmpty announces that this member has nothing, unless it has begun already.
func (a *announcer) beginEmpty() error {
	a.writer.Lock()
	defer a.writer.Unlock()
	if a.begun {
		return nil
	}
	return a.beginIncarnation(nil, 0)
}

// run writes announcements, and answers contests by another process with our id.
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

// broadcastAnnounced broadcasts our announcements, coalesced, and no faster than Rate.
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
	burst := time.Now().Add(-time.Second) // one second's worth may be sent at once
	if a.budget.Before(burst) {
		a.budget = burst
	}
	a.budget = a.budget.Add(time.Duration(size) * time.Second / time.Duration(a.c.o.Knobs.Rate))
	a.c.mu.Unlock()
	bodies := make([][]byte, len(runs))
	for i, r := range runs {
		// the run covers versions without a record in it, so only a signed head proves it
		if a.c.o.Sign != nil && !r.Proven() {
			r.Head = a.signHead(true)
		}
		bodies[i] = registry.EncodeUpdate(r)
	}
	a.c.dissemination.publishBodies(bodies...)
}
