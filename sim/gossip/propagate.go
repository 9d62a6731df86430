package gossip

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/registry"
	"github.com/soukhq/souk/sim/ticks"
)

// PropagateOptions say what to run.
type PropagateOptions struct {
	Members  int
	Owners   int // of them, those that have records; the others only carry. Memory grows with Members times Owners
	Machines int // of each owner, that do not change
	Changes  int
	Every    ticks.Time // between changes, on average
	Idle     ticks.Time // before the first
	Loss     float64    // share of packets lost
	Seed     uint64
	Knobs    Knobs
}

// PropagateReport is what came of a run. Bytes are those sent and received, of probes, broadcasts and pulls, without
// memberlist's own full exchanges.
type PropagateReport struct {
	All        Times   `json:"-"` // of each change, until all members had it
	Each       Times   `json:"-"` // and until each had it
	Missing    int     `json:"missing"`
	IdleBytes  float64 `json:"idle_bytes_per_s"` // of a member
	BusyBytes  float64 `json:"busy_bytes_per_s"`
	Broadcasts int     `json:"broadcasts"` // messages in packets
	Pulls      int     `json:"pulls"`      // exchanges that moved something
	Same       bool    `json:"same"`       // all registries had one root at the end
}

// What packets take on the wire beside what they carry, as measured with the live package and 50 members: a probe's two
// packets, and the frame and cipher of a broadcast and of a question or answer over TCP.
const (
	probeBytes     = 150
	broadcastBytes = 40
	pullBytes      = 40
	packetBytes    = 1400
	leastLatency   = 100 * ticks.Millisecond / 1000 // one way
	mostLatency    = ticks.Millisecond
)

type broadcast struct {
	run  registry.Run
	size int
}

type repeating struct {
	*broadcast
	left int
}

type carrier struct {
	id      cluster.WorkerID
	reg     *registry.Registry
	root    uint64
	roots   [32]uint64
	at      int
	queue   []repeating
	ticking bool
	pulling bool
}

type spreadTick struct {
	what uint8
	who  int32
	from int32
	b    *broadcast
}

const (
	spreadProbe uint8 = iota
	spreadGossip
	spreadArrive
	spreadPull
	spreadChange
	spreadFlush
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
	changes map[string]*change
	had     map[string][]bool
	each    []ticks.Time
	bytes   float64
	left    int
	rep     PropagateReport
}

// Propagate runs changes through a cluster, one registry for each member.
func Propagate(o PropagateOptions) (PropagateReport, error) {
	s := &spread{o: o, rng: rand.New(rand.NewPCG(o.Seed, 0x676f73736970)), changes: map[string]*change{}, had: map[string][]bool{}, left: o.Changes}
	if err := s.populate(); err != nil {
		return s.rep, err
	}
	at := o.Idle
	for range o.Changes {
		s.heap.Push(at, spreadTick{what: spreadChange, who: int32(s.rng.IntN(o.Owners))})
		at += 1 + s.rng.Int64N(2*o.Every)
	}
	end := at + 10*ticks.Second // for what was lost to be found
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
		}
		if err := s.step(t); err != nil {
			return s.rep, err
		}
	}
	s.finish(max(idle, 0), end)
	return s.rep, nil
}

func (s *spread) finish(idle float64, end ticks.Time) {
	n := float64(s.o.Members)
	s.rep.IdleBytes = 2 * idle / n / ticks.Seconds(max(s.o.Idle, 1))
	s.rep.BusyBytes = 2 * (s.bytes - idle) / n / ticks.Seconds(end-s.o.Idle)
	var all []ticks.Time
	for _, c := range s.changes {
		s.rep.Missing += s.o.Members - 1 - c.seen
		all = append(all, c.last-c.at)
	}
	s.rep.All, s.rep.Each, s.rep.Same = sorted(all), sorted(s.each), true
	for _, m := range s.all {
		s.rep.Same = s.rep.Same && m.root == s.all[0].root
	}
}

