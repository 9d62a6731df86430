package gossip

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/broadcast"
	"github.com/soukhq/souk/core/registry"
	"github.com/soukhq/souk/sim/ticks"
)

// PropagateOptions are the parameters of Propagate.
type PropagateOptions struct {
	Members  int
	Owners   int // members that have records; the others only forward. Memory grows with Members times Owners
	Machines int // of each owner, unchanged
	Changes  int
	Every    ticks.Time // between changes, on average
	Idle     ticks.Time // before the first change
	Loss     float64    // share of packets lost
	Seed     uint64
	Knobs    Knobs
}

// PropagateReport is the result of Propagate. Bytes are those sent and received in probes, broadcasts and pulls,
// without memberlist's own full exchanges.
type PropagateReport struct {
	All        Times   `json:"-"` // for each change, time until all members had it
	Each       Times   `json:"-"` // for each change and member, time until it had it
	Missing    int     `json:"missing"`
	IdleBytes  float64 `json:"idle_bytes_per_s"` // of a member
	BusyBytes  float64 `json:"busy_bytes_per_s"`
	Record     float64 `json:"record_bytes"`         // bytes that a change wrote, encoded
	Change     float64 `json:"bytes_per_change"`     // bytes that a change cost a member beyond its idle traffic
	ChangeMost float64 `json:"bytes_per_change_max"` // of the member with the highest cost
	Broadcasts int     `json:"broadcasts"`           // packets
	Again      int     `json:"again"`                // repeated broadcasts
	Pulls      int     `json:"pulls"`                // exchanges that transferred something
	Questions  int     `json:"questions"`            // exchanges
	Same       bool    `json:"same"`                 // all registries had the same root at the end
}

// Bytes of packets besides their content, as measured with the live package and 50 members: a probe's two packets, and
// the frame and cipher of a broadcast, and of a question or answer over TCP.
const (
	probeBytes     = 150
	broadcastBytes = 40
	pullBytes      = 40
	messageBytes   = 1150                           // of one broadcast
	packetBytes    = 1300                           // of the messages in one packet
	leastLatency   = 100 * ticks.Millisecond / 1000 // one way
	mostLatency    = ticks.Millisecond
)

type carrier struct {
	id      cluster.WorkerID
	reg     *registry.Registry
	out     *broadcast.Spreader
	root    uint64
	roots   [32]uint64
	at      int
	wakes   ticks.Time // when it next repeats packets; 0: not
	pulling bool
	agreed  ticks.Time
	bytes   float64 // sent and received
}

type spreadTick struct {
	what   uint8
	who    int32
	from   int32
	packet *broadcast.Packet
	ack    *broadcast.Ack
}

const (
	spreadProbe uint8 = iota
	spreadArrive
	spreadPull
	spreadChange
	spreadFlush
	spreadWake
)

type change struct {
	at   ticks.Time
	seen int
	last ticks.Time
}

type spread struct {
	o       PropagateOptions
	rng     *rand.Rand
	heap    ticks.Heap[spreadTick]
	now     ticks.Time
	all     []*carrier
	index   map[cluster.WorkerID]int32
	updates map[uint64]registry.Update // by ID of their message: all members read the same copy
	changes map[string]*change
	had     map[string][]bool
	each    []ticks.Time
	bytes   float64 // sent
	record  float64
	rep     PropagateReport
}

// Propagate runs changes through a cluster, one registry for each member.
func Propagate(o PropagateOptions) (PropagateReport, error) {
	s := &spread{o: o, rng: rand.New(rand.NewPCG(o.Seed, 0x676f73736970)), index: map[cluster.WorkerID]int32{},
		updates: map[uint64]registry.Update{},
		changes: map[string]*change{}, had: map[string][]bool{}}
	if err := s.makeMembers(); err != nil {
		return s.rep, err
	}
	at := o.Idle
	for range o.Changes {
		s.heap.Push(at, spreadTick{what: spreadChange, who: int32(s.rng.IntN(o.Owners))})
		at += 1 + s.rng.Int64N(2*o.Every)
	}
	end := at + 10*ticks.Second // time to catch up on lost messages
	for i := range o.Members {
		s.heap.Push(s.rng.Int64N(o.Knobs.Probe), spreadTick{what: spreadProbe, who: int32(i)})
	}
	idle := -1.0
	for {
		now, t, ok := s.heap.Pop()
		if !ok || now > end {
			break
		}
		if s.now = now; idle < 0 && now >= o.Idle {
			idle = s.bytes
			for _, m := range s.all {
				m.bytes = 0
			}
		}
		if err := s.handleTick(t); err != nil {
			return s.rep, err
		}
	}
	s.finishRun(max(idle, 0), end)
	return s.rep, nil
}

