package gossip

import (
	"math/rand/v2"
	"slices"

	"github.com/soukhq/souk/sim/ticks"
)

// DetectOptions say what to run.
type DetectOptions struct {
	Members  int
	Seed     uint64
	Loss     float64    // share of packets lost
	Duration ticks.Time // of the whole run
	Kill     ticks.Time // when the last member dies; 0: none does
	Knobs    Knobs
}

// DetectReport is what came of a run.
type DetectReport struct {
	Probes     int        `json:"probes"`
	Suspicions int        `json:"suspicions"`      // probes that ended in a suspicion
	False      int        `json:"false_positives"` // members declared dead that were not
	FirstDead  ticks.Time `json:"first_us"`        // from the death until the first member knew; 0: none did
	AllDead    ticks.Time `json:"all_us"`          // from the death until all members knew
}

type opinion uint8

const (
	alive opinion = iota
	suspect
	dead
)

// note is memberlist's gossip about a member.
type note struct {
	about, from int32
	inc         uint32
	what        opinion
}

// belief is one member's knowledge of another, if it differs from the initial one.
type belief struct {
	inc     uint32
	what    opinion
	confirm []int32 // members that suspect it, the first one first
	begun   ticks.Time
	expires ticks.Time
	least   ticks.Time
	most    ticks.Time
	k       int
}

type queued struct {
	note
	sent int
}

type swimmer struct {
	id       int32
	inc      uint32
	score    int // Lifeguard's local health score: 0 is healthy
	order    []int32
	next     int
	beliefs  map[int32]*belief
	queue    []queued
	ticking  bool // its gossip timer runs, while it has notes to send
	answered bool // the present probe is answered
	down     bool
}

type swimTick struct {
	what   uint8 // one of the following
	who    int32
	target int32
	note   note
	at     ticks.Time // of an expiry: the expiry time it was set for
}

const (
	tickProbe uint8 = iota
	tickTimeout
	tickDeadline
	tickGossip
	tickArrive
	tickExpire
	tickKill
)

const notesPerPacket = 20 // of about 60 bytes

type swim struct {
	o     DetectOptions
	rng   *rand.Rand
	heap  ticks.Heap[swimTick]
	now   ticks.Time
	all   []*swimmer
	rep   DetectReport
	knows int // members that consider the dead member dead
}

// Detect runs the failure detector.
func Detect(o DetectOptions) DetectReport {
	s := &swim{o: o, rng: rand.New(rand.NewPCG(o.Seed, 0x7377696d))}
	for i := range o.Members {
		m := &swimmer{id: int32(i), beliefs: map[int32]*belief{}}
		for j := range o.Members {
			if j != i {
				m.order = append(m.order, int32(j))
			}
		}
		s.rng.Shuffle(len(m.order), func(a, b int) { m.order[a], m.order[b] = m.order[b], m.order[a] })
		s.all = append(s.all, m)
		s.heap.Push(s.rng.Int64N(o.Knobs.Probe), swimTick{what: tickProbe, who: m.id})
	}
	if o.Kill > 0 {
		s.heap.Push(o.Kill, swimTick{what: tickKill, who: int32(o.Members - 1)})
	}
	for {
		at, t, ok := s.heap.Pop()
		if !ok || at > o.Duration || s.rep.AllDead > 0 {
			return s.rep
		}
		s.now = at
		s.handleTick(t)
	}
}

func (s *swim) handleTick(t swimTick) {
	m := s.all[t.who]
	switch {
	case t.what == tickKill:
		m.down = true
	case m.down:
	case t.what == tickProbe:
		s.probeNext(m)
	case t.what == tickTimeout:
		s.probeIndirectly(m, t.target)
	case t.what == tickDeadline:
		s.suspectUnanswered(m, t.target)
	case t.what == tickGossip:
		s.gossipNotes(m)
	case t.what == tickArrive:
		s.takeNote(m, t.note)
	case t.what == tickExpire:
		s.expireSuspicion(m, t)
	}
}