func (s *spread) time() time.Time { return time.UnixMicro(s.now) }

// populate makes the members, all of whom know what the owners have.
func (s *spread) populate() error {
	var first []registry.Run
	for i := range s.o.Members {
		m := &carrier{id: cluster.WorkerID(fmt.Sprintf("w%05d", i))}
		m.reg = registry.New(m.id, registry.Options{WatchCapacity: 4})
		s.all = append(s.all, m)
		if i >= s.o.Owners {
			continue
		}
		rec, err := json.Marshal(cluster.Record{Worker: m.id, Region: "local", State: cluster.Ready, Capacity: cluster.Resources{CPU: 64000, Memory: 256 << 10}})
		if err != nil {
			return err
		}
		recs := []registry.Record{{Kind: registry.Worker, Key: string(m.id), Schema: 1, Payload: rec}}
		for k := range s.o.Machines {
			recs = append(recs, registry.Record{Kind: registry.Machine, Key: fmt.Sprintf("%s-%d", m.id, k), Schema: 1, Payload: make([]byte, 180)})
		}
		if err := m.reg.Own(s.time(), 1, recs); err != nil {
			return err
		}
		first = append(first, m.reg.News(registry.MaxDelta, 16)...)
	}
	for _, m := range s.all {
		if _, err := m.reg.Merge(s.time(), "", registry.Delta{Runs: first}); err != nil {
			return err
		}
		s.rooted(m)
	}
	return nil
}

func (s *spread) rooted(m *carrier) {
	if root := m.reg.Root(); root != m.root {
		m.root = root
		m.at = (m.at + 1) % len(m.roots)
		m.roots[m.at] = root
	}
}

func (s *spread) step(t spreadTick) error {
	m := s.all[t.who]
	switch t.what {
	case spreadChange:
		return s.change(m)
	case spreadFlush:
		for _, run := range m.reg.News(1150, 4) {
			s.spread(m, &broadcast{run, len(registry.EncodeRun(run)) + broadcastBytes})
		}
	case spreadArrive:
		return s.arrive(t.who, m, t.b)
	case spreadGossip:
		s.gossip(m)
	case spreadProbe:
		s.probe(t.who, m)
	case spreadPull:
		return s.pull(t.who, m, s.all[t.from])
	}
	return nil
}

// change makes a machine at its owner, as a launch does: the worker's record changes with it.
func (s *spread) change(m *carrier) error {
	key := fmt.Sprintf("c%06d", len(s.changes))
	s.changes[key] = &change{at: s.now, last: s.now}
	s.had[key] = make([]bool, s.o.Members)
	rec, err := json.Marshal(cluster.Record{Worker: m.id, Region: "local", State: cluster.Ready, Version: uint64(len(s.changes)),
		Capacity: cluster.Resources{CPU: 64000, Memory: 256 << 10}, Machines: len(s.changes), At: s.time()})
	if err != nil {
		return err
	}
	if _, err := m.reg.Put(s.time(), registry.Machine, key, 1, make([]byte, 180)); err != nil {
		return err
	}
	if _, err := m.reg.Put(s.time(), registry.Worker, string(m.id), 1, rec); err != nil {
		return err
	}
	s.rooted(m)
	s.heap.Push(s.now+s.o.Knobs.Flush, spreadTick{what: spreadFlush, who: s.index(m)})
	return nil
}

func (s *spread) index(m *carrier) int32 {
	i, _ := slices.BinarySearchFunc(s.all, m.id, func(c *carrier, id cluster.WorkerID) int {
		if c.id < id {
			return -1
		} else if c.id > id {
			return 1
		}
		return 0
	})
	return int32(i)
}

// send puts a broadcast on its way to a random member.
func (s *spread) send(m *carrier, bs ...*broadcast) {
	to := s.rng.IntN(len(s.all))
	if s.all[to] == m {
		to = (to + 1) % len(s.all)
	}
	lost := s.rng.Float64() < s.o.Loss
	late := leastLatency + s.rng.Int64N(mostLatency-leastLatency)
	for _, b := range bs {
		s.bytes += float64(b.size)
		s.rep.Broadcasts++
		if !lost {
			s.heap.Push(s.now+late, spreadTick{what: spreadArrive, who: int32(to), b: b})
		}
	}
}

