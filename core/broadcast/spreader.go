package broadcast

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
)

// Options says how a member broadcasts.
type Options struct {
	Self     cluster.WorkerID
	Ways     int           // members to which one member passes a message
	Patience time.Duration // the shortest wait for an acknowledgement
	Size     int           // bytes of a packet's messages; a larger message gets its own packet
}

// The bounds of a Spreader.
const (
	maxPatience  = time.Second
	relayTries   = 3    // sends to one relay before its arc is given to another
	maxMoves     = 4    // of one arc from relay to relay
	leafTries    = 7    // sends to a member that relays to no other
	evenTries    = 4    // sends after which the wait for an acknowledgement grows
	maxInFlight  = 4096 // packets without acknowledgement; beyond it, the oldest are given up
	maxRecent    = 8192 // messages and arcs remembered, in each of two generations
	ackPerPacket = maxSeqs
)

// Stats counts what a member did.
type Stats struct {
	Packets int `json:"packets"` // sent, including repeats
	Again   int `json:"again"`   // sent again
	Moved   int `json:"moved"`   // arcs given to another relay
	Lost    int `json:"lost"`    // messages given up, with their arcs
}

// flight is a packet that is not acknowledged yet.
type flight struct {
	packet Packet
	tries  int
	sent   time.Time // of the first try
	due    time.Time
}

// Spreader is one member's part in all broadcasts. It is not safe for concurrent use.
type Spreader struct {
	o        Options
	rng      *rand.Rand
	ring     *Ring
	seq      uint32
	outgoing map[cluster.WorkerID][]Message
	order    []cluster.WorkerID // keys of outgoing, in order of arrival
	acks     map[cluster.WorkerID][]uint32
	ackOrder []cluster.WorkerID
	flights  map[uint32]*flight
	oldest   uint32 // no packet before it is in flight
	next     time.Time
	trip     trip
	recent   recent
	stats    Stats
}

// New makes a Spreader without a ring.
func New(o Options, rng *rand.Rand) *Spreader {
	first := rng.Uint32() // so that acknowledgements of packets sent before a restart do not match
	return &Spreader{o: o, seq: first, oldest: first, rng: rng, ring: NewRing(nil),
		outgoing: map[cluster.WorkerID][]Message{}, acks: map[cluster.WorkerID][]uint32{},
		flights: map[uint32]*flight{}, trip: trip{least: o.Patience}}
}

// SetRing sets the members that broadcasts reach.
func (s *Spreader) SetRing(r *Ring) { s.ring = r }

// Stats returns the counts.
func (s *Spreader) Stats() Stats { return s.stats }

// InFlight returns how many packets are not acknowledged.
func (s *Spreader) InFlight() int { return len(s.flights) }

// Publish sends body to all other members. Flush returns the packets.
func (s *Spreader) Publish(body []byte) {
	m := NewMessage(Arc{}, body)
	s.recent.addKey(m.ID)
	all := s.ring.placesAround(s.o.Self)
	for _, p := range all.divideIntoParts(s.o.Ways, ringPosition(s.o.Self), s.rng) {
		s.queueMessage(p.relay, Message{Arc: p.arc, Body: body, ID: m.ID})
	}
}

// Receive takes in a packet and returns the messages that the caller checks and, if they are good, relays: new
// messages, and known ones that arrive with another arc. Flush returns the acknowledgement.
func (s *Spreader) Receive(p Packet) (out []Message) {
	if _, waits := s.acks[p.From]; !waits {
		s.ackOrder = append(s.ackOrder, p.From)
	}
	s.acks[p.From] = append(s.acks[p.From], p.Seq)
	for _, m := range p.Messages {
		if !s.recent.hasKey(m.arcKey()) {
			out = append(out, m)
		}
	}
	return out
}

// Known reports whether a message's body was relayed or published here a short while ago.
func (s *Spreader) Known(m Message) bool { return s.recent.hasKey(m.ID) }

// Relay passes a message on to its arc.
func (s *Spreader) Relay(m Message) {
	s.recent.addKey(m.ID)
	s.recent.addKey(m.arcKey())
	before, after := s.ring.placesWithin(m.Arc).cutMember(s.o.Self)
	first, second := divideWays(s.o.Ways, before, after)
	middle := m.Arc.To
	if after.ring != nil {
		middle = ringPosition(s.o.Self)
	}
	parts := append(before.divideIntoParts(first, middle, s.rng), after.divideIntoParts(second, m.Arc.To, s.rng)...)
	for _, p := range parts {
		s.queueMessage(p.relay, Message{Arc: p.arc, Body: m.Body, ID: m.ID})
	}
}