// sendPacket reports whether one packet from a to b arrives, with a's pending notes on it.
func (s *swim) sendPacket(a, b *swimmer) bool {
	arrives := !b.down && s.rng.Float64() >= s.o.Loss
	for i := range min(len(a.queue), notesPerPacket) {
		a.queue[i].sent++
		if arrives {
			s.heap.Send(s.now+ticks.Millisecond/2, swimTick{what: tickArrive, who: b.id, note: a.queue[i].note})
		}
	}
	limit := retransmitLimit(s.o.Knobs.Retransmit, s.o.Members)
	a.queue = slices.DeleteFunc(a.queue, func(q queued) bool { return q.sent >= limit })
	slices.SortStableFunc(a.queue, func(x, y queued) int { return x.sent - y.sent })
	return arrives
}

// sendRoundTrip reports whether a question and its answer both arrive.
func (s *swim) sendRoundTrip(a, b *swimmer) bool { return s.sendPacket(a, b) && s.sendPacket(b, a) }

func (s *swim) opinionOf(m *swimmer, about int32) opinion {
	if b := m.beliefs[about]; b != nil {
		return b.what
	}
	return alive
}

func (s *swim) probeNext(m *swimmer) {
	k := s.o.Knobs
	for range len(m.order) {
		if m.next >= len(m.order) {
			s.rng.Shuffle(len(m.order), func(a, b int) { m.order[a], m.order[b] = m.order[b], m.order[a] })
			m.next = 0
		}
		target := m.order[m.next]
		m.next++
		if what := s.opinionOf(m, target); what != dead {
			s.rep.Probes++
			if what == suspect { // the suspicion is sent with the probe, so that it can be refuted at once
				s.offerNote(m, note{about: target, from: m.id, inc: m.beliefs[target].inc, what: suspect}, target)
			}
			if s.sendRoundTrip(m, s.all[target]) {
				m.score = max(m.score-1, 0)
				break
			}
			s.heap.Push(s.now+k.ProbeTimeout, swimTick{what: tickTimeout, who: m.id, target: target})
			return
		}
	}
	s.heap.Push(s.now+k.Probe, swimTick{what: tickProbe, who: m.id})
}

// offerNote sends a note directly to one member, if the packet arrives.
func (s *swim) offerNote(m *swimmer, n note, to int32) {
	if b := s.all[to]; !b.down && s.rng.Float64() >= s.o.Loss {
		s.heap.Send(s.now+ticks.Millisecond/2, swimTick{what: tickArrive, who: b.id, note: n})
	}
}

// probeIndirectly asks other members to probe, and tries TCP: its four packets must all arrive, as there is no time to
// repeat any.
func (s *swim) probeIndirectly(m *swimmer, target int32) {
	k := s.o.Knobs
	t := s.all[target]
	end := s.now - k.ProbeTimeout + ticks.Time(m.score+1)*k.Probe // end of the probe, extended by the health score
	m.answered = !t.down && s.rng.Float64() < (1-s.o.Loss)*(1-s.o.Loss)*(1-s.o.Loss)*(1-s.o.Loss)
	missing := 0
	for _, h := range s.randomMembers(m, k.Indirect, target) {
		if h.down || !s.sendPacket(m, h) {
			missing++
			continue
		}
		acked := s.sendRoundTrip(h, t)
		back := s.sendPacket(h, m) // the answer, or the note that there is none
		m.answered = m.answered || acked && back
		if !back {
			missing++
		}
	}
	if !m.answered {
		m.score = min(m.score+missing, k.Awareness-1)
	} else {
		m.score = max(m.score-1, 0)
	}
	s.heap.Push(end, swimTick{what: tickDeadline, who: m.id, target: target})
}

func (s *swim) suspectUnanswered(m *swimmer, target int32) {
	if !m.answered {
		s.rep.Suspicions++
		inc := uint32(0)
		if b := m.beliefs[target]; b != nil {
			inc = b.inc
		}
		s.takeNote(m, note{about: target, from: m.id, inc: inc, what: suspect})
	}
	s.heap.Push(s.now+s.rng.Int64N(s.o.Knobs.Probe), swimTick{what: tickProbe, who: m.id}) // at its ticker's next tick
}

// randomMembers picks up to k members that m does not consider dead, except m and without.
func (s *swim) randomMembers(m *swimmer, k int, without int32) (out []*swimmer) {
	for range 3 * len(s.all) { // as memberlist's kRandomNodes does
		if len(out) == k {
			break
		}
		c := s.all[s.rng.IntN(len(s.all))]
		if c != m && c.id != without && s.opinionOf(m, c.id) != dead && !slices.Contains(out, c) {
			out = append(out, c)
		}
	}
	return out
}

