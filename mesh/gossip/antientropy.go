package gossip

import (
	"cmp"
	"context"
	"math/rand/v2"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/registry"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/wait"
)

// antiEntropy pulls records that this member lacks from other members.
type antiEntropy struct {
	c      *Cluster
	puller Puller
	wake   chan struct{} // something hints at a difference
}

// pullDifferences pulls from a member whenever something hints at a difference, and at intervals without a hint.
func (e *antiEntropy) pullDifferences(ctx context.Context, l *loop) {
	every := time.NewTimer(jitter(e.c.o.Knobs.Sync))
	defer every.Stop()
	for {
		regular := false
		select {
		case <-ctx.Done():
			return
		case <-every.C:
			regular = true
			every.Reset(jitter(e.c.o.Knobs.Sync))
		case <-e.wake:
			if wait.For(ctx, jitter(e.c.o.Knobs.Settle)) != nil { // the difference may resolve itself
				return
			}
		}
		if m, ok := e.pickMember(regular); ok {
			l.runGuarded(func() { e.pullFrom(ctx, m) }, e.c.o)
		}
	}
}

// pickMember picks a member to pull from: one whose hash differs from ours, the owner of records that we lack, or any
// member.
func (e *antiEntropy) pickMember(regular bool) (cluster.Member, bool) {
	anybody, ok := e.c.members.anyMember()
	if !ok {
		return cluster.Member{}, false
	}
	if id, differs := e.c.roots.takeDifferingMember(); differs {
		if m, _ := e.c.members.get(id); m.State == cluster.MemberAlive {
			return m, true
		}
	}
	e.c.mu.Lock()
	gaps, owners := e.c.reg.Gaps(), e.c.reg.OwnerCount()
	e.c.mu.Unlock()
	if len(gaps) > 0 {
		if m, _ := e.c.members.get(gaps[rand.IntN(len(gaps))]); m.State == cluster.MemberAlive && rand.IntN(2) == 0 {
			return m, true
		}
		return anybody, true
	}
	return anybody, regular || owners < int(e.c.members.count.Load()-1)/2
}

// PullFrom pulls everything that a member knows, also from a suspected one: a member that answered a probe late is not
// gone, and a client's answer waits for its records.
func (c *Cluster) PullFrom(ctx context.Context, id cluster.WorkerID) error {
	m, known := c.members.get(id)
	if !known || !m.Heard() {
		return fault.New(fault.Unavailable, fault.CodePull, "nothing can be pulled from member %s, which does not "+
			"answer", id)
	}
	e := c.antiEntropy
	ctx, cancel := context.WithTimeout(ctx, pullTimeout)
	defer cancel()
	_, err := e.pullAll(ctx, m, func(a registry.Delta) registry.Digest { return e.c.reg.Digest(a) })
	return err
}

// pullFrom pulls everything that a member knows and we do not.
func (e *antiEntropy) pullFrom(ctx context.Context, m cluster.Member) {
	ctx, cancel := context.WithTimeout(ctx, pullTimeout)
	defer cancel()
	diverged, err := e.pullAll(ctx, m, func(a registry.Delta) registry.Digest { return e.c.reg.Digest(a) })
	for _, owner := range diverged[:min(len(diverged), 4)] {
		if o, _ := e.c.members.get(owner); o.State == cluster.MemberAlive && owner != e.c.o.Self {
			e.c.o.Log.Warn("what we and another know of a worker differs where it should not; the worker is asked "+
				"itself", "worker", owner, "other", m.ID)
			_, err = e.pullAll(ctx, o, func(registry.Delta) registry.Digest { return e.c.reg.DigestOf(owner) })
		}
	}
	if err != nil && ctx.Err() == nil {
		e.c.o.Log.Debug("a pull failed", "member", m.ID, "err", err)
		return
	}
	e.c.roots.noteAgreement()
}

func (e *antiEntropy) pullAll(ctx context.Context, m cluster.Member,
	next func(registry.Delta) registry.Digest) (diverged []cluster.WorkerID, err error) {
	var answer registry.Delta
	for range pullRounds {
		e.c.mu.Lock()
		d := next(answer)
		e.c.mu.Unlock()
		if answer, err = e.puller.Pull(ctx, m, d); err != nil || answer.Same {
			return diverged, err
		}
		if len(answer.Owners) > 0 {
			continue
		}
		diverged = append(diverged, answer.Diverged...)
		verified, refused := e.c.verifyDelta(answer)
		e.c.mu.Lock()
		_, err := e.c.reg.Merge(time.Now(), m.ID, verified)
		e.c.refusals.countRefusal(err)
		e.c.keepObjects(verified.Objects)
		e.c.afterChange()
		e.c.mu.Unlock()
		if refused = cmp.Or(refused, err); refused != nil {
			e.c.o.Log.Info("something a member told is refused", "member", m.ID, "err", refused)
		}
		if !answer.More {
			return diverged, nil
		}
		answer = registry.Delta{}
	}
	return diverged, fault.New(fault.Unavailable, fault.CodePull,
		"%d requests were not enough to pull everything that %s knows", pullRounds, m.ID)
}
