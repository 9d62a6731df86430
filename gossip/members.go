package gossip

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"math/rand/v2"
	"net"
	"regexp"
	"slices"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/soukhq/souk/cluster"
)

// State is what is believed of a member, as of Since.
type State string

// The states of a member.
const (
	Alive   State = "alive"
	Suspect State = "suspect" // our own probe, and those that we asked for, got no answer; it may yet say that it lives
	Dead    State = "dead"    // it was suspected for so long that it would have said so
	Left    State = "left"    // it said goodbye
)

// Member is a member as we know it. State and Since are a fact with a time, not a judgement of its machines.
type Member struct {
	ID         cluster.WorkerID `json:"id"`
	Addr       string           `json:"addr"` // host:port of its gossip
	API        string           `json:"api,omitempty"`
	Role       string           `json:"role,omitempty"`
	Capability int              `json:"capability,omitempty"`
	Keys       int              `json:"keys,omitempty"` // the generation of the keys of gossip that it has
	State      State            `json:"state"`
	Since      time.Time        `json:"since"`
	RTT        time.Duration    `json:"rtt_ns,omitempty"` // of its last answer to a probe of ours
	Self       bool             `json:"self,omitempty"`
}

// meta is what memberlist carries of each member.
type meta struct {
	API        string `json:"a,omitempty"`
	Role       string `json:"r,omitempty"`
	Capability int    `json:"c,omitempty"`
	Keys       int    `json:"k,omitempty"`
	Leaving    bool   `json:"l,omitempty"` // memberlist knows who left, and does not tell
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
	Member
	node *memberlist.Node
}

// NotifyJoin is memberlist telling that a member is there. It holds memberlist's lock: nothing of memberlist may be called.
func (c *Cluster) NotifyJoin(n *memberlist.Node) { c.noted(n, Alive) }

// NotifyUpdate is memberlist telling that a member's meta changed.
func (c *Cluster) NotifyUpdate(n *memberlist.Node) { c.noted(n, Alive) }

// NotifyLeave is memberlist telling that a member is gone.
func (c *Cluster) NotifyLeave(n *memberlist.Node) {
	c.noted(n, Dead)
}

