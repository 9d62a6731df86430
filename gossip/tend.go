package gossip

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
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
	c.mu.Lock()
	c.reg.Tidy(now)
	if anew, err := c.reg.Restamp(now, c.o.Sign); err != nil || len(anew) > 0 {
		c.o.Log.Warn("objects written while the clock was ahead are written anew", "objects", len(anew), "err", err)
		c.keep(anew)
	}
	patience := c.patience()
	for _, m := range c.members {
		if m.State == Suspect && now.Sub(m.Since) > patience {
			c.becomes(m, Alive) // it would be dead by now: it has told others that it lives
		}
	}
	if c.disk.grown() {
		if err := c.disk.rewrite(c.reg.Objects("", true)); err != nil {
			c.o.Log.Error("the file of objects could not be written anew", "err", err)
		}
	}
	c.changed()
	c.mu.Unlock()
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
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.unsaved {
		return nil
	}
	c.disk.Members = c.addresses()
	if err := c.disk.write(); err != nil {
		return err
	}
	c.unsaved = false
	return nil
}

// addresses gives the members that are not gone for good, and those that were saved and have not been heard since: we may be
// cut off, or have just begun.
func (c *Cluster) addresses() map[cluster.WorkerID]string {
	out := map[cluster.WorkerID]string{}
	for id, m := range c.members {
		if !m.Self && m.State != Left {
			out[id] = m.Addr
		}
	}
	for id, addr := range c.disk.Members {
		if c.members[id] == nil && id != c.o.Self {
			out[id] = addr
		}
	}
	return out
}

// reconnect looks for members that are gone, so that a cluster that was cut in two becomes one again, and for all that are
// not met yet after a restart. memberlist itself forgets who is dead.
func (c *Cluster) reconnect(ctx context.Context, l *loop) {
	wait := c.o.Knobs.Reconnect / 4
	for pause(ctx, jitter(wait)) {
		wait = c.o.Knobs.Reconnect
		if len(c.lost()) > 0 && rand.IntN(1+c.count()/seekers) == 0 {
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

// lost gives the addresses to try, in a random order: of members that are gone, and of those that were saved and have not been
// met since. The latter may know us as alive from before our restart: they would not look for us.
func (c *Cluster) lost() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []string
	reached := map[string]bool{c.Addr(): true}
	for _, m := range c.peers {
		reached[m.Addr] = true
	}
	for _, m := range c.members {
		if m.State == Dead && !m.Self {
			out = append(out, m.Addr)
		}
	}
	for id, addr := range c.disk.Members {
		if c.members[id] == nil {
			out = append(out, addr)
		}
	}
	if len(c.peers) == 0 || rand.IntN(8) == 0 { // a seed may be the way to a part of the cluster that we never met
		out = append(out, c.o.Peers...)
	}
	slices.Sort(out)
	out = slices.DeleteFunc(slices.Compact(out), func(a string) bool { return reached[a] })
	rand.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}
