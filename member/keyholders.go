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

// keyHolders is what an issuer knows of who has taken the keys of gossip of one generation.
type keyHolders struct {
	mu         sync.Mutex
	generation int
	have       map[cluster.WorkerID]bool      // they said so over the wire
	silent     map[cluster.WorkerID]time.Time // since when they were asked in vain
	lack       []cluster.WorkerID             // who is waited for
}

// askKeysTime bounds how long a member is waited for that is asked which keys it has.
const askKeysTime = 2 * time.Second

// about begins anew when there is another generation. Who is silent is so for a whole rotation.
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

// waiting returns the members that lack the keys of a generation, as of when it was last looked.
func (h *keyHolders) waiting(generation int) []cluster.WorkerID {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.generation != generation {
		return nil
	}
	return slices.Clone(h.lack)
}

// answered notes what came of asking a member which keys it has.
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

// allHaveKeys says whether every member has the keys. Only those count that have a certificate: a name
// in gossip is what anybody can have who has the key that is to be replaced, so each is asked over the wire. One that
// was removed does not get the keys, and is not waited for; nor is one that left, or was not heard for keysPatience: it
// asks for them when it is back. While nobody else is heard at all it is we who are cut off, or have just begun, and
// nothing is decided.
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
		case x.Heard() && x.Keys >= k.Generation: // it cannot be called
			heard++
		case asked && time.Since(silent) >= patience: // whoever has its name in gossip
		case !asked || x.Heard() || min(time.Since(x.Since), time.Since(m.begunAt)) < patience:
			h.lack = append(h.lack, id)
		}
	}
	slices.Sort(h.lack)
	return len(h.lack) == 0 && (heard > 0 || others == 0)
}

// certified returns the other members that have a certificate and are to have keys: who was given one here, or has told
// something that is signed.
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

// askKeys asks members which keys they have, those that have not said yet.
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
	_ = all.Wait() // what came of each is noted
}

// tellNewer tells a member that lacks keys where they are to be had. One that hears us knows, and one that does not may
// not: it reads nothing of ours without the key, and we may have moved.
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