func (s *Spreader) queueMessage(to cluster.WorkerID, m Message) {
	if len(s.outgoing[to]) == 0 {
		s.order = append(s.order, to)
	}
	s.outgoing[to] = append(s.outgoing[to], m)
}

// Acked handles an acknowledgement.
func (s *Spreader) Acked(now time.Time, a Ack) {
	for _, seq := range a.Seqs {
		f := s.flights[seq]
		if f == nil || f.packet.To != a.From {
			continue
		}
		if f.tries == 1 { // after several tries it is unknown which one is acknowledged (Karn)
			s.trip.addRoundTrip(now.Sub(f.sent))
		}
		delete(s.flights, seq)
	}
}

// Flush returns the packets to send now, new ones and repeats, and the acknowledgements.
func (s *Spreader) Flush(now time.Time) (packets []Packet, acks []Ack) {
	again := s.resendLate(now)
	for _, to := range s.order {
		packets = append(packets, s.packMessages(now, to, s.outgoing[to])...)
		delete(s.outgoing, to)
	}
	s.order = s.order[:0]
	packets = append(packets, again...)
	s.stats.Packets += len(packets)
	for _, to := range s.ackOrder {
		for seqs := range slices.Chunk(s.acks[to], ackPerPacket) {
			acks = append(acks, Ack{From: s.o.Self, To: to, Seqs: seqs})
		}
		delete(s.acks, to)
	}
	s.ackOrder = s.ackOrder[:0]
	return packets, acks
}

// packMessages packs messages to one member into packets and records them as in flight.
func (s *Spreader) packMessages(now time.Time, to cluster.WorkerID, ms []Message) (out []Packet) {
	for len(ms) > 0 {
		n, size := 0, 0
		for n < len(ms) && n < maxMessages && (n == 0 || size+messageHead+len(ms[n].Body) <= s.o.Size) {
			size += messageHead + len(ms[n].Body)
			n++
		}
		s.seq++
		p := Packet{From: s.o.Self, To: to, Seq: s.seq, Messages: ms[:n:n]}
		f := &flight{packet: p, tries: 1, sent: now, due: now.Add(s.trip.ackPatience())}
		s.flights[p.Seq] = f
		s.wakeAt(f.due)
		out, ms = append(out, p), ms[n:]
	}
	for len(s.flights) > maxInFlight {
		if f := s.flights[s.oldest]; f != nil {
			s.dropFlight(f)
		}
		s.oldest++
	}
	return out
}

func (s *Spreader) dropFlight(f *flight) {
	s.stats.Lost += len(f.packet.Messages)
	delete(s.flights, f.packet.Seq)
}

func (s *Spreader) wakeAt(t time.Time) {
	if s.next.IsZero() || t.Before(s.next) {
		s.next = t
	}
}

// Next returns when Flush next has a packet to repeat; ok is false while nothing is in flight.
func (s *Spreader) Next() (t time.Time, ok bool) {
	return s.next, !s.next.IsZero() && len(s.flights) > 0
}

// resendLate returns the overdue packets, for their receivers again. After relayTries it queues a packet's arcs for
// other relays.
func (s *Spreader) resendLate(now time.Time) (out []Packet) {
	if s.next.IsZero() || now.Before(s.next) {
		return nil
	}
	s.next = time.Time{}
	var late []*flight
	for _, f := range s.flights {
		if f.due.After(now) {
			s.wakeAt(f.due)
		} else {
			late = append(late, f)
		}
	}
	// a fixed order, unlike the map's
	slices.SortFunc(late, func(a, b *flight) int { return int(int32(a.packet.Seq - b.packet.Seq)) })
	for _, f := range late {
		if f.tries >= relayTries || !s.ring.hasMember(f.packet.To) {
			s.moveArcs(f)
		}
		if len(f.packet.Messages) == 0 || f.tries >= leafTries || !s.ring.hasMember(f.packet.To) {
			s.dropFlight(f)
			continue
		}
		f.tries++
		f.due = now.Add(s.trip.ackPatience() << max(f.tries-evenTries, 0))
		s.wakeAt(f.due)
		s.stats.Again++
		out = append(out, f.packet)
	}
	return out
}

// moveArcs gives the arcs of a packet to other relays. Messages for the receiver alone, and those moved maxMoves
// times, stay in the packet.
func (s *Spreader) moveArcs(f *flight) {
	var stay []Message
	for _, m := range f.packet.Messages {
		x := s.ring.placesWithin(m.Arc)
		if x.n < 2 || m.moves >= maxMoves {
			stay = append(stay, m)
			continue
		}
		i := s.rng.IntN(x.n)
		if x.placeAt(i).id == f.packet.To {
			i = (i + 1) % x.n
		}
		m.moves++
		s.stats.Moved++
		s.queueMessage(x.placeAt(i).id, m)
	}
	f.packet.Messages = stay
}