func (s *swim) gossipNotes(m *swimmer) {
	m.ticking = false
	for _, b := range s.randomMembers(m, s.o.Knobs.Fanout, -1) {
		if len(m.queue) == 0 {
			return
		}
		s.sendPacket(m, b)
	}
	s.tickGossip(m)
}

func (s *swim) tickGossip(m *swimmer) {
	if !m.ticking && len(m.queue) > 0 {
		m.ticking = true
		s.heap.Push(s.now+s.o.Knobs.Gossip, swimTick{what: tickGossip, who: m.id})
	}
}

// queueNote queues a note, replacing any other about the same member.
func (s *swim) queueNote(m *swimmer, n note) {
	m.queue = slices.DeleteFunc(m.queue, func(q queued) bool { return q.about == n.about })
	m.queue = slices.Insert(m.queue, 0, queued{note: n})
	s.tickGossip(m)
}

// takeNote implements memberlist's aliveNode, suspectNode and deadNode.
func (s *swim) takeNote(m *swimmer, n note) {
	if n.about == m.id {
		if n.what != alive && n.inc >= m.inc { // refute
			m.inc = n.inc + 1
			m.score = min(m.score+1, s.o.Knobs.Awareness-1)
			s.queueNote(m, note{about: m.id, from: m.id, inc: m.inc, what: alive})
		}
		return
	}
	b := m.beliefs[n.about]
	if b == nil {
		b = &belief{}
	}
	switch {
	case n.inc < b.inc, n.what == alive && n.inc == b.inc:
		return
	case n.what == alive:
		*b = belief{inc: n.inc}
	case n.what == suspect && b.what == suspect:
		s.confirmSuspicion(m, b, n)
		return
	case n.what == suspect && b.what == alive:
		s.suspectMember(m, b, n)
	case n.what == dead && b.what != dead:
		*b = belief{inc: n.inc, what: dead}
		s.noteDeath(n.about)
	default:
		return
	}
	m.beliefs[n.about] = b
	s.queueNote(m, n)
}

func (s *swim) suspectMember(m *swimmer, b *belief, n note) {
	k := s.o.Knobs
	*b = belief{inc: n.inc, what: suspect, confirm: []int32{n.from}, begun: s.now, k: k.Suspicion - 2}
	if s.o.Members-2 < b.k {
		b.k = 0
	}
	b.least = suspicionTime(k.Suspicion, s.o.Members, k.Probe)
	b.most = ticks.Time(k.SuspicionMax) * b.least
	b.expires = s.now + b.most
	if b.k < 1 {
		b.expires = s.now + b.least
	}
	s.heap.Push(b.expires, swimTick{what: tickExpire, who: m.id, target: n.about, at: b.expires})
}

// confirmSuspicion handles another member's suspicion of a suspected member: it shortens the timeout.
func (s *swim) confirmSuspicion(m *swimmer, b *belief, n note) {
	if len(b.confirm)-1 >= b.k || slices.Contains(b.confirm, n.from) {
		return
	}
	b.confirm = append(b.confirm, n.from)
	b.expires = max(b.begun+remainingSuspicion(len(b.confirm)-1, b.k, b.least, b.most), s.now)
	s.heap.Push(b.expires, swimTick{what: tickExpire, who: m.id, target: n.about, at: b.expires})
	s.queueNote(m, n)
}

func (s *swim) expireSuspicion(m *swimmer, t swimTick) {
	b := m.beliefs[t.target]
	if b == nil || b.what != suspect || b.expires != t.at {
		return
	}
	if !s.all[t.target].down {
		s.rep.False++
	}
	s.takeNote(m, note{about: t.target, from: m.id, inc: b.inc, what: dead})
}

func (s *swim) noteDeath(about int32) {
	if !s.all[about].down {
		return
	}
	if s.knows++; s.knows == 1 {
		s.rep.FirstDead = s.now - s.o.Kill
	}
	if s.knows == s.o.Members-1 {
		s.rep.AllDead = s.now - s.o.Kill
	}
}