func (c *Cluster) noted(n *memberlist.Node, s State) {
	var m meta
	if err := json.Unmarshal(n.Meta, &m); err != nil {
		m = meta{} // of another version: it is a member all the same
	}
	id := cluster.WorkerID(n.Name)
	if s == Dead && m.Leaving {
		s = Left
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.members[id]
	now := Member{ID: id, Addr: n.Address(), API: m.API, Role: m.Role, Capability: m.Capability, Keys: m.Keys, State: s, Since: time.Now(), Self: id == c.o.Self}
	if was != nil && was.State == s {
		now.Since = was.Since
	}
	node := *n
	c.members[id] = &seen{Member: now, node: &node}
	c.peersChanged()
	if was == nil {
		c.poke(c.toSave)
	}
	c.facts.add(Fact{Member: id, State: s, At: now.Since})
	if s == Alive && !now.Self {
		c.poke(c.toSync) // it may know what we do not
	}
	c.wake()
}

// peersChanged lists anew who can be told something. Those longest gone are forgotten beyond the bound.
func (c *Cluster) peersChanged() {
	c.peers = c.peers[:0]
	var gone []*seen
	for _, m := range c.members {
		switch {
		case m.Self:
		case m.State == Alive || m.State == Suspect:
			c.peers = append(c.peers, m)
		default:
			gone = append(gone, m)
		}
	}
	slices.SortFunc(c.peers, func(a, b *seen) int { return cmp.Compare(a.ID, b.ID) })
	if len(gone) > maxGone {
		slices.SortFunc(gone, func(a, b *seen) int { return a.Since.Compare(b.Since) })
		delete(c.members, gone[0].ID)
	}
	c.unsaved = true
	c.view = nil
}

// suspected is memberlist's one way of telling a suspicion of ours: its log.
var suspected = regexp.MustCompile(`^\[INFO\] memberlist: Suspect (\S+) has failed`) //nolint:gochecknoglobals // a constant

// logWriter takes memberlist's log to ours, and its suspicions to the members.
type logWriter struct{ c *Cluster }

func (w logWriter) Write(line []byte) (int, error) {
	text := bytes.TrimSpace(line)
	if i := bytes.IndexByte(text, '['); i > 0 { // after the time, of which ours has one, too
		text = text[i:]
	}
	if m := suspected.FindSubmatch(text); m != nil {
		// memberlist may hold its lock here, and whoever holds ours may wait for it: not at once.
		select {
		case w.c.suspects <- cluster.WorkerID(m[1]):
		default:
		}
	}
	level, rest, _ := bytes.Cut(text, []byte("] memberlist: "))
	switch string(level) {
	case "[ERR", "[WARN":
		w.c.o.Log.Info("memberlist: "+string(rest), "member", w.c.o.Self)
	default:
		w.c.o.Log.Debug("memberlist: "+string(rest), "member", w.c.o.Self)
	}
	return len(line), nil
}

// suspect notes a suspicion of ours. Alive is noted by the next answer.
func (c *Cluster) suspect(id cluster.WorkerID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m := c.members[id]; m != nil && m.State == Alive {
		c.becomes(m, Suspect)
		c.poke(c.toDoubt)
	}
}

// answered notes that a member answered us.
func (c *Cluster) answered(id cluster.WorkerID, rtt time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m := c.members[id]; m != nil {
		if m.RTT = rtt; m.State == Suspect {
			c.becomes(m, Alive)
		}
	}
}

// becomes is called with the lock.
func (c *Cluster) becomes(m *seen, s State) {
	m.State, m.Since = s, time.Now()
	c.view = nil
	c.facts.add(Fact{Member: m.ID, State: s, At: m.Since})
	c.wake()
}

// doubt asks those we suspect now and then. A suspicion that was refuted memberlist tells to nobody, and its own next probe of
// one of some hundred members comes half a minute later.
func (c *Cluster) doubt(ctx context.Context, l *loop) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.toDoubt:
		}
		for {
			if !pause(ctx, jitter(c.o.Knobs.Doubt)) {
				return
			}
			n := c.suspected()
			if n == nil {
				break
			}
			l.do(func() {
				addr := net.UDPAddr{IP: n.Addr, Port: int(n.Port)}
				if rtt, err := c.ml.Ping(n.Name, &addr); err == nil {
					c.answered(cluster.WorkerID(n.Name), rtt)
				}
			}, c.o)
		}
	}
}

// suspected gives one of the members that we suspect, by chance; nil if there is none.
func (c *Cluster) suspected() (out *memberlist.Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, m := range c.peers {
		if m.State == Suspect {
			if n++; rand.IntN(n) == 0 {
				out = m.node
			}
		}
	}
	return out
}

// Members lists all members known, those that are gone among them, by id.
func (c *Cluster) Members() []Member {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]Member, 0, len(c.members))
	for _, m := range c.members {
		out = append(out, m.Member)
	}
	slices.SortFunc(out, func(a, b Member) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// Member gives what is known of one member.
func (c *Cluster) Member(id cluster.WorkerID) (Member, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.members[id]
	if m == nil {
		return Member{}, false
	}
	return m.Member, true
}

// Expected lists the members of whose records nothing is known here yet: those that an earlier life of this one saved, and
// those that are members now. They may have anything.
func (c *Cluster) Expected() []cluster.WorkerID {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []cluster.WorkerID
	expect := func(id cluster.WorkerID) {
		if _, owner := c.reg.Owner(id); !owner && id != c.o.Self && !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	for id := range c.before {
		expect(id)
	}
	for id, m := range c.members {
		if m.State != Left {
			expect(id)
		}
	}
	slices.Sort(out)
	return out
}

// Fact is a change of what is believed of a member.
type Fact struct {
	Index  uint64           `json:"index"`
	Member cluster.WorkerID `json:"member"`
	State  State            `json:"state"`
	At     time.Time        `json:"at"`
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

// Facts gives the changes after an index, as far as they are still known.
func (c *Cluster) Facts(after uint64) (out []Fact) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.facts.ring {
		if f.Index > after {
			out = append(out, f)
		}
	}
	return out
}
