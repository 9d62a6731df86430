package gossip

import (
	"cmp"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/broadcast"
	"github.com/soukhq/souk/internal/strangers"
)

// meta is what memberlist carries of each member.
type meta struct {
	API        string        `json:"a,omitempty"`
	Role       string        `json:"r,omitempty"`
	Capability int           `json:"c,omitempty"`
	Build      cluster.Build `json:"b,omitzero"`
	Keys       int           `json:"k,omitempty"`
	Leaving    bool          `json:"l,omitempty"` // memberlist knows who left, and does not tell
}

func (m meta) encode() []byte {
	raw, err := json.Marshal(m)
	if err != nil {
		panic(err) // strings and a number
	}
	return raw
}

// seen is a member with what we need to reach it.
type seen struct {
	cluster.Member
	node *memberlist.Node
}

// membership is who the members are and what is believed of each. Its lock is held for work in memory alone, and
// inside it nothing is called but the hooks, which only wake others: memberlist tells and asks here while it holds
// its own locks.
type membership struct {
	self  cluster.WorkerID
	hooks hooks
	count atomic.Int64                        // of members that can be told something, ourselves among them
	hosts atomic.Pointer[map[netip.Addr]bool] // where members are, or were
	// of what is believed: whoever made something of it looks whether that is still so
	turns atomic.Uint64
	heard atomic.Pointer[time.Time] // when another member last answered us, or we began

	mu      sync.Mutex
	all     map[cluster.WorkerID]*seen
	peers   []*seen         // those that can be told something, by id
	ring    *broadcast.Ring // of those that take part in the tree, ourselves among them; nil when it must be made anew
	facts   factRing
	saved   addresses // of members that were saved, those not met since among them
	unsaved bool
}

// hooks are told what happens to the members. None may wait or call back.
type hooks struct {
	changed func() // anything
	joined  func() // somebody is alive that may know what we do not
	unknown func() // somebody was not known before
	suspect func() // somebody is suspected
}

func newMembership(self cluster.WorkerID, saved addresses, h hooks) *membership {
	s := &membership{self: self, hooks: h, all: map[cluster.WorkerID]*seen{}, saved: saved.clone()}
	s.count.Store(1)
	began := time.Now()
	s.heard.Store(&began)
	s.listHosts()
	return s
}

// listHosts lists anew where the members are. It is called with the lock.
func (s *membership) listHosts() {
	hosts := make(map[netip.Addr]bool, len(s.all)+len(s.saved.Gossip))
	add := func(addr string) {
		if a, err := netip.ParseAddrPort(addr); err == nil {
			hosts[strangers.Host(a)] = true
		}
	}
	for _, m := range s.all {
		if !m.Self {
			add(m.Addr)
		}
	}
	for _, addr := range s.saved.Gossip {
		add(addr)
	}
	s.hosts.Store(&hosts)
}

// isAt reports whether a member is at an address.
func (s *membership) isAt(a netip.Addr) bool { return (*s.hosts.Load())[a] }

// noteState takes in what memberlist says of a member.
func (s *membership) noteState(n *memberlist.Node, state cluster.MemberState) {
	var m meta
	if err := json.Unmarshal(n.Meta, &m); err != nil {
		m = meta{} // unreadable: it is a member all the same
	}
	id := cluster.WorkerID(n.Name)
	if state == cluster.MemberDead && m.Leaving {
		state = cluster.MemberLeft
	}
	node := *n
	s.mu.Lock()
	was := s.all[id]
	now := cluster.Member{ID: id, Addr: n.Address(), API: m.API, Role: m.Role, Capability: m.Capability, Keys: m.Keys,
		Build: m.Build, State: state, Since: time.Now(), Self: id == s.self}
	if was != nil && was.State == state {
		now.Since = was.Since
	}
	s.all[id] = &seen{Member: now, node: &node}
	s.listPeers()
	s.facts.add(Fact{Member: id, State: state, At: now.Since})
	s.mu.Unlock()
	if was == nil {
		s.hooks.unknown()
	}
	if state == cluster.MemberAlive && !now.Self {
		s.hooks.joined()
	}
	s.hooks.changed()
}

