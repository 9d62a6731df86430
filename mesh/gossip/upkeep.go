package gossip

import (
	"context"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/internal/wait"
)

// upkeep runs the periodic work: it saves members, forgets old records, looks for lost members, probes suspected ones,
// and reports what hangs.
type upkeep struct {
	c        *Cluster
	saves    chan struct{} // a new member
	suspects chan struct{} // a member became suspect
}

// runUpkeep runs the periodic work except the search for lost and suspected members.
func (u *upkeep) runUpkeep(ctx context.Context, l *loop) {
	every := time.NewTicker(min(u.c.o.Knobs.Save, u.c.o.Knobs.StuckAfter/2))
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
			u.watchLoops(time.Now())
			l.runGuarded(u.forgetOld, u.c.o)
		case <-u.saves: // save new members soon: after a power loss this member must know that there are others to ask
			if wait.For(ctx, saveSoon) != nil {
				return
			}
			l.runGuarded(u.saveOrLog, u.c.o)
		}
	}
}

// saveSoon is the delay before new members are saved, so that several share one write.
const saveSoon = 50 * time.Millisecond

func (u *upkeep) forgetOld() {
	now := time.Now()
	u.c.members.absolveSuspects(now, u.suspicionPatience())
	u.c.announcer.forgetDeletions(now)
	u.c.mu.Lock()
	drafts, err := u.c.reg.Restamp(now)
	u.c.afterChange()
	u.c.mu.Unlock()
	if err != nil || len(drafts) > 0 {
		u.c.o.Log.Warn("objects written while the clock was ahead are written anew", "objects", len(drafts), "err", err)
	}
	for _, x := range drafts {
		if _, err := u.c.Objects().writeObject(x); err != nil {
			u.c.o.Log.Error("an object could not be written anew", "kind", x.Kind, "key", x.Key, "err", err)
		}
	}
	u.c.keeper.compactObjects(u.c.allObjects)
	u.saveOrLog()
}

func (u *upkeep) saveOrLog() {
	if err := u.saveMembers(); err != nil {
		u.c.o.Log.Error("the members were not saved", "err", err)
	}
}

// suspicionPatience is the longest that a suspicion lasts: memberlist's formula, with a bound for the logarithm of the
// cluster's size.
func (u *upkeep) suspicionPatience() time.Duration {
	k := u.c.o.Knobs
	return time.Duration(k.Suspicion*k.SuspicionMax*5) * k.Probe
}

// saveMembers saves the members' addresses if they have changed.
func (u *upkeep) saveMembers() error {
	addrs, changed := u.c.members.toSave()
	if !changed {
		return nil
	}
	err := u.c.keeper.saveMembers(addrs)
	if err != nil {
		u.c.members.notSaved()
	}
	return err
}

// reconnectLost looks for dead members, so that the halves of a partitioned cluster find each other again, and for
// members not met yet after a restart. Memberlist itself forgets dead members.
func (u *upkeep) reconnectLost(ctx context.Context, l *loop) {
	l.runGuarded(func() { u.meetAny(ctx) }, u.c.o)
	every := u.c.o.Knobs.Reconnect / 4
	for wait.For(ctx, jitter(every)) == nil {
		every = u.c.o.Knobs.Reconnect
		if len(u.lostAddresses()) > 0 && rand.IntN(1+int(u.c.members.count.Load())/seekers) == 0 {
			l.runGuarded(func() { u.lookForLost(ctx) }, u.c.o)
		}
	}
}

// meetAny tries several addresses at once: a worker that has just started waits for its first contact, and dead
// addresses must not delay it.
func (u *upkeep) meetAny(ctx context.Context) {
	addrs := u.lostAddresses()
	var all sync.WaitGroup
	for _, addr := range addrs[:min(len(addrs), meetAtOnce)] {
		all.Go(func() {
			if err := u.c.Join(ctx, []string{addr}); err != nil && ctx.Err() == nil {
				u.c.o.Log.Debug("a member does not answer yet", "addr", addr, "err", err)
			}
		})
	}
	all.Wait()
}

const meetAtOnce = 8

// seekers is how many members look for lost ones at a time, on average. One that finds a member informs all others;
// without the bound, a cluster of hundreds would run hundreds of full exchanges for one member that is gone for good.
const seekers = 16

// lookForLost tries up to three addresses. A member that answers sends its whole member list, so the list of lost ones
// is made again after each: two members that have just started and found each other must go on to look for the rest.
func (u *upkeep) lookForLost(ctx context.Context) {
	tried := map[string]bool{}
	for range 3 {
		addrs := slices.DeleteFunc(u.lostAddresses(), func(a string) bool { return tried[a] })
		if len(addrs) == 0 {
			return
		}
		tried[addrs[0]] = true
		if err := u.c.Join(ctx, addrs[:1]); ctx.Err() != nil {
			return
		} else if err != nil {
			u.c.o.Log.Debug("a member that is gone does not answer", "addr", addrs[0], "err", err)
		}
	}
}

func (u *upkeep) lostAddresses() []string { return u.c.members.lostAddresses(u.c.Addr(), u.c.o.Peers) }

// askSuspects probes suspected members at intervals. Memberlist reports no refuted suspicion, and its own next probe of
// one of some hundred members comes half a minute later.
func (u *upkeep) askSuspects(ctx context.Context, l *loop) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-u.suspects:
		}
		for {
			if wait.For(ctx, jitter(u.c.o.Knobs.Reprobe)) != nil {
				return
			}
			n := u.c.members.anySuspect()
			if n == nil {
				break
			}
			l.runGuarded(func() {
				addr := net.UDPAddr{IP: n.Addr, Port: int(n.Port)}
				if rtt, err := u.c.ml.Ping(n.Name, &addr); err == nil {
					u.c.members.noteAnswer(cluster.WorkerID(n.Name), rtt)
				}
			}, u.c.o)
		}
	}
}

// watchLoops reports the loops and the readers that hang.
func (u *upkeep) watchLoops(now time.Time) {
	stuck := func(name string, since time.Duration) {
		u.c.o.Log.Error("gossip: somebody does not move", "who", name, "for", since)
		u.c.o.Stuck(name, since)
	}
	for i := range u.c.loops {
		l := &u.c.loops[i]
		busy := l.busy.Load()
		if since := now.Sub(time.Unix(0, busy)); busy == 0 {
			l.warned = false
		} else if since > max(u.c.o.Knobs.StuckAfter, 2*pullTimeout) && !l.warned {
			l.warned = true
			stuck("gossip: "+l.name, since)
		}
	}
	type late struct {
		name  string
		since time.Duration
	}
	var all []late
	u.c.mu.Lock()
	index := u.c.reg.Index()
	for w := range u.c.watches {
		if since := now.Sub(w.read); w.pos < index && since > u.c.o.Knobs.StuckAfter && !w.warned {
			w.warned = true
			all = append(all, late{w.name, since})
		}
	}
	u.c.mu.Unlock()
	for _, l := range all {
		stuck(l.name, l.since)
	}
}