func (s *spread) spread(m *carrier, b *broadcast) {
	for range min(s.o.Knobs.Push, len(s.all)-1) {
		s.send(m, b)
	}
	m.queue = append(m.queue, repeating{b, retransmits(s.o.Knobs.Repeat, s.o.Members)})
	s.tick(m)
}

func (s *spread) tick(m *carrier) {
	if !m.ticking && len(m.queue) > 0 {
		m.ticking = true // the phase of its clock is its own
		s.heap.Push(s.now+1+s.rng.Int64N(s.o.Knobs.Gossip), spreadTick{what: spreadGossip, who: s.index(m)})
	}
}

func (s *spread) gossip(m *carrier) {
	slices.SortStableFunc(m.queue, func(a, b repeating) int { return b.left - a.left }) // the newest first, as memberlist does
	for range s.o.Knobs.Fanout {
		var packet []*broadcast
		room := packetBytes
		for i := range m.queue {
			if q := &m.queue[i]; q.left > 0 && q.size <= room {
				q.left--
				room -= q.size
				packet = append(packet, q.broadcast)
			}
		}
		if len(packet) > 0 {
			s.send(m, packet...)
		}
	}
	m.queue = slices.DeleteFunc(m.queue, func(q repeating) bool { return q.left <= 0 })
	if m.ticking = len(m.queue) > 0; m.ticking {
		s.heap.Push(s.now+s.o.Knobs.Gossip, spreadTick{what: spreadGossip, who: s.index(m)})
	}
}

func (s *spread) arrive(who int32, m *carrier, b *broadcast) error {
	n, err := m.reg.Merge(s.time(), "", registry.Delta{Runs: []registry.Run{b.run}})
	if err != nil {
		return err
	}
	if n == 0 {
		return nil
	}
	s.rooted(m)
	for _, rec := range b.run.Records {
		s.saw(who, m, rec.Key)
	}
	s.spread(m, b)
	if k, _ := m.reg.Owner(b.run.Owner); k.Gap {
		s.toPull(who, m, int32(s.rng.IntN(len(s.all))))
	}
	return nil
}

// saw notes that a member has a change.
func (s *spread) saw(who int32, m *carrier, key string) {
	c := s.changes[key]
	if c == nil || s.had[key][who] {
		return
	}
	s.had[key][who] = true
	c.seen++
	c.last = s.now
	s.each = append(s.each, s.now-c.at)
}

// probe asks a random member whether it lives; its answer has its root.
func (s *spread) probe(who int32, m *carrier) {
	s.heap.Push(s.now+s.o.Knobs.Probe, spreadTick{what: spreadProbe, who: who})
	s.bytes += probeBytes
	other := int32(s.rng.IntN(len(s.all)))
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
		s.heap.Push(s.now+s.o.Knobs.Settle/2+s.rng.Int64N(s.o.Knobs.Settle+1), spreadTick{what: spreadPull, who: who, from: from})
	}
}

// pull takes what another has and we do not, if that has not come meanwhile.
func (s *spread) pull(who int32, m, from *carrier) error {
	m.pulling = false
	if m == from || slices.Contains(m.roots[:], from.root) {
		return nil
	}
	n, err := m.reg.Exchange(s.time(), from.id, 64, func(d registry.Digest) (registry.Delta, error) {
		x := from.reg.Delta(d, 256<<10)
		s.bytes += float64(len(registry.EncodeDigest(d)) + len(registry.EncodeDelta(x)) + 2*pullBytes)
		for _, run := range x.Runs {
			for _, rec := range run.Records {
				s.saw(who, m, rec.Key)
			}
		}
		return x, nil
	})
	if n > 0 {
		s.rep.Pulls++
		s.rooted(m)
	}
	return err
}
