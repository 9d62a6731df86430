package member

import (
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/mesh/pki"
)

// keyHolders is what an issuer knows about which members have one generation of gossip keys.
type keyHolders struct {
	mu         sync.Mutex
	generation int
	have       map[cluster.WorkerID]bool      // members that confirmed it over the wire
	silent     map[cluster.WorkerID]time.Time // since when a member does not answer
	lack       []cluster.WorkerID             // members that the rotation waits for
}

// askKeysTime bounds the question to one member which keys it has.
const askKeysTime = 2 * time.Second

// about resets h for another generation. A member that does not answer counts as silent until the rotation ends.
func (h *keyHolders) about(k pki.GossipKeys) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.have != nil && h.generation == k.Generation {
		return
	}
	h.generation, h.lack, h.have = k.Generation, nil, map[cluster.WorkerID]bool{}
	if h.silent == nil || k.Step == pki.StepInstalled {
		h.silent = map[cluster.WorkerID]time.Time{}
	}
}

// waiting returns the members that lacked the keys of a generation at the last check.
func (h *keyHolders) waiting(generation int) []cluster.WorkerID {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.generation != generation {
		return nil
	}
	return slices.Clone(h.lack)
}

// answered records a member's answer as to which keys it has.
func (h *keyHolders) answered(id cluster.WorkerID, keys int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err == nil:
		h.have[id] = keys >= h.generation
		delete(h.silent, id)
	case h.silent[id].IsZero():
		h.silent[id] = time.Now()
	}
}

// allHaveKeys reports whether every member has the keys. It asks each over the wire, and counts only members with a
// certificate: a thief of the old key could add any name to gossip. It does not wait for members that were removed,
// have left, or were silent for keysPatience; the latter ask for the keys when they are back. While no other member is
// reachable, this one may be cut off or have just started, so it returns false.
func (m gossipKeys) allHaveKeys(ctx context.Context, k pki.GossipKeys) bool {
	h := &m.holders
	h.about(k)
	states := m.certified()
	m.askKeys(ctx, k.Generation, states)
	patience := keysPatience * m.o.Knobs.Reconnect
	others, heard := 0, 0
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lack = nil
	for id, x := range states {
		others++
		silent, asked := h.silent[id]
		switch {
		case h.have[id]:
			heard++
		case x.Heard() && x.Keys >= k.Generation: // it gossips its generation but cannot be called
			heard++
		case asked && time.Since(silent) >= patience: // silent for too long, whatever gossip says
		case !asked || x.Heard() || min(time.Since(x.Since), time.Since(m.begunAt)) < patience:
			h.lack = append(h.lack, id)
		}
	}
	slices.Sort(h.lack)
	return len(h.lack) == 0 && (heard > 0 || others == 0)
}

// certified returns the other members that have a certificate and may have keys: those certified by this CA, or known
// by a signed message.
func (m gossipKeys) certified() map[cluster.WorkerID]cluster.Member {
	states := map[cluster.WorkerID]cluster.Member{}
	for _, id := range m.cluster.Expected() {
		states[id] = cluster.Member{ID: id, State: cluster.MemberDead}
	}
	for _, x := range m.cluster.Members() {
		states[x.ID] = x
	}
	issued := map[cluster.WorkerID]bool{}
	all, err := m.issuer.Issued()
	for _, g := range all {
		issued[cluster.WorkerID(g.ID)] = g.Ends.After(m.o.Now())
	}
	for id, x := range states {
		_, told := m.cluster.Record(id)
		if m.removedFor(id) || x.Self || x.State == cluster.MemberLeft || err == nil && !told && !issued[id] {
			delete(states, id)
		}
	}
	return states
}

// askKeys asks the members that have not confirmed yet which keys they have.
func (m gossipKeys) askKeys(ctx context.Context, generation int, states map[cluster.WorkerID]cluster.Member) {
	ctx, cancel := context.WithTimeout(ctx, askKeysTime)
	defer cancel()
	var all errgroup.Group
	all.SetLimit(16)
	for id := range states {
		m.holders.mu.Lock()
		known := m.holders.have[id]
		m.holders.mu.Unlock()
		if known {
			continue
		}
		all.Go(func() error {
			g, err := m.Hello(ctx, id)
			m.holders.answered(id, g.Keys, err)
			if err == nil && g.Keys < generation {
				m.tellNewer(ctx, id, generation)
			}
			return nil
		})
	}
	_ = all.Wait() // answered has recorded each result
}

// tellNewer tells a member that lacks keys at which address it gets them. A member that cannot decrypt our gossip may
// not know: we may have moved.
func (m gossipKeys) tellNewer(ctx context.Context, id cluster.WorkerID, generation int) {
	f, known := m.Other(id)
	if !known {
		return
	}
	self, _ := m.cluster.Member(m.ID())
	if err := f.NewerKeys(ctx, generation, self.API); err != nil {
		m.o.Log.Debug("a member could not be told of newer keys", "member", id, "err", err)
	}
}