func (s *spread) finishRun(idle float64, end ticks.Time) {
	n, changes := float64(s.o.Members), float64(len(s.changes))
	// the probes' bytes of a member meanwhile
	rest := 2 * probeBytes * ticks.Seconds(end-s.o.Idle) / ticks.Seconds(s.o.Knobs.Probe)
	s.rep.IdleBytes = 2 * idle / n / ticks.Seconds(max(s.o.Idle, 1))
	s.rep.BusyBytes = 2 * (s.bytes - idle) / n / ticks.Seconds(end-s.o.Idle)
	s.rep.Record = s.record / changes
	s.rep.Change = (2*(s.bytes-idle)/n - rest) / changes
	for _, m := range s.all {
		s.rep.ChangeMost = max(s.rep.ChangeMost, (m.bytes-rest)/changes)
	}
	var all []ticks.Time
	for _, c := range s.changes {
		s.rep.Missing += s.o.Members - 1 - c.seen
		all = append(all, c.last-c.at)
	}
	s.rep.All, s.rep.Each, s.rep.Same = sortedTimes(all), sortedTimes(s.each), true
	for _, m := range s.all {
		s.rep.Same = s.rep.Same && m.root == s.all[0].root
		s.rep.Again += m.out.Stats().Again
	}
}

func (s *spread) clockTime() time.Time { return time.UnixMicro(s.now) }

// countBytes counts bytes sent from one member to another.
func (s *spread) countBytes(from, to *carrier, bytes float64) {
	s.bytes += bytes
	from.bytes += bytes
	to.bytes += bytes
}

// makeMembers makes the members, which all know the owners' records.
func (s *spread) makeMembers() error {
	var first []registry.Update
	var ids []cluster.WorkerID
	for i := range s.o.Members {
		m := &carrier{id: cluster.WorkerID(fmt.Sprintf("w%05d", i))}
		ids, s.index[m.id] = append(ids, m.id), int32(i)
		m.reg = registry.New(m.id, registry.Options{WatchCapacity: 4})
		s.all = append(s.all, m)
		if i >= s.o.Owners {
			continue
		}
		rec, err := json.Marshal(cluster.Record{Worker: m.id, Region: "local", State: cluster.Ready,
			Capacity: cluster.Resources{CPU: 64000, Memory: 256 << 10}})
		if err != nil {
			return err
		}
		recs := []registry.Record{{Kind: registry.Worker, Key: string(m.id), Schema: 1, Payload: rec}}
		for k := range s.o.Machines {
			recs = append(recs, registry.Record{Kind: registry.Machine, Key: fmt.Sprintf("%s-%d", m.id, k), Schema: 1,
				Payload: make([]byte, 180)})
		}
		if err := m.reg.Own(s.clockTime(), 1, recs); err != nil {
			return err
		}
		first = append(first, m.reg.News(registry.MaxDelta, 16)...)
	}
	ring := broadcast.NewRing(ids)
	for _, m := range s.all {
		m.out = broadcast.New(broadcast.Options{Self: m.id, Ways: s.o.Knobs.Push,
			Patience: ticksToDuration(s.o.Knobs.Patience),
			Size:     packetBytes}, s.rng)
		m.out.SetRing(ring)
		if _, err := m.reg.Merge(s.clockTime(), "", registry.Delta{Updates: first}); err != nil {
			return err
		}
		s.noteRoot(m)
	}
	return nil
}

func (s *spread) noteRoot(m *carrier) {
	if root := m.reg.Root(); root != m.root {
		m.root = root
		m.at = (m.at + 1) % len(m.roots)
		m.roots[m.at] = root
	}
}

func (s *spread) handleTick(t spreadTick) error {
	m := s.all[t.who]
	switch t.what {
	case spreadChange:
		return s.makeMachine(m)
	case spreadFlush:
		for _, update := range m.reg.News(messageBytes, 4) {
			body := registry.EncodeUpdate(update)
			s.updates[broadcast.NewMessage(broadcast.Arc{}, body).ID] = update
			m.out.Publish(body)
		}
		s.flushMember(m)
	case spreadArrive:
		return s.handleArrival(t.who, m, t)
	case spreadWake:
		if m.wakes == s.now {
			m.wakes = 0
			s.flushMember(m)
		}
	case spreadProbe:
		s.probeRandom(t.who, m)
	case spreadPull:
		return s.pullFrom(t.who, m, s.all[t.from])
	}
	return nil
}

