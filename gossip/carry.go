package gossip

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/registry"
)

// The methods that memberlist calls. None blocks.

// NodeMeta is memberlist asking what to say of us.
func (c *Cluster) NodeMeta(int) []byte {
	return meta{API: c.o.API, Role: c.o.Role, Capability: c.o.Capability, Keys: int(c.keys.Load()), Leaving: c.leaving.Load()}.encode()
}

// NotifyAlive lets memberlist take in only members whose names are names.
func (c *Cluster) NotifyAlive(n *memberlist.Node) error {
	r := registry.Record{Owner: cluster.WorkerID(n.Name), Kind: registry.Worker, Key: "k", Incarnation: 1, Version: 1}
	return r.Check()
}

// NotifyMsg is a broadcast that came.
func (c *Cluster) NotifyMsg(b []byte) {
	select {
	case c.inbox <- slices.Clone(b):
	default:
		c.dropped.Add(1)
	}
}

// GetBroadcasts is memberlist asking what to repeat.
func (c *Cluster) GetBroadcasts(overhead, limit int) [][]byte {
	return c.queue.GetBroadcasts(overhead, limit)
}

// LocalState is our part of memberlist's full exchange: the hash of what we know, and who we are.
func (c *Cluster) LocalState(bool) []byte {
	return append(binary.BigEndian.AppendUint64(nil, c.root.Load()), c.o.Self...)
}

// MergeRemoteState takes the other's part.
func (c *Cluster) MergeRemoteState(b []byte, _ bool) {
	if len(b) > 8 {
		c.compare(cluster.WorkerID(b[8:]), binary.BigEndian.Uint64(b))
	}
}

// AckPayload goes with every answer to a probe.
func (c *Cluster) AckPayload() []byte { return binary.BigEndian.AppendUint64(nil, c.root.Load()) }

// NotifyPingComplete is a probe of ours that was answered.
func (c *Cluster) NotifyPingComplete(n *memberlist.Node, rtt time.Duration, payload []byte) {
	id := cluster.WorkerID(n.Name)
	c.answered(id, rtt)
	if len(payload) == 8 {
		c.compare(id, binary.BigEndian.Uint64(payload))
	}
}

// compare notes that a member's registry had this hash a moment ago. One that we had lately is behind us, not before.
func (c *Cluster) compare(id cluster.WorkerID, root uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if root == c.root.Load() {
		c.agreed = time.Now()
		return
	}
	if !slices.Contains(c.roots[:], root) {
		c.hint, c.hintRoot = id, root
		c.poke(c.toSync)
	}
}

// message is a broadcast being repeated.
type message []byte

func (message) Invalidates(memberlist.Broadcast) bool { return false }
func (m message) Message() []byte                     { return m }
func (message) Finished()                             {}
func (message) UniqueBroadcast()                      {}

// spread pushes a broadcast to some members at once, when few are waiting, and has it repeated.
func (c *Cluster) spread(raw []byte, push int) {
	c.mu.Lock()
	n := len(c.peers)
	var to []*memberlist.Node
	for _, i := range rand.Perm(n)[:min(push, n)] {
		to = append(to, c.peers[i].node)
	}
	c.mu.Unlock()
	if n == 0 {
		return
	}
	if c.queue.NumQueued() < queueSize/8 {
		for _, n := range to {
			_ = c.ml.SendBestEffort(n, raw) // it will be repeated
		}
	}
	c.queue.QueueBroadcast(message(raw))
	c.queue.Prune(queueSize)
}

const (
	takeMost  = 64 // broadcasts merged at once
	deltaHead = 10 // bytes of a delta of runs alone, and what a run takes in it beside its own
	runHead   = 2
)

// takeIn merges broadcasts, and passes on those that had news.
func (c *Cluster) takeIn(ctx context.Context, l *loop) {
	for {
		select {
		case <-ctx.Done():
			return
		case id := <-c.suspects:
			c.suspect(id)
		case raw := <-c.inbox:
			l.do(func() { c.take(raw) }, c.o)
		}
	}
}