// listPeers lists anew who can be told something. Those longest gone are forgotten beyond the bound. It is called
// with the lock.
func (s *membership) listPeers() {
	s.peers = nil // whoever holds the old list goes on with it
	var gone []*seen
	for _, m := range s.all {
		switch {
		case m.Self:
		case m.Heard():
			s.peers = append(s.peers, m)
		default:
			gone = append(gone, m)
		}
	}
	slices.SortFunc(s.peers, func(a, b *seen) int { return cmp.Compare(a.ID, b.ID) })
	if len(gone) > maxGone {
		slices.SortFunc(gone, func(a, b *seen) int { return a.Since.Compare(b.Since) })
		delete(s.all, gone[0].ID)
	}
	s.count.Store(int64(len(s.peers)) + 1)
	s.unsaved, s.ring = true, nil
	s.listHosts()
	s.turns.Add(1)
}

// currentRing returns the members that take part in the tree of broadcasts.
func (s *membership) currentRing() *broadcast.Ring {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ring == nil {
		ids := []cluster.WorkerID{s.self}
		for _, m := range s.peers {
			ids = append(ids, m.ID)
		}
		s.ring = broadcast.NewRing(ids)
	}
	return s.ring
}

// nodeOf returns how memberlist reaches a member that can be told something; nil if there is none.
func (s *membership) nodeOf(id cluster.WorkerID) *memberlist.Node {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.all[id]; m != nil && m.Heard() {
		return m.node
	}
	return nil
}

// noteSuspicion notes a suspicion of ours. Alive is noted by the next answer.
func (s *membership) noteSuspicion(id cluster.WorkerID) {
	s.mu.Lock()
	m := s.all[id]
	news := m != nil && m.State == cluster.MemberAlive
	if news {
		s.changeState(m, cluster.MemberSuspect)
	}
	s.mu.Unlock()
	if news {
		s.hooks.suspect()
		s.hooks.changed()
	}
}

// noteAnswer notes that a member answered us.
func (s *membership) noteAnswer(id cluster.WorkerID, rtt time.Duration) {
	now := time.Now()
	s.heard.Store(&now)
	s.mu.Lock()
	m := s.all[id]
	refuted := false
	if m != nil {
		m.RTT = rtt
		if refuted = m.State == cluster.MemberSuspect; refuted {
			s.changeState(m, cluster.MemberAlive)
		}
	}
	s.mu.Unlock()
	if refuted {
		s.hooks.changed()
	}
}

// absolveSuspects takes for alive whom we have suspected for longer than any suspicion lasts: it has told others that
// it lives.
func (s *membership) absolveSuspects(now time.Time, patience time.Duration) {
	s.mu.Lock()
	news := false
	for _, m := range s.all {
		if m.State == cluster.MemberSuspect && now.Sub(m.Since) > patience {
			s.changeState(m, cluster.MemberAlive)
			news = true
		}
	}
	s.mu.Unlock()
	if news {
		s.hooks.changed()
	}
}

// changeState is called with the lock.
func (s *membership) changeState(m *seen, state cluster.MemberState) {
	m.State, m.Since = state, time.Now()
	s.facts.add(Fact{Member: m.ID, State: state, At: m.Since})
	s.turns.Add(1)
}

// anySuspect returns one of the members that we suspect, by chance; nil if there is none.
func (s *membership) anySuspect() (out *memberlist.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, m := range s.peers {
		if m.State == cluster.MemberSuspect {
			if n++; rand.IntN(n) == 0 {
				out = m.node
			}
		}
	}
	return out
}

// anyMember returns one of them.
func (s *membership) anyMember() (cluster.Member, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.peers) == 0 {
		return cluster.Member{}, false
	}
	return s.peers[rand.IntN(len(s.peers))].Member, true
}

// get returns what is known of one member.
func (s *membership) get(id cluster.WorkerID) (cluster.Member, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.all[id]; m != nil {
		return m.Member, true
	}
	return cluster.Member{}, false
}