// makeMachine makes a machine at its owner, as a launch does: the worker's record changes, too.
func (s *spread) makeMachine(m *carrier) error {
	key := fmt.Sprintf("c%06d", len(s.changes))
	s.changes[key] = &change{at: s.now, last: s.now}
	s.had[key] = make([]bool, s.o.Members)
	rec, err := json.Marshal(cluster.Record{Worker: m.id, Region: "local", State: cluster.Ready,
		Version:  uint64(len(s.changes)),
		Capacity: cluster.Resources{CPU: 64000, Memory: 256 << 10}, Machines: len(s.changes), At: s.clockTime()})
	if err != nil {
		return err
	}
	for _, r := range []registry.Record{{Kind: registry.Machine, Key: key, Payload: make([]byte, 180)},
		{Kind: registry.Worker, Key: string(m.id), Payload: rec}} {
		written, err := m.reg.Put(s.clockTime(), r.Kind, r.Key, 1, r.Payload)
		if err != nil {
			return err
		}
		s.record += float64(written.Size())
	}
	s.noteRoot(m)
	s.heap.Push(s.now+s.o.Knobs.Flush, spreadTick{what: spreadFlush, who: s.index[m.id]})
	return nil
}

// flushMember sends a member's pending packets.
func (s *spread) flushMember(m *carrier) {
	packets, acks := m.out.Flush(s.clockTime())
	s.rep.Broadcasts += len(packets) + len(acks)
	for _, p := range packets {
		s.sendMessage(m, p.To, p.Size(), spreadTick{packet: &p})
	}
	for _, a := range acks {
		s.sendMessage(m, a.To, a.Size(), spreadTick{ack: &a})
	}
	if next, ok := m.out.Next(); ok {
		if at := max(next.UnixMicro(), s.now+1); m.wakes == 0 || at < m.wakes {
			m.wakes = at
			s.heap.Push(at, spreadTick{what: spreadWake, who: s.index[m.id]})
		}
	}
}

func (s *spread) sendMessage(m *carrier, to cluster.WorkerID, size int, t spreadTick) {
	t.what, t.who, t.from = spreadArrive, s.index[to], s.index[m.id]
	s.countBytes(m, s.all[t.who], float64(size+broadcastBytes))
	lost := s.rng.Float64() < s.o.Loss
	late := leastLatency + s.rng.Int64N(mostLatency-leastLatency)
	if !lost {
		s.heap.Push(s.now+late, t)
	}
}

func (s *spread) handleArrival(who int32, m *carrier, t spreadTick) error {
	if t.ack != nil {
		m.out.Acked(s.clockTime(), *t.ack)
		return nil
	}
	for _, b := range m.out.Receive(*t.packet) {
		if !m.out.Known(b) {
			update := s.updates[b.ID]
			n, err := m.reg.Merge(s.clockTime(), "", registry.Delta{Updates: []registry.Update{update}})
			if err != nil {
				return err
			}
			if n > 0 {
				s.noteRoot(m)
			}
			for _, rec := range update.Records {
				s.noteSeen(who, m, rec.Key)
			}
		}
		m.out.Relay(b)
	}
	s.flushMember(m)
	if m.reg.HasGaps() {
		s.toPull(who, m, int32(s.rng.IntN(len(s.all))))
	}
	return nil
}

// noteSeen records that a member has a change.
func (s *spread) noteSeen(who int32, m *carrier, key string) {
	c := s.changes[key]
	if c == nil || s.had[key][who] {
		return
	}
	s.had[key][who] = true
	c.seen++
	c.last = s.now
	s.each = append(s.each, s.now-c.at)
}

// probeRandom probes a random member; the answer has its root.
func (s *spread) probeRandom(who int32, m *carrier) {
	s.heap.Push(s.now+s.o.Knobs.Probe, spreadTick{what: spreadProbe, who: who})
	other := int32(s.rng.IntN(len(s.all)))
	s.countBytes(m, s.all[other], probeBytes)
	if other == who || s.rng.Float64() < 2*s.o.Loss {
		return
	}
	if root := s.all[other].root; root != m.root && !slices.Contains(m.roots[:], root) {
		s.toPull(who, m, other)
	}
}

func (s *spread) toPull(who int32, m *carrier, from int32) {
	if !m.pulling {
		m.pulling = true
		s.heap.Push(s.now+s.o.Knobs.Settle/2+s.rng.Int64N(s.o.Knobs.Settle+1), spreadTick{what: spreadPull, who: who,
			from: from})
	}
}

// pullFrom pulls what another member has and this one lacks, unless it has arrived meanwhile.
func (s *spread) pullFrom(who int32, m, from *carrier) error {
	m.pulling = false
	if m == from || slices.Contains(m.roots[:], from.root) {
		return nil
	}
	s.rep.Questions++
	n, err := m.reg.Exchange(s.clockTime(), from.id, 64, func(d registry.Digest) (registry.Delta, error) {
		x := from.reg.Delta(d, 256<<10)
		s.countBytes(m, from, float64(len(registry.EncodeDigest(d))+len(registry.EncodeDelta(x))+2*pullBytes))
		for _, update := range x.Updates {
			for _, rec := range update.Records {
				s.noteSeen(who, m, rec.Key)
			}
		}
		return x, nil
	})
	if n > 0 {
		s.rep.Pulls++
		s.noteRoot(m)
	}
	return err
}

func ticksToDuration(t ticks.Time) time.Duration { return time.Duration(t) * time.Microsecond }
