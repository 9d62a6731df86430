package gossip

import (
	"cmp"
	"context"
	"math/rand/v2"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/registry"
)

// flush broadcasts what we announced, coalesced, and no faster than Rate.
func (c *Cluster) flush(ctx context.Context, l *loop) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.toFlush:
		}
		c.mu.Lock()
		wait := max(c.o.Knobs.Flush, time.Until(c.budget))
		c.mu.Unlock()
		if !pause(ctx, wait) {
			return
		}
		l.do(c.flushNow, c.o)
	}
}

func (c *Cluster) flushNow() {
	c.mu.Lock()
	runs := c.reg.News(messageSize, newsRuns)
	size := 0
	for _, r := range runs {
		size += r.Size()
	}
	burst := time.Now().Add(-time.Second) // a second's worth may go at once
	if c.budget.Before(burst) {
		c.budget = burst
	}
	c.budget = c.budget.Add(time.Duration(size) * time.Second / time.Duration(c.o.Knobs.Rate))
	c.mu.Unlock()
	bodies := make([][]byte, len(runs))
	for i, r := range runs {
		bodies[i] = registry.EncodeRun(r)
	}
	c.publish(bodies...)
}

// pause waits, and says whether ctx is still on.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

func jitter(d time.Duration) time.Duration {
	return d/2 + time.Duration(rand.Int64N(int64(d)+1))
}

// synchronize pulls differences: when there is a sign of one, and now and then without.
func (c *Cluster) synchronize(ctx context.Context, l *loop) {
	every := time.NewTimer(jitter(c.o.Knobs.Sync))
	defer every.Stop()
	for {
		regular := false
		select {
		case <-ctx.Done():
			return
		case <-every.C:
			regular = true
			every.Reset(jitter(c.o.Knobs.Sync))
		case <-c.toSync:
			if !pause(ctx, jitter(c.o.Knobs.Settle)) { // it may mend itself
				return
			}
		}
		if m, ok := c.whom(regular); ok {
			l.do(func() { c.exchange(ctx, m) }, c.o)
		}
	}
}

// whom picks a member to pull from: one that has something else, the owner of something that we lack, or anybody.
func (c *Cluster) whom(regular bool) (cluster.Member, bool) {
	anybody, ok := c.members.any()
	if !ok {
		return cluster.Member{}, false
	}
	if id, differs := c.roots.take(); differs {
		if m, _ := c.members.get(id); m.State == cluster.MemberAlive {
			return m, true
		}
	}
	c.mu.Lock()
	gaps, owners := c.reg.Gaps(), c.reg.OwnerCount()
	c.mu.Unlock()
	if len(gaps) > 0 {
		if m, _ := c.members.get(gaps[rand.IntN(len(gaps))]); m.State == cluster.MemberAlive && rand.IntN(2) == 0 {
			return m, true
		}
		return anybody, true
	}
	return anybody, regular || owners < int(c.members.count.Load()-1)/2
}

// exchange pulls all that a member knows and we do not.
func (c *Cluster) exchange(ctx context.Context, m cluster.Member) {
	ctx, cancel := context.WithTimeout(ctx, pullTimeout)
	defer cancel()
	diverged, err := c.pullAll(ctx, m, func(a registry.Delta) registry.Digest { return c.reg.Digest(a) })
	for _, owner := range diverged[:min(len(diverged), 4)] {
		if o, _ := c.members.get(owner); o.State == cluster.MemberAlive && owner != c.o.Self {
			c.o.Log.Warn("what we and another know of a worker differs where it should not; the worker is asked itself", "worker", owner, "other", m.ID)
			_, err = c.pullAll(ctx, o, func(registry.Delta) registry.Digest { return c.reg.DigestOf(owner) })
		}
	}
	if err != nil && ctx.Err() == nil {
		c.o.Log.Debug("a pull failed", "member", m.ID, "err", err)
		return
	}
	c.roots.agree()
}

func (c *Cluster) pullAll(ctx context.Context, m cluster.Member, next func(registry.Delta) registry.Digest) (diverged []cluster.WorkerID, err error) {
	var answer registry.Delta
	for range pullRounds {
		c.mu.Lock()
		d := next(answer)
		c.mu.Unlock()
		if answer, err = c.puller.Pull(ctx, m, d); err != nil || answer.Same {
			return diverged, err
		}
		if len(answer.Owners) > 0 {
			continue
		}
		diverged = append(diverged, answer.Diverged...)
		verified, refused := registry.Verified(c.o.Verify, answer)
		c.mu.Lock()
		_, err := c.reg.Merge(time.Now(), m.ID, verified)
		c.keep(verified.Objects)
		c.changed()
		c.mu.Unlock()
		if refused = cmp.Or(refused, err); refused != nil {
			c.o.Log.Info("something a member told is refused", "member", m.ID, "err", refused)
		}
		if !answer.More {
			return diverged, nil
		}
		answer = registry.Delta{}
	}
	return diverged, fault.New(fault.Unavailable, "pull", "%d questions were not enough to learn all that %s knows", pullRounds, m.ID)
}
