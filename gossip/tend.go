package gossip

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"
)

// tend does what must be done now and then: saving, forgetting, looking for what is stuck.
func (c *Cluster) tend(ctx context.Context, l *loop) {
	every := time.NewTicker(min(c.o.Knobs.Save, c.o.Knobs.StuckAfter/2))
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
			c.watchdog(time.Now())
			l.do(c.tidy, c.o)
		case <-c.toSave: // a new member is saved soon: after a power loss it must be known that there is one to be asked
			if !pause(ctx, saveSoon) {
				return
			}
			l.do(c.saveOrLog, c.o)
		}
	}
}

// saveSoon is how long new members are waited for, to be saved together.
const saveSoon = 50 * time.Millisecond

func (c *Cluster) tidy() {
	now := time.Now()
	c.members.absolve(now, c.patience())
	c.mu.Lock()
	c.reg.Tidy(now)
	drafts, err := c.reg.Restamp(now)
	c.changed()
	c.mu.Unlock()
	if err != nil || len(drafts) > 0 {
		c.o.Log.Warn("objects written while the clock was ahead are written anew", "objects", len(drafts), "err", err)
	}
	for _, x := range drafts {
		if _, err := c.Objects().write(x); err != nil {
			c.o.Log.Error("an object could not be written anew", "kind", x.Kind, "key", x.Key, "err", err)
		}
	}
	c.keeper.compact(c.allObjects)
	c.saveOrLog()
}

func (c *Cluster) saveOrLog() {
	if err := c.save(); err != nil {
		c.o.Log.Error("the members were not saved", "err", err)
	}
}

// patience is the longest that a suspicion lasts: memberlist's formula, with the logarithm of any possible size.
func (c *Cluster) patience() time.Duration {
	k := c.o.Knobs
	return time.Duration(k.Suspicion*k.SuspicionMax*5) * k.Probe
}

// save writes who the others are, when that has changed.
func (c *Cluster) save() error {
	addrs, changed := c.members.toSave()
	if !changed {
		return nil
	}
	err := c.keeper.members(addrs)
	if err != nil {
		c.members.notSaved()
	}
	return err
}

// reconnect looks for members that are gone, so that a cluster that was cut in two becomes one again, and for all that are
// not met yet after a restart. memberlist itself forgets who is dead.
func (c *Cluster) reconnect(ctx context.Context, l *loop) {
	wait := c.o.Knobs.Reconnect / 4
	for pause(ctx, jitter(wait)) {
		wait = c.o.Knobs.Reconnect
		if len(c.lost()) > 0 && rand.IntN(1+int(c.members.count.Load())/seekers) == 0 {
			l.do(func() { c.lookForLost(ctx) }, c.o)
		}
	}
}

// seekers is how many of a cluster look for members at a time, on average: whoever finds one tells all, and a cluster of hundreds
// must not answer so many exchanges of everything for one member that is gone for good.
const seekers = 16

// lookForLost tries up to three addresses. Whoever answers tells of all that it knows, so after each it is looked anew who
// is still lost: two that have just begun and found each other must go on to look for the others.
func (c *Cluster) lookForLost(ctx context.Context) {
	tried := map[string]bool{}
	for range 3 {
		addrs := slices.DeleteFunc(c.lost(), func(a string) bool { return tried[a] })
		if len(addrs) == 0 {
			return
		}
		tried[addrs[0]] = true
		if err := c.Join(ctx, addrs[:1]); ctx.Err() != nil {
			return
		} else if err != nil {
			c.o.Log.Debug("a member that is gone does not answer", "addr", addrs[0], "err", err)
		}
	}
}

func (c *Cluster) lost() []string { return c.members.lost(c.Addr(), c.o.Peers) }
