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
	Leaving    bool          `json:"l,omitempty"` // memberlist knows that a member left, but does not report it
}

func (m meta) encode() []byte {
	raw, err := json.Marshal(m)
	if err != nil {
		panic(err) // cannot happen: meta holds only strings and numbers
	}
	return raw
}

// seen is a member, with its memberlist node.
type seen struct {
	cluster.Member
	node *memberlist.Node
}

// membership holds the members and their believed states. Its lock is held only for work in memory, and under it
// nothing is called except the hooks, which only wake goroutines: memberlist calls into here while it holds its own
// locks.
type membership struct {
	self  cluster.WorkerID
	hooks hooks
	count atomic.Int64                        // reachable members, ourselves included
	hosts atomic.Pointer[map[netip.Addr]bool] // addresses where members are, or last were
	// increased with every change of the members, so that cached results can be checked
	turns atomic.Uint64
	heard atomic.Pointer[time.Time] // when another member last answered us; at first, when we began

	mu      sync.Mutex
	all     map[cluster.WorkerID]*seen
	peers   []*seen         // reachable members, by id
	ring    *broadcast.Ring // members of the broadcast tree, ourselves included; nil: it must be rebuilt
	facts   factRing
	saved   addresses // saved addresses, also of members not met since the start
	unsaved bool
}

// hooks are called when members change. They must not block or call back.
type hooks struct {
	changed func() // any change
	joined  func() // a member is alive that may have records that we lack
	unknown func() // a new member
	suspect func() // a member became suspect
}

func newMembership(self cluster.WorkerID, saved addresses, h hooks) *membership {
	s := &membership{self: self, hooks: h, all: map[cluster.WorkerID]*seen{}, saved: saved.clone()}
	s.count.Store(1)
	began := time.Now()
	s.heard.Store(&began)
	s.listHosts()
	return s
}

// listHosts rebuilds hosts. The caller holds the lock.
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

// noteState records a state that memberlist reports for a member.
func (s *membership) noteState(n *memberlist.Node, state cluster.MemberState) {
	var m meta
	if err := json.Unmarshal(n.Meta, &m); err != nil {
		m = meta{} // unreadable meta: it still counts as a member
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

// listPeers rebuilds peers and hosts. Beyond maxGone, it forgets the member that has been gone longest. The caller
// holds the lock.
func (s *membership) listPeers() {
	s.peers = nil // a new slice: readers may still hold the old one
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

// nodeOf returns memberlist's node of a reachable member, else nil.
func (s *membership) nodeOf(id cluster.WorkerID) *memberlist.Node {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.all[id]; m != nil && m.Heard() {
		return m.node
	}
	return nil
}

// noteSuspicion records that we suspect a member. The member's next answer ends the suspicion.
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

// absolveSuspects marks members as alive that we have suspected for longer than any suspicion lasts: they have refuted
// it towards other members.
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

// changeState sets a member's state and records the fact. The caller holds the lock.
func (s *membership) changeState(m *seen, state cluster.MemberState) {
	m.State, m.Since = state, time.Now()
	s.facts.add(Fact{Member: m.ID, State: state, At: m.Since})
	s.turns.Add(1)
}

// anySuspect returns a random suspected member, nil if there is none.
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

// anyMember returns a random reachable member.
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

// list returns all known members, also those that are gone, by id.
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

// toSave returns the addresses to save: those of known members, and saved ones of members not met since the start.
// changed is false if they have not changed since the last call.
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

// anyPeer returns the gossip address of a random reachable member, "" if there is none.
func (s *membership) anyPeer() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.peers) == 0 {
		return ""
	}
	return s.peers[rand.IntN(len(s.peers))].Addr
}

// notSaved notes that the result of toSave could not be written.
func (s *membership) notSaved() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unsaved = true
}

// lostAddresses returns addresses to try, in random order: of dead members, and of saved members not met since the
// start. The latter may still take us for alive from before our restart, and so would not look for us. seeds are added
// at times, always if no member is reachable: they may lead to a part of the cluster that we never met.
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

// factsSince returns the facts after an index that are still kept.
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

// MemberAt reports whether an address is a member's current or last known address.
func (c *Cluster) MemberAt(a netip.Addr) bool { return c.members.isAt(a) }

// Members returns all known members, also those that are gone, by id.
func (c *Cluster) Members() []cluster.Member { return c.members.list() }

// Member returns what is known of one member.
func (c *Cluster) Member(id cluster.WorkerID) (cluster.Member, bool) { return c.members.get(id) }

// Facts returns the changes after an index that are still kept.
func (c *Cluster) Facts(after uint64) []Fact { return c.members.factsSince(after) }

// Silent returns the time since another member last answered us, or since we began, by the monotonic clock.
func (c *Cluster) Silent() time.Duration { return time.Since(*c.members.heard.Load()) }

// Expected returns the members that we have no records of yet: those saved before this process started, and current
// ones. Any of them may own records that matter.
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

// CalledBefore returns a member's API address as saved before this process started, "" if it is unknown.
func (c *Cluster) CalledBefore(id cluster.WorkerID) string { return c.before.Calls[id] }

// Fact is a change of a member's believed state.
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