// take merges a broadcast and all that wait behind it, and passes on what was news, in as few packets as hold it: a member
// that is behind must not make as many packets of a backlog as the backlog was.
func (c *Cluster) take(raw []byte) {
	var news [][]byte
	var deltas []registry.Delta
	c.mu.Lock()
	waited := 0
	for behind := true; behind; {
		d, err := decodeBroadcast(raw)
		anew := 0
		if err == nil {
			anew, err = c.reg.Merge(time.Now(), "", d)
		}
		if anew > 0 {
			c.keep(d.Objects)
			news, deltas = append(news, raw), append(deltas, d)
		}
		if err != nil {
			c.o.Log.Debug("a broadcast is refused", "err", err)
		}
		behind = false
		if waited++; waited < takeMost {
			select {
			case raw = <-c.inbox:
				behind = true
			default:
			}
		}
	}
	c.mindContest()
	if len(news) > 0 || c.reg.Root() != c.root.Load() { // a run may say only that something is complete
		c.changed()
	}
	gaps := len(c.reg.Gaps()) > 0
	c.mu.Unlock()
	for _, raw := range packed(news, deltas) {
		c.spread(raw, c.o.Knobs.Push/waited)
	}
	if gaps {
		c.poke(c.toSync)
	}
}

// decodeBroadcast reads what spread sent: a run, or a delta.
func decodeBroadcast(raw []byte) (registry.Delta, error) {
	if run, err := registry.DecodeRun(raw); err == nil {
		return registry.Delta{Runs: []registry.Run{run}}, nil
	}
	return registry.DecodeDelta(raw)
}

// packed puts broadcasts together as far as a packet has room. One that stands alone stays as it came.
func packed(raws [][]byte, deltas []registry.Delta) (out [][]byte) {
	for i := 0; i < len(raws); {
		size, n := deltaHead+len(raws[i]), 1
		for i+n < len(raws) && size+len(raws[i+n])+runHead <= messageSize {
			size += len(raws[i+n]) + runHead
			n++
		}
		if n == 1 {
			out = append(out, raws[i])
		} else {
			var all registry.Delta
			for _, d := range deltas[i : i+n] {
				all.Runs, all.Objects = append(all.Runs, d.Runs...), append(all.Objects, d.Objects...)
			}
			out = append(out, registry.EncodeDelta(all))
		}
		i += n
	}
	return out
}

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
	for _, r := range runs {
		c.spread(registry.EncodeRun(r), c.o.Knobs.Push)
	}
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
func (c *Cluster) whom(regular bool) (Member, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.peers) == 0 {
		return Member{}, false
	}
	anybody := c.peers[rand.IntN(len(c.peers))].Member
	hint := c.members[c.hint]
	different := hint != nil && !slices.Contains(c.roots[:], c.hintRoot)
	c.hint = ""
	if different && hint.State == Alive {
		return hint.Member, true
	}
	if gaps := c.reg.Gaps(); len(gaps) > 0 {
		if m := c.members[gaps[rand.IntN(len(gaps))]]; m != nil && m.State == Alive && rand.IntN(2) == 0 {
			return m.Member, true
		}
		return anybody, true
	}
	return anybody, regular || len(c.reg.Owners()) < len(c.peers)/2
}

// exchange pulls all that a member knows and we do not.
func (c *Cluster) exchange(ctx context.Context, m Member) {
	ctx, cancel := context.WithTimeout(ctx, pullTimeout)
	defer cancel()
	diverged, err := c.pullAll(ctx, m, func(a registry.Delta) registry.Digest { return c.reg.Digest(a) })
	for _, owner := range diverged[:min(len(diverged), 4)] {
		c.mu.Lock()
		o := c.members[owner]
		c.mu.Unlock()
		if o != nil && o.State == Alive && owner != c.o.Self {
			c.o.Log.Warn("what we and another know of a worker differs where it should not; the worker is asked itself", "worker", owner, "other", m.ID)
			_, err = c.pullAll(ctx, o.Member, func(registry.Delta) registry.Digest { return c.reg.DigestOf(owner) })
		}
	}
	if err != nil && ctx.Err() == nil {
		c.o.Log.Debug("a pull failed", "member", m.ID, "err", err)
		return
	}
	c.mu.Lock()
	c.agreed = time.Now()
	c.mu.Unlock()
}

func (c *Cluster) pullAll(ctx context.Context, m Member, next func(registry.Delta) registry.Digest) (diverged []cluster.WorkerID, err error) {
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
		c.mu.Lock()
		_, refused := c.reg.Merge(time.Now(), m.ID, answer)
		c.mindContest()
		c.keep(answer.Objects)
		c.changed()
		c.mu.Unlock()
		if refused != nil {
			c.o.Log.Info("something a member told is refused", "member", m.ID, "err", refused)
		}
		if !answer.More {
			return diverged, nil
		}
		answer = registry.Delta{}
	}
	return diverged, fault.New(fault.Unavailable, "pull", "%d questions were not enough to learn all that %s knows", pullRounds, m.ID)
}