// list returns all members known, those that are gone among them, by id.
func (s *membership) list() []cluster.Member {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]cluster.Member, 0, len(s.all))
	for _, m := range s.all {
		out = append(out, m.Member)
	}
	slices.SortFunc(out, func(a, b cluster.Member) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// forgetMember drops a member that is gone for good.
func (s *membership) forgetMember(id cluster.WorkerID) {
	s.mu.Lock()
	delete(s.all, id)
	delete(s.saved.Gossip, id)
	delete(s.saved.Calls, id)
	s.listPeers()
	s.mu.Unlock()
	s.hooks.changed()
}

// toSave returns how the members can be found after a restart, when that has changed since it was last asked for: those
// that are known, and those that were saved and not met since.
func (s *membership) toSave() (all addresses, changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.unsaved {
		return addresses{}, false
	}
	out := newAddresses()
	for id, m := range s.all {
		if !m.Self && m.State != cluster.MemberLeft {
			out.set(id, m.Addr, m.API)
		}
	}
	for id, addr := range s.saved.Gossip {
		if s.all[id] == nil && id != s.self {
			out.set(id, addr, s.saved.Calls[id])
		}
	}
	s.saved, s.unsaved = out, false
	return out, true
}

// anyPeer returns the address of a member that is alive; "": there is none.
func (s *membership) anyPeer() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.peers) == 0 {
		return ""
	}
	return s.peers[rand.IntN(len(s.peers))].Addr
}

// notSaved says that what toSave returned is not on disk.
func (s *membership) notSaved() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unsaved = true
}

// lostAddresses returns the addresses to try, in a random order: of members that are gone, and of those that were saved
// and have not been met since. The latter may know us as alive from before our restart: they would not look for us.
// seeds may be the way to a part of the cluster that we never met.
func (s *membership) lostAddresses(self string, seeds []string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	reached := map[string]bool{self: true}
	for _, m := range s.peers {
		reached[m.Addr] = true
	}
	for _, m := range s.all {
		if m.State == cluster.MemberDead && !m.Self {
			out = append(out, m.Addr)
		}
	}
	for id, addr := range s.saved.Gossip {
		if s.all[id] == nil {
			out = append(out, addr)
		}
	}
	if len(s.peers) == 0 || rand.IntN(8) == 0 {
		out = append(out, seeds...)
	}
	slices.Sort(out)
	out = slices.DeleteFunc(slices.Compact(out), func(a string) bool { return reached[a] })
	rand.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// factsSince returns the facts after an index, as far as they are still known.
func (s *membership) factsSince(after uint64) (out []Fact) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.facts.ring {
		if f.Index > after {
			out = append(out, f)
		}
	}
	return out
}

// MemberAt reports whether a member is at an address, or was when it was last heard of.
func (c *Cluster) MemberAt(a netip.Addr) bool { return c.members.isAt(a) }

// Members returns all members known, those that are gone among them, by id.
func (c *Cluster) Members() []cluster.Member { return c.members.list() }

// Member returns what is known of one member.
func (c *Cluster) Member(id cluster.WorkerID) (cluster.Member, bool) { return c.members.get(id) }

// Facts returns the changes after an index, as far as they are still known.
func (c *Cluster) Facts(after uint64) []Fact { return c.members.factsSince(after) }

// Silent returns for how long no other member has answered us, by the monotonic clock, and since we began at most.
func (c *Cluster) Silent() time.Duration { return time.Since(*c.members.heard.Load()) }

// Expected returns the members of whose records nothing is known here yet: those that an earlier life of this one
// saved, and those that are members now. They may have anything.
func (c *Cluster) Expected() []cluster.WorkerID {
	ids := slices.Collect(maps.Keys(c.before.Gossip))
	for _, m := range c.members.list() {
		if m.State != cluster.MemberLeft {
			ids = append(ids, m.ID)
		}
	}
	slices.Sort(ids)
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Compact(ids), func(id cluster.WorkerID) bool {
		_, known := c.reg.Owner(id)
		return known || id == c.o.Self
	})
}

// CalledBefore returns where a member was called in an earlier life of this one; "" is that it is not known.
func (c *Cluster) CalledBefore(id cluster.WorkerID) string { return c.before.Calls[id] }

// Fact is a change of what is believed of a member.
type Fact struct {
	Index  uint64              `json:"index"`
	Member cluster.WorkerID    `json:"member"`
	State  cluster.MemberState `json:"state"`
	At     time.Time           `json:"at"`
}

// factRing keeps the last facts.
type factRing struct {
	ring []Fact
	next uint64
}

const maxFacts = 1024

func (f *factRing) add(x Fact) {
	f.next++
	x.Index = f.next
	if f.ring = append(f.ring, x); len(f.ring) > maxFacts {
		f.ring = slices.Delete(f.ring, 0, len(f.ring)-maxFacts)
	}
}
